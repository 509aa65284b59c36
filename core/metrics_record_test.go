package core

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/core/localstorage"
	nodeobject "seedlet.dev/core/node"
	"seedlet.dev/core/pleg"
	"seedlet.dev/core/pod"
	"seedlet.dev/world"
)

// wrongTotals compares the totals, which are updated pod by pod, with the sum over all pods. It is
// called after each step of every test of the agent, and returns the difference.
func (n *fakeNode) wrongTotals() string {
	a, sum := n.agent, pod.Counts{}
	if len(a.podUIDs) > 8 || a.state.PodsLeft {
		return "" // it would take too long, or a pod is still to be counted
	}
	for _, uid := range a.podUIDs {
		sum.Add(a.state.Pods[uid].Counts(), 1)
	}
	if len(a.state.Metrics.Pods) != len(a.podUIDs) {
		return fmt.Sprintf("metrics of %d pods, want %d", len(a.state.Metrics.Pods), len(a.podUIDs))
	}
	if sum != a.state.Metrics.Total {
		return "the totals are wrong (-want +got):\n" + cmp.Diff(sum, a.state.Metrics.Total)
	}
	return ""
}

// metricValues returns the agent's metrics by name and labels; for histograms the counts.
func (n *fakeNode) metricValues() map[string]float64 {
	numbers := map[string]float64{}
	for _, m := range append(n.agent.listMetrics(), n.agent.listProbeMetrics()...) {
		name := m.Name
		for _, l := range m.Labels {
			if l.Name != "pod_uid" {
				name += " " + l.Value
			}
		}
		numbers[name] = m.Value
		if m.Histogram != nil {
			numbers[name] = float64(m.Histogram.Count)
		}
	}
	return numbers
}

func (n *fakeNode) expectMetrics(t *testing.T, when string, want map[string]float64) {
	t.Helper()
	got := n.metricValues()
	for name, v := range want {
		if value, there := got[name]; !there || value != v {
			t.Errorf("%s: %s is %v (%t), want %v", when, name, value, there, v)
		}
	}
}

func TestPodLifeCycleMetrics(t *testing.T) {
	n := bootNode(map[string]string{"web.yaml": web})
	n.advance(5 * time.Second)
	n.expectMetrics(t, "running", map[string]float64{
		"kubelet_node_name n1": 1, "kubelet_running_pods": 1,
		"kubelet_running_containers running": 1, "kubelet_running_containers exited": 1,
		"kubelet_running_containers created": 0, "kubelet_desired_pods true": 1,
		"kubelet_desired_pods ": 0, "kubelet_active_pods true": 1, "kubelet_active_pods ": 0,
		"kubelet_started_pods_total": 1, "kubelet_started_pods_errors_total": 0,
		"kubelet_started_containers_total container":      1,
		"kubelet_started_containers_total init_container": 1,
		"kubelet_pod_start_duration_seconds":              1,
		"kubelet_pod_start_sli_duration_seconds":          0, // only for pods of the API server
		"kubelet_pod_worker_start_duration_seconds":       1,
		"kubelet_pod_worker_duration_seconds create":      1,
		"kubelet_pleg_last_seen_seconds":                  float64(n.agent.state.Relist.AsOf.Unix()),
		"kubelet_image_pull_duration_seconds N/A":         2,
		"seedlet_containers":                              2,
		"kubelet_working_pods sync desired true":          1,
		"kubelet_working_pods sync orphan true":           0,
		"kubelet_containers_per_pod_count":                1,
		"kubelet_cgroup_version":                          2,
		"kubelet_started_user_namespaced_pods_total":      0,
	})
	n.restart()
	n.advance(time.Minute)
	n.expectMetrics(t, "after a restart of the agent", map[string]float64{
		"kubelet_running_pods": 1, "kubelet_running_containers running": 1,
		"kubelet_started_pods_total": 0, "kubelet_pod_start_duration_seconds": 0,
		"kubelet_pod_worker_start_duration_seconds": 0,
	})
	relists := n.metricValues()["seedlet_relists_total"]
	n.expectMetrics(t, "after a minute", map[string]float64{
		"kubelet_pleg_relist_duration_seconds": relists,
		"kubelet_pleg_relist_interval_seconds": relists - 1,
	})
	n.manifests = nil
	n.advance(time.Minute)
	n.expectMetrics(t, "after its end", map[string]float64{
		"kubelet_running_pods": 0, "kubelet_running_containers running": 0,
		"kubelet_running_containers exited": 0, "kubelet_desired_pods true": 0,
		"kubelet_active_pods true": 0, "kubelet_pod_worker_duration_seconds kill": 1,
		"kubelet_pod_worker_duration_seconds terminated": 1,
	})
}

// A pod of the API server has started when the server shows that, and its start counts from its
// creation. Image pulls and init containers do not count for the SLI.
func TestStartDurationCountsFromCreation(t *testing.T) {
	p := apiPodNamed("web", "u1")
	p.CreationTimestamp = metav1.NewTime(time.Date(2025, 12, 31, 23, 59, 50, 0, time.UTC))
	n := bootWithPods(nil, p)
	n.expectMetrics(t, "started", map[string]float64{
		"kubelet_pod_start_sli_duration_seconds": 1, "kubelet_pod_start_total_duration_seconds": 1,
		"kubelet_desired_pods ": 1, "kubelet_active_pods ": 1, "kubelet_desired_pods true": 0,
	})
	if took := n.agent.state.Metrics.PodStartTotal.Sum; took < 10*time.Second ||
		took > 15*time.Second {
		t.Errorf("took %v, want the time since its creation", took)
	}
	n.restart()
	n.advance(time.Minute)
	n.expectMetrics(t, "after a restart of the agent", map[string]float64{
		"kubelet_pod_start_sli_duration_seconds": 0, "kubelet_pod_start_total_duration_seconds": 0,
	})
}

func TestStartSLIExcludesPullsAndInitContainers(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	p := apiPodNamed("web", "u1")
	p.CreationTimestamp = metav1.NewTime(now)
	p.Spec.InitContainers = []v1.Container{{Name: "setup"}}
	a := New(Options{Config: defaults(), NodeName: "n1", RootDir: "/r"})
	known := pod.New(p, nil, true, true, now)
	known.Containers = []pod.Container{{Name: "setup", State: pod.Exited, Inspected: pod.Exited,
		StartedAt: now.Add(time.Second), FinishedAt: now.Add(6 * time.Second)}}
	a.addPod(known)
	counted := a.state.Metrics.forPod("u1")
	counted.Starting, counted.PullTime = true, 3*time.Second
	seen := p.DeepCopy()
	seen.Status = v1.PodStatus{Phase: v1.PodRunning, ContainerStatuses: []v1.ContainerStatus{{}}}
	a.recordPodStart(seen, now.Add(10*time.Second))
	if !counted.Starting {
		t.Fatal("the pod has started before its container has")
	}
	seen.Status.ContainerStatuses[0].State.Running = &v1.ContainerStateRunning{
		StartedAt: metav1.NewTime(now)}
	a.recordPodStart(seen, now.Add(10*time.Second))
	a.recordPodStart(seen, now.Add(20*time.Second)) // only once
	total, sli := a.state.Metrics.PodStartTotal.Sum, a.state.Metrics.PodStartSLI.Sum
	if total != 10*time.Second || sli != 2*time.Second {
		t.Errorf("took %v, for the SLI %v; want 10s and 2s", total, sli)
	}
}

// A container or sandbox that cannot be started counts as an attempt and as an error, by type and
// reason.
func TestFailureMetrics(t *testing.T) {
	n := newNode(map[string]string{"web.yaml": web})
	n.failingCalls = map[string]bool{"CreateContainer": true}
	n.restart()
	n.advance(time.Minute)
	got := n.metricValues()
	failed := got["kubelet_started_containers_errors_total init_container CreateContainerError"]
	if failed < 2 || got["kubelet_started_containers_total init_container"] != failed {
		t.Errorf("%v failed, of %v", failed, got["kubelet_started_containers_total init_container"])
	}
	n = newNode(map[string]string{"web.yaml": web})
	n.failingCalls = map[string]bool{"RunPodSandbox": true, "PullImage": true}
	n.restart()
	n.advance(time.Minute)
	got = n.metricValues()
	if got["kubelet_started_pods_errors_total"] < 2 ||
		got["kubelet_started_pods_total"] != got["kubelet_started_pods_errors_total"] {
		t.Errorf("sandboxes: %v failed, of %v", got["kubelet_started_pods_errors_total"],
			got["kubelet_started_pods_total"])
	}
}

const podWithProbes = `{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {
  containers: [{name: web, image: i, readinessProbe: {exec: {command: [a]}, periodSeconds: 10},
  livenessProbe: {exec: {command: [b]}, periodSeconds: 10, failureThreshold: 1000}}]}}`

func TestProbeMetrics(t *testing.T) {
	n := bootNode(map[string]string{"web.yaml": podWithProbes})
	n.advance(65 * time.Second)
	n.expectMetrics(t, "after a minute", map[string]float64{
		"prober_probe_total Readiness successful web web-n1 default": 7,
		"prober_probe_total Liveness failed web web-n1 default":      7,
		"prober_probe_duration_seconds Readiness web web-n1 default": 7,
		"prober_probe_duration_seconds Liveness web web-n1 default":  0,
	})
	n.manifests = nil
	n.advance(2 * time.Minute)
	if left := n.agent.listProbeMetrics(); len(left) > 0 {
		t.Errorf("metrics of a removed pod: %v", left)
	}
}

// Two pods of one full name have distinct labels where the UID is a label; elsewhere only one of
// them has metrics. A name and its labels stand for one number.
func TestMetricLabelsAreUnique(t *testing.T) {
	a := New(Options{Config: defaults(), NodeName: "n1", RootDir: "/r"})
	for _, uid := range []string{"u1", "u2"} {
		a.addPod(pod.New(apiPodNamed("web", uid), nil, true, true, time.Time{}))
		a.state.Metrics.forPod(uid).Probes = map[string]*ProbeMetrics{"c Liveness": {Successful: 1}}
	}
	seen := map[string]bool{}
	for _, m := range a.listProbeMetrics() {
		key := fmt.Sprint(m.Name, m.Labels)
		if seen[key] {
			t.Errorf("two metrics of the same name and labels: %s", key)
		}
		seen[key] = true
	}
	if len(seen) != 3 {
		t.Errorf("%d metrics: %v", len(seen), seen)
	}
}

func TestRejectionMetricsHaveAClosedList(t *testing.T) {
	n := bootNode(nil)
	for _, reason := range []string{"NodeAffinity", "OutOfcpu", "OutOfexample.com/foo",
		"OutOfexample.com/bar"} {
		n.agent.recordRejection(reason)
	}
	n.expectMetrics(t, "rejected", map[string]float64{
		"kubelet_admission_rejections_total NodeAffinity":           1,
		"kubelet_admission_rejections_total OutOfcpu":               1,
		"kubelet_admission_rejections_total OutOfExtendedResources": 2,
	})
}

func TestImageSizeClass(t *testing.T) {
	for bytes, want := range map[int64]string{0: "N/A", 1: "0-10MB", 10 << 20: "0-10MB",
		10<<20 + 1: "10MB-100MB", 2 << 30: "1GB-5GB", 101 << 30: "GT100GB"} {
		if got := imageSizeClass(bytes); got != want {
			t.Errorf("%d bytes are %q, want %q", bytes, got, want)
		}
	}
}

// All metrics of one name have the same help and the same names of labels.
func TestMetricsAreWellFormed(t *testing.T) {
	n := bootNode(map[string]string{"web.yaml": podWithProbes})
	n.advance(time.Minute)
	labels, helps := map[string]string{}, map[string]string{}
	for _, m := range append(n.agent.listMetrics(), n.agent.listProbeMetrics()...) {
		names := ""
		for _, l := range m.Labels {
			names += l.Name + " "
		}
		if was, seen := labels[m.Name]; seen && was != names {
			t.Errorf("%s has labels %q and %q", m.Name, was, names)
		}
		if was, seen := helps[m.Name]; seen && was != m.Help {
			t.Errorf("%s has two help texts: %q and %q", m.Name, was, m.Help)
		}
		labels[m.Name], helps[m.Name] = names, m.Help
		if !strings.HasSuffix(m.Help, ".") {
			t.Errorf("%s: the help %q is not a sentence", m.Name, m.Help)
		}
	}
}

// A manifest that is removed and added again before its pod has ended leads to a pod with the same
// UID.
func TestRestartedPodMetric(t *testing.T) {
	n := bootNode(map[string]string{"web.yaml": web})
	n.advance(5 * time.Second)
	n.stopsFail, n.manifests = true, nil
	n.advance(time.Minute)
	n.manifests = map[string]string{"web.yaml": web}
	n.advance(time.Minute)
	n.expectMetrics(t, "not yet", map[string]float64{"kubelet_running_pods": 1})
	n.stopsFail = false
	n.advance(2 * time.Minute)
	n.expectMetrics(t, "made again", map[string]float64{
		"kubelet_restarted_pods_total true": 1, "kubelet_started_pods_total": 2,
		"kubelet_running_pods": 1, "kubelet_desired_pods true": 1,
	})
}

// A pod that only the runtime has counts as orphaned, once.
func TestOrphanMetric(t *testing.T) {
	n := bootNode(map[string]string{"web.yaml": web})
	n.advance(5 * time.Second)
	n.manifests = nil
	n.restart()
	n.advance(time.Minute)
	n.expectMetrics(t, "ended", map[string]float64{
		"kubelet_orphaned_runtime_pods_total": 1, "kubelet_running_pods": 0,
		"kubelet_started_pods_total": 0,
	})
}

func TestPreemptionMetric(t *testing.T) {
	n := bootWithPods(nil, withRequests(apiPodNamed("small", "u1"), "1500m", 0))
	n.apiServer.put(withRequests(apiPodNamed("critical", "u2"), "1500m", 2_000_000_000))
	n.advance(time.Minute)
	n.expectMetrics(t, "preempted", map[string]float64{"kubelet_preemptions cpu": 1})
}

func TestEvictionMetric(t *testing.T) {
	limited, limit := apiPodNamed("greedy", "u1"), resource.MustParse("1Mi")
	limited.Spec.Volumes = []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{
		EmptyDir: &v1.EmptyDirVolumeSource{SizeLimit: &limit}}}}
	n := bootWithPods(nil, limited)
	n.agent.state.Pods["u1"].Storage.Usage.Exceeded = localstorage.Limit{
		Kind: localstorage.EmptyDirLimit, Name: "data"}
	n.agent.enqueuePod("u1")
	n.advance(time.Minute)
	n.expectMetrics(t, "evicted", map[string]float64{"kubelet_evictions emptydirfs.limit": 1})
	if got := n.apiServer.objects["default/greedy"].Status.Reason; got != "Evicted" {
		t.Errorf("the pod: %q", got)
	}
}

// The metrics are part of the state: a restored agent continues them.
func TestMetricsSurviveARestore(t *testing.T) {
	n := bootNode(map[string]string{"web.yaml": podWithProbes})
	n.advance(time.Minute)
	data, err := n.agent.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	before := n.metricValues()
	if n.agent, err = Restore(data); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, n.metricValues()); diff != "" {
		t.Errorf("-before +after:\n%s", diff)
	}
}

// A start of a pod with a user namespace fails once, however often its containers fail in it.
func TestUserNamespaceMetrics(t *testing.T) {
	inNamespace := strings.Replace(podNamed("a"), "spec: {", "spec: {hostUsers: false, ", 1)
	for _, c := range []struct {
		failing string
		want    map[string]float64
	}{
		{"", map[string]float64{"kubelet_started_user_namespaced_pods_total": 1,
			"kubelet_started_user_namespaced_pods_errors_total": 0}},
		{"CreateContainer", map[string]float64{"kubelet_started_user_namespaced_pods_total": 1,
			"kubelet_started_user_namespaced_pods_errors_total": 1}},
	} {
		n := newNode(map[string]string{"a": inNamespace})
		n.failingCalls = map[string]bool{c.failing: true}
		n.status.RuntimeHandlers = []*runtimeapi.RuntimeHandler{{
			Features: &runtimeapi.RuntimeHandlerFeatures{UserNamespaces: true}}}
		n.restart()
		n.advance(2 * time.Minute)
		n.expectMetrics(t, c.failing, c.want)
	}
}

// Mounts of image volumes count by the runtime's error. A container that fails for another reason
// says nothing about them.
func TestImageVolumeMetrics(t *testing.T) {
	const image = `{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {restartPolicy: Never,
	  volumes: [{name: data, image: {reference: v}}, {name: unused, image: {reference: v}}],
	  containers: [{name: a, image: i, volumeMounts: [
	    {name: data, mountPath: /a}, {name: data, mountPath: /b}]}]}}`
	for _, c := range []struct {
		err                        string
		requested, mounted, failed float64
	}{
		{"", 1, 2, 0}, {"broken", 1, 0, 0}, {"ImageVolumeMountFailed: no such path", 1, 0, 2},
	} {
		failures, n := 0, newNode(map[string]string{"a": image})
		n.answer = func(effect any) any {
			_, isCreate := effect.(*runtimeapi.CreateContainerRequest)
			if !isCreate || c.err == "" || failures > 0 {
				return nil
			}
			failures++
			return world.Errorf(world.KindInternal, "CreateContainer", "%s", c.err)
		}
		n.restart()
		for range 100 { // up to the first creation
			if n.metricValues()["kubelet_image_volume_requested_total"] > 0 {
				break
			}
			n.advance(100 * time.Millisecond)
		}
		n.expectMetrics(t, c.err, map[string]float64{
			"kubelet_image_volume_requested_total":       c.requested,
			"kubelet_image_volume_mounted_succeed_total": c.mounted,
			"kubelet_image_volume_mounted_errors_total":  c.failed,
		})
	}
}

// The times of the registration are those of a Node that this run of the agent has created.
func TestNodeStartupMetrics(t *testing.T) {
	const before, during, after = "kubelet_node_startup_pre_registration_duration_seconds",
		"kubelet_node_startup_registration_duration_seconds",
		"kubelet_node_startup_post_registration_duration_seconds"
	const preKubelet, total = "kubelet_node_startup_pre_kubelet_duration_seconds",
		"kubelet_node_startup_duration_seconds"
	n := newNode(nil)
	n.uptime = 100 * time.Second
	n.apiServer, n.status = newServer(), runtimeStatus(false)
	n.apiServer.silentWatch, n.apiServer.nodeWrites.nodeCallsTimeOut = world.ResourceNodes, true
	exists := false
	n.answer = func(effect any) any {
		on, ok := effect.(world.ObjectOperation)
		if !ok || exists || on.TargetResource() != world.ResourceNodes {
			return nil
		}
		create, ok := effect.(*world.CreateObject)
		if !ok {
			return world.Errorf(world.KindNotFound, "GetObject", "no node")
		}
		if n.apiServer.nodeWrites.nodeCallsTimeOut {
			return world.Errorf(world.KindTimeout, "CreateObject", "no answer")
		}
		exists, n.apiServer.node = true, create.Object.Node.DeepCopy()
		n.apiServer.node.UID = "node-uid"
		return &world.ObjectRead{Object: world.Object{Node: n.apiServer.node}}
	}
	n.restart()
	n.advance(30 * time.Second)
	n.expectMetrics(t, "without an answer", map[string]float64{before: 0, during: 0, after: 0,
		preKubelet: 0, total: 0})
	n.apiServer.nodeWrites.nodeCallsTimeOut = false
	n.advance(30 * time.Second)
	n.expectMetrics(t, "not ready", map[string]float64{after: 0, preKubelet: 100, total: 0})
	n.status = runtimeStatus(true)
	n.advance(30 * time.Second)
	startup, booted := n.agent.state.NodeObject.Startup, n.agent.state.BootedAt
	got := n.metricValues()
	if got[before] != startup.AttemptedAt.Sub(booted).Seconds() || got[before] > 10 ||
		got[during] < 20 || got[during] > 45 || got[after] < 10 || got[after] > 60 {
		t.Errorf("%v before, %v during, %v after: %+v", got[before], got[during], got[after], startup)
	}
	if sum := 100 + got[before] + got[during] + got[after]; math.Abs(got[total]-sum) > 1e-6 {
		t.Errorf("%v in all, want %v", got[total], sum)
	}
	for _, ready := range []bool{false, true} {
		n.status = runtimeStatus(ready)
		n.advance(2 * time.Minute)
	}
	n.expectMetrics(t, "ready again", map[string]float64{after: got[after], total: got[total]})
	n.restart()
	n.advance(30 * time.Second)
	n.expectMetrics(t, "the Node existed", map[string]float64{before: 0, during: 0, after: 0,
		preKubelet: 0, total: 0})
}

// Without the time of the machine's boot, nothing is said about it.
func TestNodeStartupMetricsWithoutABootTime(t *testing.T) {
	n := newNode(nil)
	n.restart()
	start := n.agent.state.BootedAt
	n.agent.state.NodeObject.Startup = nodeobject.Startup{AttemptedAt: start,
		RegisteredAt: start.Add(time.Second), ReadyAt: start.Add(time.Minute)}
	n.expectMetrics(t, "no boot time", map[string]float64{
		"kubelet_node_startup_pre_kubelet_duration_seconds":       0,
		"kubelet_node_startup_duration_seconds":                   0,
		"kubelet_node_startup_post_registration_duration_seconds": 59,
	})
}

// Streams of container events count only with the feature gate EventedPLEG, as with the kubelet.
func TestEventStreamMetrics(t *testing.T) {
	const opened, failed = "kubelet_evented_pleg_connection_success_count",
		"kubelet_evented_pleg_connection_error_count"
	n := bootNode(nil)
	if _, there := n.metricValues()[opened]; there {
		t.Error("the metric is served without the feature gate")
	}
	n.agent.state.EventStream = pleg.Stream{Enabled: true, OpenedTotal: 3, FailedTotal: 2}
	n.expectMetrics(t, "with the feature gate", map[string]float64{opened: 3, failed: 2})
	n.agent.state.EventStream = pleg.Stream{Enabled: true, Op: 1 << 40, OpenedAt: n.now}
	n.expectMetrics(t, "requested", map[string]float64{opened: 0})
	n.event(world.Event{Body: &runtimeapi.ContainerEventResponse{ContainerId: "c1"}})
	n.expectMetrics(t, "after an event", map[string]float64{opened: 1, failed: 0})
}
