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

// miscounted is what the totals say that the pods do not, after each step of every test of the
// agent: they are kept up pod by pod, so that nobody has to walk over all of them.
func (n *node) miscounted() string {
	a, sum := n.agent, pod.Census{}
	if len(a.uids) > 8 {
		return "" // it would take too long
	}
	for _, uid := range a.uids {
		sum.Add(a.state.Pods[uid].Census(), 1)
	}
	if len(a.state.Tally.Pods) != len(a.uids) {
		return fmt.Sprintf("%d pods are counted, there are %d", len(a.state.Tally.Pods), len(a.uids))
	}
	if sum != a.state.Tally.Total {
		return "the totals are wrong (-is +counted):\n" + cmp.Diff(sum, a.state.Tally.Total)
	}
	return ""
}

// numbers are the agent's metrics by name and labels; of histograms the counts.
func (n *node) numbers() map[string]float64 {
	numbers := map[string]float64{}
	for _, m := range append(n.agent.metrics(), n.agent.probeMetrics()...) {
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

func (n *node) expectNumbers(t *testing.T, when string, want map[string]float64) {
	t.Helper()
	got := n.numbers()
	for name, v := range want {
		if is, there := got[name]; !there || is != v {
			t.Errorf("%s: %s is %v (%t), want %v", when, name, is, there, v)
		}
	}
}

func TestALifeIsCounted(t *testing.T) {
	n := boot(map[string]string{"web.yaml": web})
	n.pass(5 * time.Second)
	n.expectNumbers(t, "running", map[string]float64{
		"kubelet_node_name n1": 1, "kubelet_running_pods": 1,
		"kubelet_running_containers running": 1, "kubelet_running_containers exited": 1,
		"kubelet_running_containers created": 0, "kubelet_desired_pods true": 1,
		"kubelet_desired_pods ": 0, "kubelet_active_pods true": 1, "kubelet_active_pods ": 0,
		"kubelet_started_pods_total": 1, "kubelet_started_pods_errors_total": 0,
		"kubelet_started_containers_total container":      1,
		"kubelet_started_containers_total init_container": 1,
		"kubelet_pod_start_duration_seconds":              1,
		"kubelet_pod_start_sli_duration_seconds":          0, // of pods of the API server
		"kubelet_pod_worker_start_duration_seconds":       1,
		"kubelet_pod_worker_duration_seconds create":      1,
		"kubelet_pleg_last_seen_seconds":                  float64(n.agent.state.Relist.AsOf.Unix()),
		"kubelet_image_pull_duration_seconds N/A":         2,
		"seedlet_containers":                              2,
	})
	n.restart()
	n.pass(time.Minute)
	n.expectNumbers(t, "after a restart of the agent", map[string]float64{
		"kubelet_running_pods": 1, "kubelet_running_containers running": 1,
		"kubelet_started_pods_total": 0, "kubelet_pod_start_duration_seconds": 0,
		"kubelet_pod_worker_start_duration_seconds": 0,
	})
	relists := n.numbers()["seedlet_relists_total"]
	n.expectNumbers(t, "after a minute", map[string]float64{
		"kubelet_pleg_relist_duration_seconds": relists,
		"kubelet_pleg_relist_interval_seconds": relists - 1,
	})
	n.manifests = nil
	n.pass(time.Minute)
	n.expectNumbers(t, "after its end", map[string]float64{
		"kubelet_running_pods": 0, "kubelet_running_containers running": 0,
		"kubelet_running_containers exited": 0, "kubelet_desired_pods true": 0,
		"kubelet_active_pods true": 0, "kubelet_pod_worker_duration_seconds kill": 1,
		"kubelet_pod_worker_duration_seconds terminated": 1,
	})
}

// A pod of the API server has started when its status is seen there, and counts from its creation.
// What was spent with its images and init containers is not the node's.
func TestStartIsCountedFromTheCreation(t *testing.T) {
	p := boundPodOf("web", "u1")
	p.CreationTimestamp = metav1.NewTime(time.Date(2025, 12, 31, 23, 59, 50, 0, time.UTC))
	n := joined(nil, p)
	n.expectNumbers(t, "started", map[string]float64{
		"kubelet_pod_start_sli_duration_seconds": 1, "kubelet_pod_start_total_duration_seconds": 1,
		"kubelet_desired_pods ": 1, "kubelet_active_pods ": 1, "kubelet_desired_pods true": 0,
	})
	if took := n.agent.state.Tally.PodStartTotal.Sum; took < 10*time.Second ||
		took > 15*time.Second {
		t.Errorf("took %v, want what has passed since its creation", took)
	}
	n.restart()
	n.pass(time.Minute)
	n.expectNumbers(t, "after a restart of the agent", map[string]float64{
		"kubelet_pod_start_sli_duration_seconds": 0, "kubelet_pod_start_total_duration_seconds": 0,
	})
}

func TestTimesThatAreNotTheNodes(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	p := boundPodOf("web", "u1")
	p.CreationTimestamp = metav1.NewTime(now)
	p.Spec.InitContainers = []v1.Container{{Name: "setup"}}
	a := New(Options{Config: defaults(), NodeName: "n1", RootDir: "/r"})
	known := pod.New(p, true, true, now)
	known.Containers = []pod.Container{{Name: "setup", State: pod.Exited, Inspected: pod.Exited,
		StartedAt: now.Add(time.Second), FinishedAt: now.Add(6 * time.Second)}}
	a.addPod(known)
	tally := a.state.Tally.of("u1")
	tally.Starting, tally.Pulled = true, 3*time.Second
	seen := p.DeepCopy()
	seen.Status = v1.PodStatus{Phase: v1.PodRunning, ContainerStatuses: []v1.ContainerStatus{{}}}
	a.countWatched(seen, now.Add(10*time.Second))
	if !tally.Starting {
		t.Fatal("has started before its container has")
	}
	seen.Status.ContainerStatuses[0].State.Running = &v1.ContainerStateRunning{
		StartedAt: metav1.NewTime(now)}
	a.countWatched(seen, now.Add(10*time.Second))
	a.countWatched(seen, now.Add(20*time.Second)) // only once
	total, sli := a.state.Tally.PodStartTotal.Sum, a.state.Tally.PodStartSLI.Sum
	if total != 10*time.Second || sli != 2*time.Second {
		t.Errorf("took %v, of the node %v; want 10s and 2s", total, sli)
	}
}

// Whatever cannot be started is an attempt and an error, by its type and by what went wrong.
func TestFailuresAreCounted(t *testing.T) {
	n := newNode(map[string]string{"web.yaml": web})
	n.broken = map[string]bool{"CreateContainer": true}
	n.restart()
	n.pass(time.Minute)
	got := n.numbers()
	failed := got["kubelet_started_containers_errors_total init_container CreateContainerError"]
	if failed < 2 || got["kubelet_started_containers_total init_container"] != failed {
		t.Errorf("%v failed, of %v", failed, got["kubelet_started_containers_total init_container"])
	}
	n = newNode(map[string]string{"web.yaml": web})
	n.broken = map[string]bool{"RunPodSandbox": true, "PullImage": true}
	n.restart()
	n.pass(time.Minute)
	got = n.numbers()
	if got["kubelet_started_pods_errors_total"] < 2 ||
		got["kubelet_started_pods_total"] != got["kubelet_started_pods_errors_total"] {
		t.Errorf("sandboxes: %v failed, of %v", got["kubelet_started_pods_errors_total"],
			got["kubelet_started_pods_total"])
	}
}

const probed = `{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {
  containers: [{name: web, image: i, readinessProbe: {exec: {command: [a]}, periodSeconds: 10},
  livenessProbe: {exec: {command: [b]}, periodSeconds: 10, failureThreshold: 1000}}]}}`

func TestProbesAreCounted(t *testing.T) {
	n := boot(map[string]string{"web.yaml": probed})
	n.pass(65 * time.Second)
	n.expectNumbers(t, "after a minute", map[string]float64{
		"prober_probe_total Readiness successful web web-n1 default": 7,
		"prober_probe_total Liveness failed web web-n1 default":      7,
		"prober_probe_duration_seconds Readiness web web-n1 default": 7,
		"prober_probe_duration_seconds Liveness web web-n1 default":  0,
	})
	n.manifests = nil
	n.pass(2 * time.Minute)
	if left := n.agent.probeMetrics(); len(left) > 0 {
		t.Errorf("left of a pod that has gone: %v", left)
	}
}

// Two pods of one full name are told apart where the UID is told, and one of them is told of
// where it is not: a name and labels stand for one number.
func TestNoTwoMetricsOfTheSameLabels(t *testing.T) {
	a := New(Options{Config: defaults(), NodeName: "n1", RootDir: "/r"})
	for _, uid := range []string{"u1", "u2"} {
		a.addPod(pod.New(boundPodOf("web", uid), true, true, time.Time{}))
		a.state.Tally.of(uid).Probes = map[string]*ProbeTally{"c Liveness": {Good: 1}}
	}
	seen := map[string]bool{}
	for _, m := range a.probeMetrics() {
		key := fmt.Sprint(m.Name, m.Labels)
		if seen[key] {
			t.Errorf("twice: %s", key)
		}
		seen[key] = true
	}
	if len(seen) != 3 {
		t.Errorf("%d metrics: %v", len(seen), seen)
	}
}

func TestRejectionsAreCountedByAClosedList(t *testing.T) {
	n := boot(nil)
	for _, reason := range []string{"NodeAffinity", "OutOfcpu", "OutOfexample.com/foo",
		"OutOfexample.com/bar"} {
		n.agent.countRejected(reason)
	}
	n.expectNumbers(t, "rejected", map[string]float64{
		"kubelet_admission_rejections_total NodeAffinity":           1,
		"kubelet_admission_rejections_total OutOfcpu":               1,
		"kubelet_admission_rejections_total OutOfExtendedResources": 2,
	})
}

func TestImageSizes(t *testing.T) {
	for bytes, want := range map[int64]string{0: "N/A", 1: "0-10MB", 10 << 20: "0-10MB",
		10<<20 + 1: "10MB-100MB", 2 << 30: "1GB-5GB", 101 << 30: "GT100GB"} {
		if got := sizeOf(bytes); got != want {
			t.Errorf("%d bytes are %q, want %q", bytes, got, want)
		}
	}
}

// Names are told with their unit last, counters as totals; labels of one name are the same ones.
func TestMetricsAreWellFormed(t *testing.T) {
	n := boot(map[string]string{"web.yaml": probed})
	n.pass(time.Minute)
	labels, helps := map[string]string{}, map[string]string{}
	for _, m := range append(n.agent.metrics(), n.agent.probeMetrics()...) {
		names := ""
		for _, l := range m.Labels {
			names += l.Name + " "
		}
		if was, seen := labels[m.Name]; seen && was != names {
			t.Errorf("%s has labels %q and %q", m.Name, was, names)
		}
		if was, seen := helps[m.Name]; seen && was != m.Help {
			t.Errorf("%s has two helps: %q and %q", m.Name, was, m.Help)
		}
		labels[m.Name], helps[m.Name] = names, m.Help
		if !strings.HasSuffix(m.Help, ".") {
			t.Errorf("%s: %q is no sentence", m.Name, m.Help)
		}
	}
}

// A manifest that goes and comes back before its pod has ended gives a pod of the same UID.
func TestAPodThatIsMadeAgainIsCounted(t *testing.T) {
	n := boot(map[string]string{"web.yaml": web})
	n.pass(5 * time.Second)
	n.stuck, n.manifests = true, nil
	n.pass(time.Minute)
	n.manifests = map[string]string{"web.yaml": web}
	n.pass(time.Minute)
	n.expectNumbers(t, "not yet", map[string]float64{"kubelet_running_pods": 1})
	n.stuck = false
	n.pass(2 * time.Minute)
	n.expectNumbers(t, "made again", map[string]float64{
		"kubelet_restarted_pods_total true": 1, "kubelet_started_pods_total": 2,
		"kubelet_running_pods": 1, "kubelet_desired_pods true": 1,
	})
}

// What another agent has left counts as such, until it has gone.
func TestAnOrphanIsCounted(t *testing.T) {
	n := boot(map[string]string{"web.yaml": web})
	n.pass(5 * time.Second)
	n.manifests = nil
	n.restart()
	n.pass(time.Minute)
	n.expectNumbers(t, "ended", map[string]float64{
		"kubelet_orphaned_runtime_pods_total": 1, "kubelet_running_pods": 0,
		"kubelet_started_pods_total": 0,
	})
}

func TestPreemptionIsCounted(t *testing.T) {
	n := joined(nil, asking(boundPodOf("small", "u1"), "1500m", 0))
	n.server.put(asking(boundPodOf("critical", "u2"), "1500m", 2_000_000_000))
	n.pass(time.Minute)
	n.expectNumbers(t, "preempted", map[string]float64{"kubelet_preemptions cpu": 1})
}

func TestEvictionIsCounted(t *testing.T) {
	limited, limit := boundPodOf("greedy", "u1"), resource.MustParse("1Mi")
	limited.Spec.Volumes = []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{
		EmptyDir: &v1.EmptyDirVolumeSource{SizeLimit: &limit}}}}
	n := joined(nil, limited)
	n.agent.state.Pods["u1"].Storage.Set.Over = "data"
	n.agent.touchPod("u1")
	n.pass(time.Minute)
	n.expectNumbers(t, "evicted", map[string]float64{"kubelet_evictions emptydirfs.limit": 1})
	if got := n.server.objects["default/greedy"].Status.Reason; got != "Evicted" {
		t.Errorf("the pod: %q", got)
	}
}

// The numbers are part of the state: an agent that goes on elsewhere counts on.
func TestNumbersOutliveARestore(t *testing.T) {
	n := boot(map[string]string{"web.yaml": probed})
	n.pass(time.Minute)
	data, err := n.agent.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	before := n.numbers()
	if n.agent, err = Restore(data); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, n.numbers()); diff != "" {
		t.Errorf("-before +after:\n%s", diff)
	}
}
