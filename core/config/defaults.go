package config

import (
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	logsapi "k8s.io/component-base/logs/api/v1"
	kubeletconfigv1beta1 "k8s.io/kubelet/config/v1beta1"
)

// configuration is the type that this package reads.
type configuration = kubeletconfigv1beta1.KubeletConfiguration

// evictionHardDefaults are the hard eviction thresholds of a kubelet on Linux.
var evictionHardDefaults = []struct{ signal, threshold string }{
	{"memory.available", "100Mi"},
	{"nodefs.available", "10%"},
	{"nodefs.inodesFree", "5%"},
	{"imagefs.available", "15%"},
	{"imagefs.inodesFree", "5%"},
}

// SetDefaults sets the fields that are not set to the defaults of kubelet v1.36. It is idempotent.
func SetDefaults(c *configuration) {
	setDefaults(c)
	defaultThresholds(c)
}

// setLegacyDefaults makes the defaults those of a kubelet without a configuration file, which has
// kept the defaults of its flags from the time before there was one (applyLegacyDefaults in
// cmd/kubelet/app/options).
func setLegacyDefaults(c *configuration) {
	*c.Authentication.Anonymous.Enabled = true
	*c.Authentication.Webhook.Enabled = false
	c.Authorization.Mode = kubeletconfigv1beta1.KubeletAuthorizationModeAlwaysAllow
	c.ReadOnlyPort = 10255
}

// setDefaults sets all defaults but those of thresholds.
func setDefaults(c *configuration) {
	defaultSources(c)
	defaultServer(c)
	defaultNodeStatus(c)
	defaultImages(c)
	defaultResources(c)
	defaultEviction(c)
	defaultContainers(c)
	defaultLogging(&c.Logging)
}

// defaultSources sets the defaults of the sources of pods, the runtime and the API client.
func defaultSources(c *configuration) {
	setString(&c.APIVersion, apiVersion)
	setString(&c.Kind, kind)
	setDuration(&c.SyncFrequency, time.Minute)
	setDuration(&c.FileCheckFrequency, 20*time.Second)
	setDuration(&c.HTTPCheckFrequency, 20*time.Second)
	setString(&c.ContainerRuntimeEndpoint, "unix:///run/containerd/containerd.sock")
	setDuration(&c.RuntimeRequestTimeout, 2*time.Minute)
	setString(&c.ContentType, "application/vnd.kubernetes.protobuf")
	setPointer(&c.KubeAPIQPS, 50)
	setNumber(&c.KubeAPIBurst, 100)
	setPointer(&c.EventRecordQPS, 50)
	setNumber(&c.EventBurst, 100)
	setString(&c.ConfigMapAndSecretChangeDetectionStrategy,
		kubeletconfigv1beta1.WatchChangeDetectionStrategy)
}

// defaultServer sets the defaults of the HTTP endpoints.
func defaultServer(c *configuration) {
	setPointer(&c.EnableServer, true)
	setString(&c.Address, "0.0.0.0")
	setNumber(&c.Port, 10250)
	setPointer(&c.HealthzPort, 10248)
	setString(&c.HealthzBindAddress, "127.0.0.1")
	setPointer(&c.Authentication.Anonymous.Enabled, false)
	setPointer(&c.Authentication.Webhook.Enabled, true)
	setDuration(&c.Authentication.Webhook.CacheTTL, 2*time.Minute)
	setString(&c.Authorization.Mode, kubeletconfigv1beta1.KubeletAuthorizationModeWebhook)
	setDuration(&c.Authorization.Webhook.CacheAuthorizedTTL, 5*time.Minute)
	setDuration(&c.Authorization.Webhook.CacheUnauthorizedTTL, 30*time.Second)
	setDuration(&c.StreamingConnectionIdleTimeout, 4*time.Hour)
	setPointer(&c.EnableDebuggingHandlers, true)
	setPointer(&c.EnableProfilingHandler, true)
	setPointer(&c.EnableDebugFlagsHandler, true)
	setPointer(&c.EnableSystemLogHandler, true)
	setPointer(&c.EnableSystemLogQuery, false)
}

// defaultNodeStatus sets the defaults of the Node object.
func defaultNodeStatus(c *configuration) {
	// An update frequency that the user sets is the report frequency as well, so this comes first.
	if c.NodeStatusUpdateFrequency.Duration != 0 {
		setDuration(&c.NodeStatusReportFrequency, c.NodeStatusUpdateFrequency.Duration)
	}
	setDuration(&c.NodeStatusReportFrequency, 5*time.Minute)
	setDuration(&c.NodeStatusUpdateFrequency, 10*time.Second)
	setNumber(&c.NodeLeaseDurationSeconds, 40)
	setPointer(&c.NodeStatusMaxImages, 50)
	setPointer(&c.RegisterNode, true)
	setPointer(&c.EnableControllerAttachDetach, true)
	setDuration(&c.VolumeStatsAggPeriod, time.Minute)
	setString(&c.VolumePluginDir, "/usr/libexec/kubernetes/kubelet-plugins/volume/exec/")
}

// defaultImages sets the defaults of image pulls and image garbage collection.
func defaultImages(c *configuration) {
	setPointer(&c.RegistryPullQPS, 5)
	setNumber(&c.RegistryBurst, 10)
	parallel := c.MaxParallelImagePulls != nil && *c.MaxParallelImagePulls > 1
	setPointer(&c.SerializeImagePulls, !parallel)
	if PullRecordsEnabled(c) {
		setString(&c.ImagePullCredentialsVerificationPolicy,
			kubeletconfigv1beta1.NeverVerifyPreloadedImages)
	}
	setDuration(&c.ImageMinimumGCAge, 2*time.Minute)
	setPointer(&c.ImageGCHighThresholdPercent, 85)
	setPointer(&c.ImageGCLowThresholdPercent, 80)
}

// defaultResources sets the defaults of the node's resources and their allocation.
func defaultResources(c *configuration) {
	setNumber(&c.MaxPods, 110)
	setPointer(&c.OOMScoreAdj, -999)
	setNumber(&c.MaxOpenFiles, 1_000_000)
	setPointer(&c.CgroupsPerQOS, true)
	setString(&c.CgroupDriver, "cgroupfs")
	setPointer(&c.FailCgroupV1, false) // the kubelet's default is true; see docs/differences.md
	setPointer(&c.FailSwapOn, true)
	setString(&c.CPUManagerPolicy, "none")
	setDuration(&c.CPUManagerReconcilePeriod, 10*time.Second)
	setPointer(&c.CPUCFSQuota, true)
	setPointer(&c.CPUCFSQuotaPeriod, metav1.Duration{Duration: 100 * time.Millisecond})
	setString(&c.MemoryManagerPolicy, kubeletconfigv1beta1.NoneMemoryManagerPolicy)
	setString(&c.MemoryReservationPolicy, kubeletconfigv1beta1.NoneMemoryReservationPolicy)
	setPointer(&c.MemoryThrottlingFactor, 0.9)
	setString(&c.TopologyManagerPolicy, kubeletconfigv1beta1.NoneTopologyManagerPolicy)
	setString(&c.TopologyManagerScope, kubeletconfigv1beta1.ContainerTopologyManagerScope)
	setPointer(&c.LocalStorageCapacityIsolation, true)
	if c.PodPidsLimit != nil && *c.PodPidsLimit < 0 {
		c.PodPidsLimit = nil // a negative limit means the limit of the node
	}
	setPointer(&c.PodPidsLimit, -1)
	if c.EnforceNodeAllocatable == nil {
		c.EnforceNodeAllocatable = []string{"pods"}
	}
	if c.UserNamespaces == nil {
		c.UserNamespaces = &kubeletconfigv1beta1.UserNamespaces{}
	}
	setPointer(&c.UserNamespaces.IDsPerPod, idsPerPodUnit)
}

// defaultEviction sets the defaults of eviction but those of thresholds.
func defaultEviction(c *configuration) {
	setPointer(&c.MergeDefaultEvictionSettings, false)
	setDuration(&c.EvictionPressureTransitionPeriod, 5*time.Minute)
}

// defaultThresholds sets the default thresholds. Those that the user sets replace all of them,
// unless mergeDefaultEvictionSettings is set.
func defaultThresholds(c *configuration) {
	if c.EvictionHard != nil && !*c.MergeDefaultEvictionSettings {
		return
	}
	if c.EvictionHard == nil {
		c.EvictionHard = map[string]string{}
	}
	for _, d := range evictionHardDefaults {
		if _, set := c.EvictionHard[d.signal]; !set {
			c.EvictionHard[d.signal] = d.threshold
		}
	}
}

// defaultContainers sets the defaults that hold for every container.
func defaultContainers(c *configuration) {
	setString(&c.PodLogsDir, "/var/log/pods")
	setString(&c.ContainerLogMaxSize, "10Mi")
	setPointer(&c.ContainerLogMaxFiles, 5)
	setPointer(&c.ContainerLogMaxWorkers, 1)
	setPointer(&c.ContainerLogMonitorInterval, metav1.Duration{Duration: 10 * time.Second})
	setPointer(&c.CrashLoopBackOff.MaxContainerRestartPeriod,
		metav1.Duration{Duration: 300 * time.Second})
	setPointer(&c.ResolverConfig, "/etc/resolv.conf")
	setString(&c.HairpinMode, kubeletconfigv1beta1.PromiscuousBridge)
	setPointer(&c.SeccompDefault, false)
	setPointer(&c.MakeIPTablesUtilChains, true)
	setPointer(&c.IPTablesMasqueradeBit, 14)
	setPointer(&c.IPTablesDropBit, 15)
}

func defaultLogging(l *logsapi.LoggingConfiguration) {
	setString(&l.Format, logsapi.DefaultLogFormat)
	if l.FlushFrequency.Duration.Duration == 0 {
		l.FlushFrequency.Duration.Duration = 5 * time.Second
		l.FlushFrequency.SerializeAsString = true
	}
	for _, size := range []*resource.QuantityValue{
		&l.Options.Text.InfoBufferSize, &l.Options.JSON.InfoBufferSize,
	} {
		if size.IsZero() {
			size.Quantity = *resource.NewQuantity(0, resource.DecimalSI)
		}
	}
}

func setString[T ~string](field *T, value T) {
	if *field == "" {
		*field = value
	}
}

func setNumber[T int32 | int64](field *T, value T) {
	if *field == 0 {
		*field = value
	}
}

func setDuration(field *metav1.Duration, value time.Duration) {
	if field.Duration == 0 {
		field.Duration = value
	}
}

func setPointer[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}

// RestartBackoffMax returns the configured maximum of the back-off between restarts of a container.
func RestartBackoffMax(c *configuration) time.Duration {
	if m := c.CrashLoopBackOff.MaxContainerRestartPeriod; m != nil {
		return m.Duration
	}
	return 300 * time.Second
}
