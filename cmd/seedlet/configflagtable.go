package main

import "time"

// configFlag is a flag that sets a field of the configuration.
type configFlag struct {
	name, field, usage string
	stays              bool // the kubelet does not call it deprecated
}

// configFlags are the flags of the kubelet that set fields of its configuration, which come from
// AddKubeletConfigFlags in cmd/kubelet/app/options. A test compares names, types and defaults.
var configFlags = []configFlag{
	// Sources of pods, and the runtime.
	{"pod-manifest-path", "staticPodPath", "file or directory of manifests of static pods", false},
	{"manifest-url", "staticPodURL", "URL of manifests of static pods", false},
	{"manifest-url-header", "staticPodURLHeader", "headers to send to the manifest URL, as " +
		"name:value,name:value; may be given more than once", false},
	{"file-check-frequency", "fileCheckFrequency",
		"how often manifests are read again when no change has been seen", false},
	{"http-check-frequency", "httpCheckFrequency", "how often the manifest URL is read", false},
	{"sync-frequency", "syncFrequency", "how often each pod is compared with its spec", false},
	{"runonce", "runOnce", "not possible any more: the agent does not start with it", false},
	{"container-runtime-endpoint", "containerRuntimeEndpoint",
		"socket of the CRI container runtime", false},
	{"image-service-endpoint", "imageServiceEndpoint",
		"socket of the CRI image service, if it is not the runtime's", false},
	{"runtime-request-timeout", "runtimeRequestTimeout",
		"how long a call of the container runtime may take", false},

	// The HTTP API.
	{"enable-server", "enableServer", "serve the HTTP API on the secure port", false},
	{"address", "address",
		"address that the secure port and the read-only port listen on", false},
	{"port", "port", "secure port", false},
	{"read-only-port", "readOnlyPort", "read-only port without authentication, 0 for none", false},
	{"healthz-bind-address", "healthzBindAddress", "address that the health port listens on", false},
	{"healthz-port", "healthzPort", "health port, 0 for none", false},
	{"tls-cert-file", "tlsCertFile", "certificate of the secure port; without it and " +
		"--rotate-server-certificates it is self-signed", false},
	{"tls-private-key-file", "tlsPrivateKeyFile", "key of --tls-cert-file", false},
	{"tls-cipher-suites", "tlsCipherSuites", "cipher suites of the secure port, up to TLS 1.2", false},
	{"tls-min-version", "tlsMinVersion", "minimum version of TLS, as VersionTLS12", false},
	{"rotate-certificates", "rotateCertificates",
		"ask the API server for the next client certificate before one expires", false},
	{"rotate-server-certificates", "serverTLSBootstrap",
		"ask the API server for the certificate of the secure port, again before it expires", false},
	{"client-ca-file", "authentication.x509.clientCAFile",
		"CA bundle that verifies client certificates; empty: they do not authenticate", false},
	{"anonymous-auth", "authentication.anonymous.enabled",
		"accept requests without credentials, as user system:anonymous", false},
	{"authentication-token-webhook", "authentication.webhook.enabled",
		"authenticate bearer tokens by TokenReviews of the API server", false},
	{"authentication-token-webhook-cache-ttl", "authentication.webhook.cacheTTL",
		"how long the result of a TokenReview is cached", false},
	{"authorization-mode", "authorization.mode",
		"AlwaysAllow, or Webhook for SubjectAccessReviews of the API server", false},
	{"authorization-webhook-cache-authorized-ttl", "authorization.webhook.cacheAuthorizedTTL",
		"how long it is cached that a request is authorized", false},
	{"authorization-webhook-cache-unauthorized-ttl", "authorization.webhook.cacheUnauthorizedTTL",
		"how long it is cached that a request is not authorized", false},
	{"enable-debugging-handlers", "enableDebuggingHandlers",
		"serve logs, exec, attach, port-forward, run, configz and debug paths", false},
	{"contention-profiling", "enableContentionProfiling",
		"profile on which locks goroutines block", false},
	{"streaming-connection-idle-timeout", "streamingConnectionIdleTimeout",
		"how long an exec, attach or port-forward may be idle", false},

	// The client of the API server, and the Node.
	{"kube-api-content-type", "contentType", "content type of requests to the API server", false},
	{"kube-api-qps", "kubeAPIQPS", "requests to the API server in a second", false},
	{"kube-api-burst", "kubeAPIBurst", "requests to the API server at once", false},
	{"event-qps", "eventRecordQPS", "Events in a second, 0 for no limit", false},
	{"event-burst", "eventBurst", "Events at once", false},
	{"register-node", "registerNode", "create the Node object if there is none", false},
	{"register-with-taints", "registerWithTaints",
		"taints of the node when it is registered, as key=value:effect,key=value:effect", false},
	{"node-status-update-frequency", "nodeStatusUpdateFrequency",
		"how often the status of the Node is compared and, if it has changed, written", false},
	{"node-status-max-images", "nodeStatusMaxImages",
		"images in the status of the Node at most, -1 for all", false},
	{"provider-id", "providerID",
		"providerID of the Node: the machine's ID at the cloud provider", true},
	{"max-pods", "maxPods", "pods on the node at most", false},
	{"pods-per-core", "podsPerCore", "pods for each CPU at most, 0 for no limit", false},
	{"enable-controller-attach-detach", "enableControllerAttachDetach",
		"the controller of the cluster attaches volumes, and not the agent", false},

	// The network of pods.
	{"cluster-dns", "clusterDNS", "DNS servers of pods with dnsPolicy ClusterFirst", false},
	{"cluster-domain", "clusterDomain", "domain of the cluster, which pods search", false},
	{"resolv-conf", "resolvConf", "file that the DNS settings of pods are made from", false},
	{"pod-cidr", "podCIDR", "addresses of pods on a node without an API server", false},
	{"hairpin-mode", "hairpinMode", "promiscuous-bridge, hairpin-veth or none", false},
	{"make-iptables-util-chains", "makeIPTablesUtilChains",
		"create the iptables chains that other programs look for (KUBE-IPTABLES-HINT)", false},

	// Images, containers and logs.
	{"registry-qps", "registryPullQPS", "image pulls in a second, 0 for no limit", false},
	{"registry-burst", "registryBurst", "image pulls at once", false},
	{"serialize-image-pulls", "serializeImagePulls", "pull one image at a time", false},
	{"minimum-image-ttl-duration", "imageMinimumGCAge",
		"how long an unused image stays at least", false},
	{"image-gc-high-threshold", "imageGCHighThresholdPercent",
		"percentage of the disk from which images are removed; 100: never", false},
	{"image-gc-low-threshold", "imageGCLowThresholdPercent",
		"percentage of the disk down to which images are removed", false},
	{"container-log-max-size", "containerLogMaxSize",
		"size at which the log of a container is rotated, as 10Mi", false},
	{"container-log-max-files", "containerLogMaxFiles", "files of the log of a container", false},
	{"allowed-unsafe-sysctls", "allowedUnsafeSysctls",
		"sysctls that pods may set besides the safe ones, as kernel.msg*", false},
	{"volume-plugin-dir", "volumePluginDir", "directory of drivers of FlexVolumes", false},
	{"volume-stats-agg-period", "volumeStatsAggPeriod",
		"how often the usage of volumes is measured; negative: never", false},
	{"local-storage-capacity-isolation", "localStorageCapacityIsolation",
		"the disk of the node is a resource that pods request and are limited in", false},

	// Cgroups and resources.
	{"cgroup-driver", "cgroupDriver",
		"cgroupfs or systemd, if the runtime does not say which one it uses", false},
	{"cgroup-root", "cgroupRoot", "cgroup that the cgroups of pods are made in", false},
	{"cgroups-per-qos", "cgroupsPerQOS", "make cgroups of pods and their QoS classes", false},
	{"kubelet-cgroups", "kubeletCgroups", "cgroup of the agent, for its statistics", false},
	{"system-cgroups", "systemCgroups", "cgroup of the system's daemons, for its statistics", false},
	{"system-reserved", "systemReserved",
		"resources that pods do not get, for the system, as cpu=200m,memory=500Mi", false},
	{"kube-reserved", "kubeReserved",
		"resources that pods do not get, for Kubernetes, as cpu=200m,memory=500Mi", false},
	{"system-reserved-cgroup", "systemReservedCgroup", "cgroup that --system-reserved limits", false},
	{"kube-reserved-cgroup", "kubeReservedCgroup", "cgroup that --kube-reserved limits", false},
	{"reserved-cpus", "reservedSystemCPUs",
		"CPUs that pods do not get, as 0-1; replaces those of the other reservations", false},
	{"enforce-node-allocatable", "enforceNodeAllocatable", "cgroups that are limited: none, or " +
		"of pods, system-reserved, kube-reserved and their -compressible forms", false},
	{"qos-reserved", "qosReserved",
		"percentage of requested memory that lower QoS classes do not get, as memory=50%", false},
	{"cpu-cfs-quota", "cpuCFSQuota", "limit the CPU time of containers with a CPU limit", false},
	{"cpu-cfs-quota-period", "cpuCFSQuotaPeriod", "period of that limit", false},
	{"pod-max-pids", "podPidsLimit", "process IDs of a pod at most, -1 for no limit", false},
	{"cpu-manager-policy", "cpuManagerPolicy", "none or static", false},
	{"cpu-manager-policy-options", "cpuManagerPolicyOptions",
		"options of the policy, as key=value; may be given more than once", false},
	{"cpu-manager-reconcile-period", "cpuManagerReconcilePeriod",
		"how often the CPUs of containers are compared", false},
	{"memory-manager-policy", "memoryManagerPolicy", "None or Static", false},
	{"reserved-memory", "reservedMemory",
		"memory that pods do not get, by NUMA node, as 0:memory=1Gi;1:memory=2Gi", false},
	{"topology-manager-policy", "topologyManagerPolicy",
		"none, best-effort, restricted or single-numa-node", false},
	{"topology-manager-policy-options", "topologyManagerPolicyOptions",
		"options of the policy, as key=value,key=value", false},
	{"topology-manager-scope", "topologyManagerScope", "container or pod", false},

	// Eviction.
	{"eviction-hard", "evictionHard",
		"thresholds under which pods are evicted at once, as memory.available<100Mi", false},
	{"eviction-soft", "evictionSoft",
		"thresholds under which pods are evicted after a grace period", false},
	{"eviction-soft-grace-period", "evictionSoftGracePeriod",
		"grace periods of the soft thresholds, as memory.available=90s", false},
	{"eviction-max-pod-grace-period", "evictionMaxPodGracePeriod",
		"seconds that a pod has to end at a soft threshold at most", false},
	{"eviction-minimum-reclaim", "evictionMinimumReclaim",
		"amounts that an eviction reclaims at least, as nodefs.available=1Gi", false},
	{"eviction-pressure-transition-period", "evictionPressureTransitionPeriod",
		"how long a condition of pressure stays after its end", false},
	{"kernel-memcg-notification", "kernelMemcgNotification",
		"let the kernel tell when a threshold of memory is crossed", false},

	// The process and the machine.
	{"fail-swap-on", "failSwapOn", "do not start on a machine with swap", false},
	{"fail-cgroupv1", "failCgroupV1", "do not start on a machine with cgroup v1", true},
	{"protect-kernel-defaults", "protectKernelDefaults",
		"refuse to start if a sysctl is not as the node needs it, instead of setting it", false},
	{"oom-score-adj", "oomScoreAdj",
		"how early the kernel ends the agent if memory is short, -1000 to 1000", false},
	{"max-open-files", "maxOpenFiles", "files that the agent may have open", false},
	{"feature-gates", "featureGates", "feature gates, as Name=true,Name=false", false},
}

// loggingFlags are the flags of logging, which component-base binds to their fields.
var loggingFlags = []configFlag{
	{"logging-format", "logging.format", "format of logs: text or json", false},
	{"v", "logging.verbosity", "verbosity of logs", true},
	{"vmodule", "logging.vmodule", "verbosity of logs by source file, as pod=4,image*=5; for the " +
		"format text", true},
	{"log-flush-frequency", "logging.flushFrequency", "how often logs are flushed", true},
	{"log-text-split-stream", "logging.options.text.splitStream", textSplit, false},
	{"log-text-info-buffer-size", "logging.options.text.infoBufferSize", textBuffer, false},
	{"log-json-split-stream", "logging.options.json.splitStream", textSplit, false},
	{"log-json-info-buffer-size", "logging.options.json.infoBufferSize", textBuffer, false},
}

const (
	textSplit = "write information to standard output, and only errors to standard error; needs " +
		"the feature gate LoggingAlphaOptions"
	textBuffer = "buffer of the information in a stream of its own, as 64Ki; 0 for none"
)

// cadvisorFlag is a flag that the kubelet has from cAdvisor. It is parsed and has no effect.
type cadvisorFlag struct {
	name, usage string
	value       any // the default
	reason      string
}

const (
	measuredOnRequest = "statistics are measured when they are requested"
	noDatabase        = "the kubelet sends no statistics to a database either"
	noEventStore      = "the kubelet reads no other event of cAdvisor than out-of-memory, which is " +
		"not stored here"
)

// cadvisorFlags are the flags of cAdvisor, which all but one are deprecated in the kubelet
// (cmd/kubelet/app/options/globalflags_linux.go).
var cadvisorFlags = []cadvisorFlag{
	{"application-metrics-count-limit", "metrics of a container at most", 100,
		"the kubelet collects no metrics of applications either"},
	{"container-hints", "file of hints on containers", "/etc/cadvisor/container_hints.json",
		"the runtime says which containers there are"},
	{"containerd", "socket of containerd", "/run/containerd/containerd.sock",
		"--container-runtime-endpoint has the socket"},
	{"containerd-namespace", "namespace of containerd", "k8s.io",
		"the runtime says which containers there are"},
	{"enable-load-reader", "read the load of cgroups", false, "the load of cgroups is not read"},
	{"event-storage-age-limit", "how long events are stored", "default=0", noEventStore},
	{"event-storage-event-limit", "events that are stored at most", "default=0", noEventStore},
	{"global-housekeeping-interval", "how often all containers are looked for", time.Minute,
		measuredOnRequest},
	{"housekeeping-interval", "how often the usage of a container is measured", 10 * time.Second,
		measuredOnRequest},
	{"log-cadvisor-usage", "log the usage of cAdvisor", false, "there is no cAdvisor of its own"},
	{"storage-driver-buffer-duration", "how long statistics are buffered", time.Minute, noDatabase},
	{"storage-driver-db", "name of the database", "cadvisor", noDatabase},
	{"storage-driver-host", "address of the database", "localhost:8086", noDatabase},
	{"storage-driver-password", "password of the database", "root", noDatabase},
	{"storage-driver-secure", "connect to the database by TLS", false, noDatabase},
	{"storage-driver-table", "table of the database", "stats", noDatabase},
	{"storage-driver-user", "user of the database", "root", noDatabase},
}
