package core

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"seedlet.dev/core/metrics"
	"seedlet.dev/core/pod"
	"seedlet.dev/core/selinux"
	"seedlet.dev/core/volume"
	"seedlet.dev/world"
)

// The metrics that the agent serves. Metrics whose names begin with kubelet_ or prober_ have the
// names, labels and buckets of the kubelet, so that its dashboards work; those of seedlet_ are in
// metrics_seedlet.go. What they count is recorded in metrics_record.go. To add a metric, add a
// field to Metrics, a function that records it, and a line here. docs/metrics.md lists all.

// The bounds of the buckets of the kubelet's histograms.
var (
	defaultBounds  = metrics.DefaultBounds
	podStartBounds = metrics.Seconds(0.5, 1, 2, 3, 4, 5, 6, 8, 10, 20, 30, 45, 60, 120, 180, 240, 300,
		360, 480, 600, 900, 1200, 1800, 2700, 3600)
	imagePullBounds = metrics.Seconds(1, 5, 10, 20, 30, 60, 120, 180, 240, 300, 360, 480, 600, 900,
		1200, 1800, 2700, 3600)
	volumeOperationBounds  = metrics.Seconds(.1, .25, .5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600)
	statusSyncBounds       = metrics.Seconds(.01, .05, .1, .5, 1, 5, 10, 20, 30, 45, 60)
	containersPerPodBounds = metrics.Seconds(1, 2, 4, 8, 16) // a second is a container
)

// imageSizeClasses are the kubelet's classes of image sizes. An image belongs to the first class
// whose bound, in MiB, it exceeds.
var imageSizeClasses = []struct {
	above int64
	label string
}{
	{102400, "GT100GB"}, {61440, "60GB-100GB"}, {40960, "40GB-60GB"}, {30720, "30GB-40GB"},
	{20480, "20GB-30GB"}, {10240, "10GB-20GB"}, {5120, "5GB-10GB"}, {1024, "1GB-5GB"},
	{500, "500MB-1GB"}, {100, "100MB-500MB"}, {10, "10MB-100MB"}, {0, "0-10MB"},
}

// imageSizeClass returns the class of an image; zero bytes means that the size is unknown.
func imageSizeClass(bytes int64) string {
	for _, class := range imageSizeClasses {
		if bytes > class.above<<20 {
			return class.label
		}
	}
	return "N/A"
}

// metricList collects the metrics of a response.
type metricList []world.Metric

// newLabels returns the labels of alternating names and values.
func newLabels(pairs []string) []world.Label {
	if len(pairs) == 0 {
		return nil
	}
	list := make([]world.Label, 0, len(pairs)/2)
	for i := 0; i < len(pairs); i += 2 {
		list = append(list, world.Label{Name: pairs[i], Value: pairs[i+1]})
	}
	return list
}

func (m *metricList) addGauge(name, help string, v int, pairs ...string) {
	*m = append(*m, world.Metric{Name: name, Help: help, Value: float64(v), Labels: newLabels(pairs)})
}

func (m *metricList) addCounter(name, help string, v uint64, pairs ...string) {
	*m = append(*m, world.Metric{Name: name, Help: help, Counter: true, Value: float64(v),
		Labels: newLabels(pairs)})
}

func (m *metricList) addHistogram(name, help string, h *metrics.Histogram, bounds metrics.Bounds,
	pairs ...string) {
	*m = append(*m, world.Metric{Name: name, Help: help, Histogram: h.Export(bounds),
		Labels: newLabels(pairs)})
}

// addCounters adds a metric for each key. A key consists of the values of the labels, separated by
// spaces.
func (m *metricList) addCounters(name, help string, c metrics.Counters, names ...string) {
	for _, key := range c.Keys() {
		m.addCounter(name, help, c[key], labelPairs(key, names)...)
	}
}

// addHistograms is addCounters for histograms.
func (m *metricList) addHistograms(name, help string, h metrics.Histograms, bounds metrics.Bounds,
	names ...string) {
	for _, key := range h.Keys() {
		m.addHistogram(name, help, h[key], bounds, labelPairs(key, names)...)
	}
}

// labelPairs returns the names of labels and the values that a key consists of, in turns.
func labelPairs(key string, names []string) []string {
	var pairs []string
	for i, value := range strings.SplitN(key, " ", len(names)) {
		pairs = append(pairs, names[i], value)
	}
	return pairs
}

// listMetrics returns all metrics but those of probes, sorted by name.
func (a *Agent) listMetrics() []world.Metric {
	var m metricList
	a.addSeedletMetrics(&m)
	a.addKubeletPodMetrics(&m)
	a.addKubeletStartMetrics(&m)
	a.addKubeletRelistMetrics(&m)
	a.addKubeletNodeMetrics(&m)
	a.addResizeMetrics(&m)
	a.addMemoryQoSMetrics(&m)
	a.addPluginMetrics(&m)
	a.addVolumeStats(&m)
	a.addCertificateMetrics(&m)
	slices.SortStableFunc(m, func(x, y world.Metric) int { return cmp.Compare(x.Name, y.Name) })
	return m
}

// addPluginMetrics adds the metric of the kubelet's plugin manager, with its names of the states:
// desired are the sockets that were observed, actual those whose plugins are registered.
func (a *Agent) addPluginMetrics(m *metricList) {
	const name, help = "plugin_manager_total_plugins",
		"Sockets of plugins (desired state), and those whose plugins are registered (actual state)."
	observed, registered := a.state.Plugins.Registered()
	for _, path := range observed {
		m.addGauge(name, help, 1, "socket_path", path, "state", "desired_state_of_world")
	}
	for _, path := range registered {
		m.addGauge(name, help, 1, "socket_path", path, "state", "actual_state_of_world")
	}
}

// addCertificateMetrics adds the numbers of certificates of pods in each state, while the feature
// gate PodCertificateRequest is on.
func (a *Agent) addCertificateMetrics(m *metricList) {
	if !a.state.Node.PodCertificates {
		return
	}
	type key struct{ signer, state string }
	counts := map[key]int{}
	var keys []key
	for _, uid := range a.podUIDs {
		p := a.state.Pods[uid]
		if p.Spec == nil {
			continue
		}
		p.Storage.Certificates.VisitStates(p.Spec, a.effects.Date(), func(signer, state string) {
			if counts[key{signer, state}]++; counts[key{signer, state}] == 1 {
				keys = append(keys, key{signer, state})
			}
		})
	}
	for _, k := range keys {
		m.addGauge("kubelet_podcertificate_states", "Sources podCertificate of the volumes of pods, by "+
			"the signer and the state of the certificate.", counts[k], "signer_name", k.signer, "state",
			k.state)
	}
}

func unixOrZero(t time.Time) int {
	if t.IsZero() {
		return 0
	}
	return int(t.Unix())
}

// addKubeletPodMetrics adds the kubelet's metrics about the current pods.
func (a *Agent) addKubeletPodMetrics(m *metricList) {
	const running, desired, active = "kubelet_running_containers", "kubelet_desired_pods",
		"kubelet_active_pods"
	s, all := &a.state, &a.state.Metrics.Total
	m.addGauge("kubelet_running_pods", "Pods whose sandbox is running.", all.RunningPods)
	help := "Containers in the runtime, by their state."
	m.addGauge(running, help, all.CreatedContainers, "container_state", "created")
	m.addGauge(running, help, all.RunningContainers, "container_state", "running")
	m.addGauge(running, help, all.UnknownContainers, "container_state", "unknown")
	m.addGauge(running, help, all.ExitedContainers, "container_state", "exited")
	help = "Desired pods of this node; static is true for static pods."
	m.addGauge(desired, help, len(s.APIPodUIDs), "static", "")
	m.addGauge(desired, help, all.StaticPods+len(s.StaticRejections), "static", "true")
	help = "Pods that count against the node's resources; static is true for static pods."
	m.addGauge(active, help, all.ActivePods, "static", "")
	m.addGauge(active, help, all.ActiveStaticPods, "static", "true")
	m.addGauge("kubelet_mirror_pods", "Mirror pods at the API server.", len(s.MirroredPodUIDs))
	m.addGauge("kubelet_managed_ephemeral_containers", "Ephemeral containers of pods.",
		all.EphemeralContainers)
	for config, labels := range pod.ConfigLabels {
		for stage, lifecycle := range pod.StageLabels {
			m.addGauge("kubelet_working_pods", "Pods that the agent works on, by their stage, whether "+
				"they are still desired or only the runtime has them, and whether they are static.",
				all.Working[config][stage], "lifecycle", lifecycle, "config", labels[0], "static",
				labels[1])
		}
	}
	m.addVolumeCounts("actual_state_of_world", &all.VolumesMounted)
	m.addVolumeCounts("desired_state_of_world", &all.VolumesDesired)
}

// addVolumeCounts adds the numbers of volumes in a state, of the plugins that have any.
func (m *metricList) addVolumeCounts(state string, volumes *[volume.PluginCount]int) {
	for plugin, n := range volumes {
		if n > 0 {
			m.addGauge("volume_manager_total_volumes", "Volumes of pods, by their kind: those that pods "+
				"should have, and those that are set up and not unmounted.", n,
				"plugin_name", volume.PluginLabels[plugin], "state", state)
		}
	}
}

// addKubeletNodeMetrics adds the kubelet's metrics about the node itself.
func (a *Agent) addKubeletNodeMetrics(m *metricList) {
	s, version := &a.state, 2
	if s.Boot.Machine.CgroupV1 {
		version = 1
	}
	m.addGauge("kubelet_node_name", "Always 1; the label has the name of the node.", 1,
		"node", s.Node.Name)
	m.addGauge("kubelet_cgroup_version", "Version of the machine's cgroups.", version)
	m.addGauge("kubelet_metrics_provider", "Always 1; the label says whose names and labels "+
		"/metrics/cadvisor has.", 1, "provider", "cadvisor")
	start, end := s.Shutdown.Times()
	m.addGauge("kubelet_graceful_shutdown_start_time_seconds", "When the last graceful shutdown "+
		"started, as Unix time; zero: none is known.", unixOrZero(start))
	m.addGauge("kubelet_graceful_shutdown_end_time_seconds", "When the last graceful shutdown "+
		"ended, as Unix time; zero: it has not, or none is known.", unixOrZero(end))
	startup := s.NodeObject.Startup
	machineUp := s.BootedAt.Add(-s.Boot.Uptime)
	registered, ready := startup.RegisteredAt, startup.ReadyAt
	if s.Boot.Uptime == 0 {
		registered, ready = time.Time{}, time.Time{} // not known
	}
	m.addSpan("kubelet_node_startup_pre_kubelet_duration_seconds", "Time from the boot of the "+
		"machine to the start of the agent; zero if the Node existed.",
		machineUp, s.BootedAt, registered)
	m.addSpan("kubelet_node_startup_duration_seconds", "Time from the boot of the machine until a "+
		"Node that the agent created was ready for the first time; zero if the Node existed.",
		machineUp, ready, ready)
	m.addSpan("kubelet_node_startup_pre_registration_duration_seconds", "Time from the start of the "+
		"agent to its first attempt to create the Node; zero if the Node existed.",
		s.BootedAt, startup.AttemptedAt, startup.RegisteredAt)
	m.addSpan("kubelet_node_startup_registration_duration_seconds",
		"Time from the first attempt to create the Node to its creation; zero if the Node existed.",
		startup.AttemptedAt, startup.RegisteredAt, startup.RegisteredAt)
	m.addSpan("kubelet_node_startup_post_registration_duration_seconds", "Time from the creation of "+
		"the Node until it was ready for the first time; zero if the Node existed.",
		startup.RegisteredAt, startup.ReadyAt, startup.ReadyAt)
}

// addSpan adds the time between two moments, zero until a third has come.
func (m *metricList) addSpan(name, help string, from, to, known time.Time) {
	metric := world.Metric{Name: name, Help: help}
	if !known.IsZero() {
		metric.Value = to.Sub(from).Seconds()
	}
	*m = append(*m, metric)
}

// addKubeletStartMetrics adds the kubelet's metrics about starts: of pods, containers and image
// pulls.
func (a *Agent) addKubeletStartMetrics(m *metricList) {
	t := &a.state.Metrics
	m.addCounter("kubelet_started_pods_total", "Attempts to run a sandbox.", t.PodsStarted)
	m.addCounter("kubelet_started_pods_errors_total", "Attempts to run a sandbox that failed.",
		t.PodsFailed)
	m.addCounter("kubelet_started_user_namespaced_pods_total",
		"Attempts to run a sandbox with a user namespace.", t.UserNamespacesStarted)
	m.addCounter("kubelet_started_user_namespaced_pods_errors_total",
		"Attempts to run a sandbox with a user namespace after which the sandbox or one of its first "+
			"containers failed.", t.UserNamespacesFailed)
	m.addHistogram("kubelet_containers_per_pod_count",
		"Containers of the pods that were started, without init and ephemeral containers.",
		&t.ContainersPerPod, containersPerPodBounds)
	m.addCounter("kubelet_image_volume_requested_total",
		"Image volumes of containers that were to be created.", t.ImageVolumesRequested)
	m.addCounter("kubelet_image_volume_mounted_succeed_total",
		"Mounts of image volumes that succeeded.", t.ImageVolumesMounted)
	m.addCounter("kubelet_image_volume_mounted_errors_total",
		"Mounts of image volumes that failed.", t.ImageVolumesFailed)
	m.addCounters("kubelet_started_containers_total", "Attempts to start a container.",
		t.ContainersStarted, "container_type")
	m.addCounters("kubelet_started_containers_errors_total",
		"Attempts to start a container that failed, by the step that failed.",
		t.ContainersFailed, "container_type", "code")
	m.addCounters("kubelet_terminated_containers_total", "Runs of containers that have ended, by "+
		"their exit code and reason; other stands for codes above 255 and unusual reasons.",
		t.ContainersTerminated, "container_type", "exit_code", "reason")
	m.addCounters("kubelet_restarted_pods_total",
		"Pods that were removed and started again with the same UID.", t.PodsRestarted, "static")
	m.addCounter("kubelet_orphaned_runtime_pods_total",
		"Pods that were found in the runtime but in no source.", t.Orphans)
	m.addCounters("kubelet_admission_rejections_total", "Pods that were rejected, by the reason.",
		t.Rejected, "reason")
	m.addCounters("kubelet_preemptions",
		"Pods that were terminated to make resources available for a critical pod.",
		t.Preempted, "preemption_signal")
	m.addCounters("kubelet_evictions", "Pods that were evicted, by the signal.",
		t.Evicted, "eviction_signal")
	m.addHistograms("kubelet_eviction_stats_age_seconds", "Age of the observation of a signal for "+
		"which a pod is evicted.", t.EvictionStatsAge, defaultBounds, "eviction_signal")
	m.addCounter("kubelet_lifecycle_handler_http_fallbacks_total",
		"Lifecycle hooks for HTTPS that succeeded by HTTP.", t.HTTPFallbacks)
	m.addCounter("kubelet_sleep_action_terminated_early_total",
		"Sleeps of lifecycle hooks that were ended before their time.", t.SleepsShortened)
	a.addKubeletImageMetrics(m)
	a.addKubeletDurationMetrics(m)
}

// addKubeletImageMetrics adds the kubelet's metrics about what images are used with which
// credentials.
func (a *Agent) addKubeletImageMetrics(m *metricList) {
	t := &a.state.Metrics
	m.addCounters("kubelet_image_manager_ensure_image_requests_total", "Images that containers "+
		"needed, by the pull policy, whether the image was present, and whether it had to be pulled.",
		t.ImageRequests, "pull_policy", "present_locally", "pull_required")
	m.addCounters("kubelet_imagemanager_image_mustpull_checks_total", "Requests for images that were "+
		"present, by whether the pod may use them without a pull with its own credentials.",
		t.ImageAccess, "result")
	if node := &a.state.Images.Node; node.ConfigHash != "" {
		m.addCounters("kubelet_credential_provider_plugin_errors_total",
			"Runs of a plugin that provides credentials for images that failed.", node.Failures,
			"plugin_name")
		m.addHistograms("kubelet_credential_provider_plugin_duration",
			"Duration of the runs of a plugin that provides credentials for images, in seconds.",
			node.Runs, defaultBounds, "plugin_name")
		m.addGauge("kubelet_credential_provider_config_info", "The hash of the configuration of the "+
			"plugins that provide credentials for images; always 1.", 1, "hash", node.ConfigHash)
	}
	records, intents := a.state.Images.Records.FilesOnDisk()
	m.addGauge("kubelet_imagemanager_ondisk_pulledrecords",
		"Files that say with which credentials an image was pulled.", records)
	m.addGauge("kubelet_imagemanager_ondisk_pullintents",
		"Files that say that an image is being pulled, or may have been.", intents)
}

// addKubeletDurationMetrics adds the kubelet's metrics about how long starts and writes took.
func (a *Agent) addKubeletDurationMetrics(m *metricList) {
	t := &a.state.Metrics
	m.addHistogram("kubelet_pod_status_sync_duration_seconds", "Time from a change of a pod's "+
		"status until it was written to the API server.", &t.StatusSync, statusSyncBounds)
	m.addHistogram("kubelet_pod_start_duration_seconds",
		"Time from when the agent first sees a pod to phase Running.", &t.PodStart, podStartBounds)
	m.addHistogram("kubelet_pod_start_total_duration_seconds", "Time from the creation of a pod "+
		"until the API server shows that all its containers run.", &t.PodStartTotal,
		podStartBounds)
	m.addHistogram("kubelet_pod_start_sli_duration_seconds", "Time from the creation of a "+
		"stateless pod until the API server shows that all its containers run, without image "+
		"pulls and init containers.", &t.PodStartSLI, podStartBounds)
	first := world.Metric{Name: "kubelet_first_network_pod_start_sli_duration_seconds",
		Help: "The first duration in kubelet_pod_start_sli_duration_seconds of a pod that does not " +
			"use the node's network; zero before that."}
	if t.FirstNetworkPodStart != nil {
		first.Value = t.FirstNetworkPodStart.Seconds()
	}
	*m = append(*m, first)
	m.addHistogram("kubelet_pod_worker_start_duration_seconds",
		"Time from when the agent first sees a pod to its first operation.", &t.WorkerStart,
		defaultBounds)
	m.addHistograms("kubelet_pod_worker_duration_seconds",
		"Time for which a pod has operations in flight without a break.", t.WorkerDuration,
		defaultBounds, "operation_type")
	a.addKubeletVolumeMetrics(m)
	for _, c := range []struct {
		reason string
		count  uint64
	}{{"age", a.state.ImageGC.RemovedByAge}, {"space", a.state.ImageGC.RemovedBySpace}} {
		m.addCounter("kubelet_image_garbage_collected_total",
			"Images that garbage collection has removed.", c.count, "reason", c.reason)
	}
	m.addHistograms("kubelet_image_pull_duration_seconds",
		"Duration of successful image pulls, by the size of the image.", t.ImagePulls,
		imagePullBounds, "image_size_in_bytes")
}

// addKubeletVolumeMetrics adds the kubelet's metrics about what is done with volumes.
func (a *Agent) addKubeletVolumeMetrics(m *metricList) {
	t, search := &a.state.Metrics, &a.state.CSI.Search
	m.addHistograms("storage_operation_duration_seconds", "Time that it took to set up a volume of a "+
		"pod, or to unmount those of a pod together; of volumes of CSI drivers, of each by itself, also "+
		"to unstage and to expand it.", t.VolumeOperations, volumeOperationBounds, "volume_plugin",
		"operation_name", "status", "migrated")
	m.addHistograms("kubelet_volume_metric_collection_duration_seconds", "Duration of measurements "+
		"of volumes, by what was asked: du for a tree of files, statfs for a file system, block for a "+
		"device, or a CSI driver.", t.VolumesMeasured, defaultBounds, "metric_source")
	m.addCounter("reconstruct_volume_operations_total", "Volumes of CSI drivers in directories of "+
		"pods that were found when the agent started.", search.Found)
	m.addCounter("reconstruct_volume_operations_errors_total", "Volumes of CSI drivers that were "+
		"found when the agent started, and of which no data could be read.", search.Unread)
	m.addCounter("force_cleaned_failed_volume_operations_total", "Attempts to remove the directory "+
		"of a volume of a CSI driver of which no data could be read.", search.Cleanings)
	m.addCounter("force_cleaned_failed_volume_operation_errors_total", "Failed attempts to remove "+
		"the directory of a volume of a CSI driver of which no data could be read.",
		search.FailedCleanings)
	m.addVolumeLabels(t.VolumeLabels)
}

// labelHelp describes the metrics of SELinux labels of volumes.
var labelHelp = map[selinux.Event]string{
	selinux.Admitted: "Volumes that were to be mounted with an SELinux label.",
	selinux.OfContainer: "Uses of volumes by pods with SELinux options of which no label can be " +
		"made.",
	selinux.OfPod: "Uses of volumes by pods whose containers need different SELinux labels.",
	selinux.OfVolume: "Uses of volumes by pods that need another SELinux label than the one with " +
		"which the volume is mounted for another pod.",
}

// addVolumeLabels adds the events about SELinux labels of volumes: gauges, as a kubelet's.
func (m *metricList) addVolumeLabels(counted metrics.Counters) {
	for _, key := range counted.Keys() {
		event, labels, _ := strings.Cut(key, " ")
		names := []string{"access_mode"}
		if strings.Contains(labels, " ") {
			names = []string{"volume_plugin", "access_mode"}
		}
		m.addGauge("volume_manager_selinux_"+event, labelHelp[selinux.Event(event)],
			int(counted[key]), labelPairs(labels, names)...)
	}
}

// addKubeletRelistMetrics adds the kubelet's metrics about relists.
func (a *Agent) addKubeletRelistMetrics(m *metricList) {
	s := &a.state
	m.addHistogram("kubelet_pleg_relist_duration_seconds", "Duration of a relist.",
		&s.Metrics.Relist, defaultBounds)
	m.addHistogram("kubelet_pleg_relist_interval_seconds",
		"Time between the starts of two consecutive relists.", &s.Metrics.RelistInterval,
		defaultBounds)
	if s.EventStream.Enabled {
		m.addCounter("kubelet_evented_pleg_connection_success_count",
			"Streams of container events that were opened.", s.EventStream.OpenedBy(s.Now))
		m.addCounter("kubelet_evented_pleg_connection_error_count",
			"Streams of container events that failed or broke.", s.EventStream.FailedTotal)
	}
	var seen int
	if !s.Relist.AsOf.IsZero() {
		seen = int(s.Node.Wall.Date(s.Relist.AsOf).Unix())
	}
	m.addGauge("kubelet_pleg_last_seen_seconds",
		"Unix time at which the newest successful relist started; zero before the first one.", seen)
}
