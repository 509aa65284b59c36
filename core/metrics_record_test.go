package core

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"seedlet.dev/core/pod"
)

// wrongTotals compares the totals, which are updated pod by pod, with the sum over all pods. It is
// called after each step of every test of the agent, and returns the difference.
func (n *fakeNode) wrongTotals() string {
	a, sum := n.agent, pod.Counts{}
	if len(a.podUIDs) > 8 {
		return "" // it would take too long
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
	known := pod.New(p, true, true, now)
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
		a.addPod(pod.New(apiPodNamed("web", uid), true, true, time.Time{}))
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
	n.agent.state.Pods["u1"].Storage.Volumes.OverLimit = "data"
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
