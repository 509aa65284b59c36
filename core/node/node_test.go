package node

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	"pgregory.net/rapid"

	"seedlet.dev/core/runtime"
	"seedlet.dev/world"
)

func (r *harness) expect(after time.Duration, want ...string) {
	r.t.Helper()
	if want == nil {
		want = []string{}
	}
	if d := cmp.Diff(want, r.planUntilIdle(after)); d != "" {
		r.t.Error(d)
	}
}

func TestRegistration(t *testing.T) {
	r := newHarness(t, func(c *kubeletconfig.KubeletConfiguration) {
		c.ProviderID = "x://1"
		c.RegisterWithTaints = []v1.Taint{{Key: "k", Effect: v1.TaintEffectNoSchedule}}
	}, Options{Labels: map[string]string{"tier": "edge"}})
	r.expect(0, "GetObject", "CreateObject")
	want := metav1.ObjectMeta{Name: "n1", UID: "uid-1", ResourceVersion: "1",
		Labels: map[string]string{"tier": "edge", "kubernetes.io/hostname": "n1",
			"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
			"beta.kubernetes.io/os": "linux", "beta.kubernetes.io/arch": "amd64"},
		Annotations: map[string]string{attachDetachAnnotation: "true"}}
	if d := cmp.Diff(want, r.stored.ObjectMeta); d != "" {
		t.Error(d)
	}
	if r.stored.Spec.ProviderID != "x://1" || len(r.stored.Spec.Taints) != 1 {
		t.Errorf("%+v", r.stored.Spec)
	}
	s := r.stored.Status
	if d := cmp.Diff([]v1.NodeAddress{{Type: "InternalIP", Address: "192.0.2.1"},
		{Type: "Hostname", Address: "n1"}}, s.Addresses); d != "" {
		t.Error(d)
	}
	if s.NodeInfo.ContainerRuntimeVersion != "containerd://2.1.0" ||
		s.NodeInfo.KubeletVersion != "v1.36.3" || s.DaemonEndpoints.KubeletEndpoint.Port != 10250 {
		t.Errorf("%+v", s)
	}
	if c := r.condition(v1.NodeReady); c.Status != "True" || c.Reason != "KubeletReady" {
		t.Errorf("%+v", c)
	}
}

func TestWithoutRegistrationOnlyStatusIsWritten(t *testing.T) {
	no := false
	r := newHarness(t, func(c *kubeletconfig.KubeletConfiguration) { c.RegisterNode = &no }, Options{})
	r.expect(0, "GetObject")
	r.expect(time.Hour)
	r.write(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "u",
		Labels: map[string]string{"kubernetes.io/hostname": "other"}}})
	r.observe(r.stored)
	r.expect(0, "PatchObjectmetadata", "PatchObjectstatus")
	if got := r.stored.Labels; got["kubernetes.io/hostname"] != "other" ||
		got["kubernetes.io/arch"] != "amd64" || r.stored.Annotations != nil {
		t.Errorf("labels %v", got)
	}
}

// The labels, annotations and status of an existing object are reconciled; fields of others stay.
func TestExistingNodeIsReconciled(t *testing.T) {
	r := newHarness(t, nil, Options{Labels: map[string]string{"tier": "edge",
		"node.kubernetes.io/instance-type": "big"}})
	r.write(&v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "u", Labels: map[string]string{"a": "b",
			"kubernetes.io/hostname": "old", "node.kubernetes.io/instance-type": "small"},
			Annotations: map[string]string{"c": "d", providedIPAnnotation: "192.0.2.9"}},
		Spec: v1.NodeSpec{PodCIDR: "10.1.0.0/24", Unschedulable: true,
			Taints: []v1.Taint{{Key: "theirs", Effect: v1.TaintEffectNoExecute}}},
		Status: v1.NodeStatus{
			Capacity: v1.ResourceList{"example.com/gpu": resource.MustParse("2"),
				"hugepages-1Gi": resource.MustParse("1Gi"), "cpu": resource.MustParse("64")},
			Addresses: []v1.NodeAddress{{Type: "InternalIP", Address: "192.0.2.7"},
				{Type: "InternalIP", Address: "2001:db8::7"}, {Type: "ExternalIP", Address: "::1"}},
			Conditions:       []v1.NodeCondition{{Type: "Theirs", Status: "True"}},
			VolumesInUse:     []v1.UniqueVolumeName{"v"},
			DeclaredFeatures: []string{"SomethingOfAKubelet"},
		},
	})
	r.expect(0, "GetObject", "PatchObjectmetadata", "PatchObjectstatus")
	want := map[string]string{"a": "b", "kubernetes.io/hostname": "n1", "kubernetes.io/os": "linux",
		"kubernetes.io/arch": "amd64", "beta.kubernetes.io/os": "linux",
		"beta.kubernetes.io/arch": "amd64", "node.kubernetes.io/instance-type": "big"}
	if d := cmp.Diff(want, r.stored.Labels); d != "" {
		t.Error("labels: " + d)
	}
	want = map[string]string{"c": "d", attachDetachAnnotation: "true"}
	if d := cmp.Diff(want, r.stored.Annotations); d != "" {
		t.Error("annotations: " + d)
	}
	s, spec := r.stored.Status, r.stored.Spec
	if spec.PodCIDR == "" || !spec.Unschedulable || len(spec.Taints) != 1 ||
		len(s.VolumesInUse) != 1 || r.condition("Theirs").Status != "True" {
		t.Errorf("fields of others changed: %+v", r.stored)
	}
	gpus, huge := s.Capacity["example.com/gpu"], s.Capacity["hugepages-1Gi"]
	if !gpus.IsZero() || !huge.IsZero() || len(s.Capacity) != 5 || len(s.Allocatable) != 5 {
		t.Errorf("capacity %v, allocatable %v", s.Capacity, s.Allocatable)
	}
	if len(s.Addresses) != 2 {
		t.Errorf("addresses %v", s.Addresses)
	}
	if d := cmp.Diff(r.node.Settings.DeclaredFeatures, s.DeclaredFeatures); d != "" {
		t.Error("the features of an earlier agent stay: " + d)
	}
	r.observe(r.change(func(n *v1.Node) {
		n.Status.Capacity["example.com/gpu"] = resource.MustParse("3")
	}))
	r.expect(10*time.Second, "PatchObjectstatus")
	gpus = r.stored.Status.Allocatable["example.com/gpu"]
	if gpus.Value() != 3 {
		t.Errorf("%v gpus, want those of the device that registered later", gpus.Value())
	}
}

// The status is compared every ten seconds, and written if it has changed or is due.
func TestStatusReports(t *testing.T) {
	r := newHarness(t, nil, Options{})
	r.expect(0, "GetObject", "CreateObject")
	first := r.node.StatusReportAt.Sub(t0)
	if first < 150*time.Second || first > 450*time.Second {
		t.Errorf("the first report is due after %s", first)
	}
	r.expect(10 * time.Second)
	r.expect(first - 11*time.Second)
	r.expect(10*time.Second, "PatchObjectstatus")
	if got := r.node.StatusReportAt.Sub(r.now); got != 5*time.Minute {
		t.Errorf("the next report is due after %s", got)
	}
	beat, ready := r.now.Truncate(time.Second), r.condition(v1.NodeReady)
	if !ready.LastHeartbeatTime.Time.Equal(beat) || !ready.LastTransitionTime.Time.Equal(t0) {
		t.Errorf("%+v", ready)
	}
	r.observe(r.change(func(n *v1.Node) { n.Status.Images = make([]v1.ContainerImage, 1) }))
	r.node.Images.Listed = true
	r.expect(time.Second)
	r.expect(9*time.Second, "PatchObjectstatus")
	if r.stored.Status.Images != nil {
		t.Error("images that the runtime does not have are still in the status")
	}
}

// A change of readiness does not wait for the next comparison.
func TestReadinessChangeIsUrgent(t *testing.T) {
	r := newHarness(t, nil, Options{})
	r.env.Runtime = &runtime.Runtime{}
	r.expect(0, "GetObject", "CreateObject")
	c := r.condition(v1.NodeReady)
	want := "[container runtime status check may not have completed yet, network state unknown]"
	if c.Status != "False" || c.Reason != "KubeletNotReady" || c.Message != want {
		t.Errorf("%+v", c)
	}
	r.env.Runtime = &runtime.Runtime{AsOf: t0, ReadyAt: t0,
		Conditions: []runtime.Condition{runtimeReady, networkReady}}
	r.expect(time.Second, "PatchObjectstatus")
	if c := r.condition(v1.NodeReady); c.Status != "True" ||
		!c.LastTransitionTime.Time.Equal(r.now) {
		t.Errorf("%+v", c)
	}
	r.env.Runtime.Conditions = []runtime.Condition{runtimeUnready, networkReady}
	r.env.PLEGProblem = "pleg was last seen active 3m1s ago; threshold is 3m0s"
	r.expect(100 * time.Millisecond) // at most once a second
	if soon := r.wake.Sub(r.node.WrittenAt); soon != urgentIntervalMin {
		t.Errorf("planned again after %s", soon)
	}
	r.expect(900*time.Millisecond, "PatchObjectstatus")
	want = "[container runtime not ready: RuntimeReady=false reason:R message:M, " +
		"PLEG is not healthy: pleg was last seen active 3m1s ago; threshold is 3m0s]"
	if c := r.condition(v1.NodeReady); c.Status != "False" || c.Message != want {
		t.Errorf("%+v", c)
	}
}

// The node controller sets Ready to Unknown when the lease expires. The node corrects that at once.
func TestUnknownReadyIsCorrected(t *testing.T) {
	r := newHarness(t, nil, Options{})
	r.expect(0, "GetObject", "CreateObject")
	r.now = t0.Add(5 * time.Second)
	r.observe(r.change(func(n *v1.Node) {
		n.Status.Conditions[3].Status = v1.ConditionUnknown
	}))
	r.expect(0, "PatchObjectstatus")
	if c := r.condition(v1.NodeReady); c.Status != "True" || !c.LastTransitionTime.Time.Equal(r.now) {
		t.Errorf("%+v", c)
	}
}

// After a restart the Ready condition does not change before readiness is known, and transition
// times stay.
func TestRestartKeepsReadyConditionAndTimes(t *testing.T) {
	r := newHarness(t, nil, Options{})
	r.expect(0, "GetObject", "CreateObject")
	known := r.env.Runtime
	r.now = t0.Add(time.Hour)
	r.restartAgent()
	r.env.Runtime, r.env.Relisted = &runtime.Runtime{}, false
	r.expect(0, "GetObject")
	r.expect(9 * time.Second)
	r.env.Runtime, r.env.Relisted = known, true
	r.expect(0, "PatchObjectstatus")
	for _, c := range r.stored.Status.Conditions {
		if !c.LastTransitionTime.Time.Equal(t0) || !c.LastHeartbeatTime.Time.Equal(r.now) {
			t.Errorf("%+v", c)
		}
	}
	r.restartAgent()
	r.env.Runtime, r.env.Relisted = &runtime.Runtime{}, false
	r.expect(9*time.Second, "GetObject")
	r.expect(time.Second, "PatchObjectstatus")
	if c := r.condition(v1.NodeReady); c.Status != "False" {
		t.Errorf("ready without a status of the runtime: %+v", c)
	}
}

func TestDeletedNodeIsCreatedOnlyAfterRestart(t *testing.T) {
	r := newHarness(t, nil, Options{})
	r.expect(0, "GetObject", "CreateObject")
	r.stored = nil
	r.observe(nil)
	r.expect(0, "GetObject")
	r.expect(time.Hour)
	if r.node.UID() != "" {
		t.Errorf("uid %q of a deleted Node, want none", r.node.UID())
	}
	r.write(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "theirs"}})
	r.observe(r.stored)
	r.expect(0, "PatchObjectmetadata", "PatchObjectstatus")
	r.stored = nil
	r.expect(10*time.Minute, "PatchObjectstatus") // before the watch reports the deletion
	r.expect(time.Minute)
	r.restartAgent()
	r.expect(0, "GetObject", "CreateObject")
}

// An old observation is verified by a read, unless it turns out that the watch lags behind.
func TestOldObservationIsVerified(t *testing.T) {
	r := newHarness(t, nil, Options{})
	r.expect(0, "GetObject", "CreateObject")
	old := r.stored
	r.change(func(n *v1.Node) { n.Labels["a"] = "b" })
	r.observe(r.stored)
	r.observe(old)
	if r.node.Object != r.stored {
		t.Error("an old object has replaced a newer one")
	}
	r.expect(time.Second / 2)
	r.observe(r.stored) // the watch has caught up
	r.expect(time.Second)
	r.observe(old)
	r.expect(time.Second / 2)
	r.observe(old) // the time counts from the first
	r.expect(time.Second/2, "GetObject")
	r.observe(nil) // a deletion is verified
	r.expect(0, "GetObject")
	if r.node.Object != r.stored || !r.node.ObjectKnown {
		t.Error("the object is no longer known")
	}
}

// The answer to a request from before an observation may be older than that.
func TestOldAnswer(t *testing.T) {
	r := newHarness(t, nil, Options{})
	r.expect(0, "GetObject", "CreateObject")
	r.node.ObjectKnown = false
	r.plan(0)
	newer := r.stored.DeepCopy()
	newer.ResourceVersion = "1000"
	r.observe(newer)
	r.complete(nil)
	if r.node.Object != newer {
		t.Errorf("version %s after the watch has reported %s", r.node.Object.ResourceVersion,
			newer.ResourceVersion)
	}
}

// A write that is refused again and again does not hold up an awaited read, and an awaited read
// that fails backs off by itself.
func TestAwaitedReadDespiteRefusedWrites(t *testing.T) {
	r := newHarness(t, nil, Options{})
	r.expect(0, "GetObject", "CreateObject")
	for _, fails := range []bool{false, true} {
		if d := cmp.Diff([]string{"PatchObjectstatus"}, r.plan(10*time.Minute)); d != "" {
			t.Fatal(d)
		}
		r.complete(world.Errorf(world.KindRefused, "", "forbidden"))
		id := r.table.LastID + 1
		r.node.Await(id)
		if d := cmp.Diff([]string{"GetObjectawaited"}, r.plan(0)); d != "" {
			t.Fatal(d)
		}
		if fails {
			r.complete(world.Errorf(world.KindTimeout, "", "no answer"))
			if calls := r.plan(0); len(calls) > 0 || r.wake.After(r.now.Add(retryMax)) {
				t.Fatalf("issued %v after a failure, planned again at %v", calls, r.wake)
			}
			if d := cmp.Diff([]string{"GetObjectawaited"}, r.plan(r.wake.Sub(r.now))); d != "" {
				t.Fatal(d)
			}
		}
		r.complete(nil)
		if !r.node.HasAnswered(id) || r.node.ReadFailures != 0 || r.node.Failures != 1 {
			t.Fatalf("answered %d, %d failures of reads, %d of writes", r.node.Answered,
				r.node.ReadFailures, r.node.Failures)
		}
		if calls := r.plan(0); !fails && len(calls) > 0 {
			t.Fatalf("issued %v within the back-off of the write", calls)
		} else if len(calls) > 0 {
			r.complete(nil)
		}
		r.planUntilIdle(time.Hour)
	}
}

// The answer to a write from before an observation does not verify it.
func TestAnswerOfOldWrite(t *testing.T) {
	r := newHarness(t, nil, Options{})
	r.expect(0, "GetObject", "CreateObject")
	r.plan(10 * time.Minute) // a status is in flight
	r.observe(nil)
	r.complete(nil)
	if r.node.ObjectKnown {
		t.Error("the deletion is not verified")
	}
	r.expect(0, "GetObject")
}

// After the API server was restored from a backup its versions are lower, and the Node may be
// another one.
func TestRestoredServer(t *testing.T) {
	for _, uid := range []types.UID{"uid-1", "uid-2"} {
		r := newHarness(t, nil, Options{})
		r.version = 5_000_000
		r.expect(0, "GetObject", "CreateObject")
		r.version = 3
		r.change(func(n *v1.Node) { n.UID, n.Labels["disk"] = uid, "ssd" })
		r.observe(r.stored)
		r.planUntilIdle(time.Second)
		if r.node.UID() != uid || r.node.Object.Labels["disk"] != "ssd" || r.node.Failures > 0 {
			t.Errorf("%s with labels %v, %d failures", r.node.UID(), r.node.Object.Labels,
				r.node.Failures)
		}
	}
}

func TestRejectedMetadataDoesNotDelayStatus(t *testing.T) {
	r := newHarness(t, nil, Options{})
	r.write(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "u"}})
	r.plan(0)
	r.complete(nil)
	if d := cmp.Diff([]string{"PatchObjectmetadata"}, r.plan(0)); d != "" {
		t.Fatal(d)
	}
	r.complete(world.Errorf(world.KindRefused, "", "forbidden"))
	r.expect(retryFirst, "PatchObjectstatus")
	r.expect(10*time.Second, "PatchObjectmetadata")
	if r.stored.Labels["kubernetes.io/hostname"] != "n1" {
		t.Errorf("labels %v", r.stored.Labels)
	}
}

// Whatever fails and whatever other clients change: without further faults the object becomes
// right, fields of others stay, and the object was created once.
func TestNodeConverges(t *testing.T) {
	kinds := []world.ErrorKind{world.KindConflict, world.KindThrottled, world.KindUnavailable,
		world.KindRefused, world.KindTimeout}
	rapid.Check(t, func(rt *rapid.T) {
		r := newHarness(t, nil, Options{})
		for range 40 {
			wait := rapid.SampledFrom([]time.Duration{0, time.Second, 20 * time.Second}).Draw(rt, "wait")
			r.plan(wait)
			switch rapid.IntRange(0, 6).Draw(rt, "what") {
			case 0:
				if r.stored != nil {
					r.change(func(n *v1.Node) { n.Labels, n.Status.Capacity = nil, nil })
				}
			case 1:
				r.observe(r.stored)
			case 2:
				r.env.Runtime.Conditions[0].Status = rapid.Bool().Draw(rt, "ready")
			default:
				for len(r.issued) > 0 {
					var err *world.Error
					if rapid.Bool().Draw(rt, "fails") {
						err = world.Errorf(rapid.SampledFrom(kinds).Draw(rt, "kind"), "", "injected")
						if rapid.Bool().Draw(rt, "done") {
							r.serve(r.issued[0].Body)
						}
					}
					r.complete(err)
				}
			}
		}
		for len(r.issued) > 0 {
			r.complete(nil)
		}
		for range 3 {
			r.planUntilIdle(20 * time.Second)
			r.observe(r.stored)
		}
		want := v1.ConditionFalse
		if r.env.Runtime.Conditions[0].Status {
			want = v1.ConditionTrue
		}
		if r.created != 1 || r.condition(v1.NodeReady).Status != want ||
			r.stored.Labels["kubernetes.io/os"] != "linux" || len(r.stored.Status.Capacity) != 4 {
			rt.Fatalf("created %d times: %+v", r.created, r.stored)
		}
	})
}

// Only names of other domains than Kubernetes' own are extended resources.
func TestIsExtendedResource(t *testing.T) {
	for name, want := range map[v1.ResourceName]bool{ //ordered: each by itself
		"example.com/gpu": true, "gpu": false, "pods": false, "kubernetes.io/batch-cpu": false,
		"node.kubernetes.io/batch-cpu": false, "requests.example.com/gpu": false,
	} {
		if isExtendedResource(name) != want {
			t.Errorf("%s is an extended resource: %t", name, !want)
		}
	}
}

// A status that was demanded, with or without a change, is demanded again after a failure.
func TestDemandedStatusIsTriedAgain(t *testing.T) {
	r := newHarness(t, nil, Options{})
	r.planUntilIdle(0)
	r.planUntilIdle(time.Minute)
	before := r.version
	r.node.ReportNow()
	r.plan(time.Second)
	r.complete(world.Errorf(world.KindConflict, "", "another version"))
	r.planUntilIdle(retryFirst)
	if r.version == before {
		t.Error("the report was not written after a conflict")
	}
	r.env.Pressure = []v1.NodeConditionType{v1.NodeMemoryPressure}
	r.node.CheckStatusNow()
	r.plan(time.Second)
	r.complete(world.Errorf(world.KindUnavailable, "", "no server"))
	if r.planUntilIdle(retryFirst); r.condition(v1.NodeMemoryPressure).Status != v1.ConditionTrue {
		t.Error("the change was not written after a failure")
	}
}

// labelDrivers has each of some drivers need a label of its name.
func (r *harness) labelDrivers(names ...string) {
	r.env.Metadata = func(node *v1.Node, after string, _ time.Time) (string, map[string]any,
		map[string]any) {
		for _, name := range names {
			if name > after && node.Labels[name] == "" {
				return name, map[string]any{name: "x"}, nil
			}
		}
		return "", nil, nil
	}
}

// Each driver has a patch of its own, after that of the node. One that the API server refuses
// delays neither the others nor the status, and is the driver's at once.
func TestMetadataOfDrivers(t *testing.T) {
	for _, kind := range []world.ErrorKind{world.KindRefused, world.KindTooLarge,
		world.KindInvalid} {
		r := newHarness(t, nil, Options{})
		r.expect(0, "GetObject", "CreateObject")
		drivers, refused := []string{"a", "b", "c"}, ""
		r.env.Metadata = func(node *v1.Node, after string, _ time.Time) (string, map[string]any,
			map[string]any) {
			for _, name := range drivers {
				if name > after && node.Labels[name] == "" && name != refused {
					return name, map[string]any{name: "x"}, nil
				}
			}
			return "", nil, nil
		}
		r.change(func(node *v1.Node) { delete(node.Labels, v1.LabelOSStable) })
		r.observe(r.stored)
		r.node.MetadataCheckAt = time.Time{}
		var calls []string
		for len(calls) < 12 {
			issued := r.plan(time.Second)
			if len(issued) == 0 {
				break
			}
			calls = append(calls, issued...)
			if issued[0] != "PatchObjectmetadata/b" {
				r.complete(nil)
				continue
			}
			err := world.Errorf(kind, "", "no")
			record := r.table.Records[r.issued[0].Op]
			refused = RefusedDriver(record, world.Event{Err: err})
			r.complete(err)
		}
		want := []string{"PatchObjectmetadata", "PatchObjectmetadata/a", "PatchObjectmetadata/b"}
		if d := cmp.Diff(append(want, "PatchObjectmetadata/c"), calls); d != "" {
			t.Errorf("%s: %s", kind, d)
		}
		if refused != "b" || r.stored.Labels["c"] != "x" {
			t.Errorf("%s: refused %q, labels %v", kind, refused, r.stored.Labels)
		}
		delete(r.stored.Labels, "a")
		r.expect(r.node.Settings.CheckPeriod, "PatchObjectmetadata/a")
	}
}

// A client that changes the object all the time delays neither the status nor, once it stops, a
// driver for long.
func TestConflictsOfDrivers(t *testing.T) {
	r := newHarness(t, nil, Options{})
	r.planUntilIdle(0)
	r.planUntilIdle(time.Minute)
	r.labelDrivers("a", "b")
	r.node.CheckDriversNow()
	r.node.ReportNow()
	patches, statuses := 0, 0
	for range 30 {
		for _, call := range r.plan(0) {
			switch {
			case strings.HasPrefix(call, "PatchObjectmetadata/"):
				patches++
				r.change(func(node *v1.Node) { node.Labels["theirs"] = fmt.Sprint(patches) })
			case call == "PatchObjectstatus":
				statuses++
			}
			r.complete(nil)
		}
	}
	if patches != 2 || statuses == 0 || r.node.Failures != 0 || r.node.DriverWrite != nil {
		t.Errorf("%d patches, %d statuses, %d failures, still written: %v", patches, statuses,
			r.node.Failures, r.node.DriverWrite)
	}
	r.planUntilIdle(conflictRetry)
	if r.stored.Labels["a"] != "x" || r.stored.Labels["b"] != "x" {
		t.Errorf("the labels of the drivers were not written again: %v", r.stored.Labels)
	}
}

// A patch of one driver that fails again and again, as by a webhook, delays neither the status nor
// another driver.
func TestFailingMetadataOfDriver(t *testing.T) {
	r := newHarness(t, nil, Options{})
	r.expect(0, "GetObject", "CreateObject")
	r.labelDrivers("a", "b")
	r.node.CheckDriversNow()
	statuses := 0
	for range 300 {
		for _, call := range r.plan(time.Second) {
			var err *world.Error
			switch call {
			case "PatchObjectmetadata/a":
				err = world.Errorf(world.KindInternal, "", "the webhook has failed")
			case "PatchObjectstatus":
				statuses++
			}
			r.complete(err)
		}
		if r.node.CheckStatusNow(); statuses == 0 {
			r.node.ReportNow()
		}
	}
	if r.stored.Labels["b"] != "x" || statuses == 0 {
		t.Errorf("the other driver has %q, and %d statuses were written", r.stored.Labels["b"], statuses)
	}
}
