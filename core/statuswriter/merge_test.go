package statuswriter

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"seedlet.dev/core/op"
)

var t0 = time.Date(2026, 1, 1, 0, 0, 0, 5, time.UTC)

func ready(status v1.ConditionStatus, since time.Time) v1.PodCondition {
	return v1.PodCondition{Type: v1.PodReady, Status: status,
		LastTransitionTime: metav1.NewTime(since)}
}

func running(name string) v1.ContainerStatus {
	return v1.ContainerStatus{Name: name, ContainerID: "r://1", RestartCount: 3,
		State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}}
}

func TestTransitionTimeIsKept(t *testing.T) {
	stored := &v1.PodStatus{Conditions: []v1.PodCondition{ready(v1.ConditionTrue, t0)}}
	later := t0.Add(time.Hour)
	same := merge(&v1.PodSpec{}, stored, &v1.PodStatus{Conditions: []v1.PodCondition{
		ready(v1.ConditionTrue, later)}})
	if got := same.Conditions[0].LastTransitionTime; !got.Time.Equal(t0) {
		t.Errorf("transition time %v of an unchanged condition", got)
	}
	other := merge(&v1.PodSpec{}, stored, &v1.PodStatus{Conditions: []v1.PodCondition{
		ready(v1.ConditionFalse, later)}})
	if got := other.Conditions[0].LastTransitionTime; !got.Time.Equal(later.Truncate(time.Second)) {
		t.Errorf("transition time %v of a changed condition", got)
	}
}

func TestTerminalStatusStays(t *testing.T) {
	stored := &v1.PodStatus{Phase: v1.PodFailed, Reason: "Evicted",
		ContainerStatuses: []v1.ContainerStatus{running("a"), running("b")}}
	exited := v1.ContainerStatus{Name: "b", State: v1.ContainerState{
		Terminated: &v1.ContainerStateTerminated{ExitCode: 1}}}
	got := merge(&v1.PodSpec{}, stored, &v1.PodStatus{Phase: v1.PodRunning,
		ContainerStatuses: []v1.ContainerStatus{{Name: "a"}, exited}})
	if got.Phase != v1.PodFailed || got.Reason != "Evicted" {
		t.Errorf("phase %s, reason %s", got.Phase, got.Reason)
	}
	if got.ContainerStatuses[0].State.Running == nil ||
		got.ContainerStatuses[1].State.Terminated == nil {
		t.Errorf("containers %+v", got.ContainerStatuses)
	}
}

func TestLostContainersAreTerminated(t *testing.T) {
	stored := &v1.PodStatus{Phase: v1.PodRunning,
		ContainerStatuses: []v1.ContainerStatus{running("a")}}
	got := merge(&v1.PodSpec{}, stored, &v1.PodStatus{Phase: v1.PodFailed,
		ContainerStatuses: []v1.ContainerStatus{{Name: "a"}}})
	end := got.ContainerStatuses[0]
	if end.State.Terminated == nil || end.State.Terminated.Reason != "ContainerStatusUnknown" ||
		end.RestartCount != 3 {
		t.Errorf("container %+v", end)
	}
}

// A container of a pod that another client has ended is not lost while the runtime has it: how it
// ends is written later, and a stored termination would stay.
func TestContainersThatAreStoppedAreNotLost(t *testing.T) {
	for _, state := range []v1.ContainerState{
		{Running: &v1.ContainerStateRunning{}}, {Waiting: &v1.ContainerStateWaiting{}}} {
		stored := &v1.PodStatus{Phase: v1.PodFailed,
			ContainerStatuses: []v1.ContainerStatus{running("a")}}
		got := merge(&v1.PodSpec{}, stored, &v1.PodStatus{Phase: v1.PodFailed,
			ContainerStatuses: []v1.ContainerStatus{{Name: "a", ContainerID: "r://1", State: state}}})
		if c := got.ContainerStatuses[0]; c.State.Running == nil {
			t.Errorf("container %+v, while its state is %+v", c, state)
		}
	}
}

// A patch has all fields that the node writes and the UID of the object, but no conditions of
// others.
func TestPatch(t *testing.T) {
	object := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u1"}}
	data := newPatch(object, &v1.PodStatus{Phase: v1.PodPending, PodIPs: []v1.PodIP{{IP: "10.0.0.2"}},
		Conditions: []v1.PodCondition{ready(v1.ConditionTrue, t0), {Type: "example.com/own"}}})
	var got struct {
		Metadata struct{ UID string }
		Status   map[string]any
	}
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	if got.Metadata.UID != "u1" {
		t.Errorf("UID %q, want u1", got.Metadata.UID)
	}
	if reason, is := got.Status["reason"]; !is || reason != nil {
		t.Errorf("the reason is not removed: %s", data)
	}
	if n := len(got.Status["conditions"].([]any)); n != 1 {
		t.Errorf("%d conditions, want 1: %s", n, data)
	}
	condition := got.Status["conditions"].([]any)[0].(map[string]any)
	if reason, is := condition["reason"]; !is || reason != nil {
		t.Errorf("the reason of a condition is not removed: %s", data)
	}
	if n := len(got.Status["podIPs"].([]any)); n != 2 {
		t.Errorf("addresses are merged, not replaced: %s", data)
	}
}

// The API server merges the resources of a pod by name: those that it has no longer are removed.
func TestPatchRemovesResources(t *testing.T) {
	one := resource.MustParse("1")
	object := &v1.Pod{Status: v1.PodStatus{
		AllocatedResources: v1.ResourceList{"cpu": one, "memory": one},
		Resources: &v1.ResourceRequirements{Requests: v1.ResourceList{"cpu": one},
			Limits: v1.ResourceList{"cpu": one, "hugepages-2Mi": one}}}}
	desired := &v1.PodStatus{AllocatedResources: v1.ResourceList{"cpu": one},
		Resources: &v1.ResourceRequirements{Limits: v1.ResourceList{"cpu": one}}}
	for _, status := range []*v1.PodStatus{desired, {}} {
		stored, err := json.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		patched, err := strategicpatch.StrategicMergePatch(stored, newPatch(object, status), v1.Pod{})
		if err != nil {
			t.Fatal(err)
		}
		var got v1.Pod
		if err := json.Unmarshal(patched, &got); err != nil {
			t.Fatal(err)
		}
		if !equality.Semantic.DeepEqual(got.Status.AllocatedResources, status.AllocatedResources) ||
			!equality.Semantic.DeepEqual(got.Status.Resources, status.Resources) {
			t.Errorf("%s: %+v", patched, got.Status)
		}
	}
}

// A patch may be outdated when it arrives, or made from an outdated status: it is for one version
// of the object only.
func TestPatchOfOneVersion(t *testing.T) {
	object := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u1", ResourceVersion: "7"}}
	for _, phase := range []v1.PodPhase{v1.PodPending, v1.PodRunning, v1.PodFailed, v1.PodSucceeded} {
		data := string(newPatch(object, &v1.PodStatus{Phase: phase}))
		if !strings.Contains(data, `"resourceVersion":"7"`) {
			t.Errorf("%s: %s", phase, data)
		}
	}
}

// The record of an exited run is removed when the next run has exited.
func TestTerminationOfRemovedRunIsKept(t *testing.T) {
	ended := func(id string) v1.ContainerState {
		return v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ContainerID: id}}
	}
	for _, c := range []struct {
		name         string
		stored, want v1.ContainerStatus
	}{
		{"the run was running", v1.ContainerStatus{ContainerID: "r://2",
			LastTerminationState: ended("r://1")},
			v1.ContainerStatus{LastTerminationState: ended("r://1")}},
		{"it was backing off", v1.ContainerStatus{ContainerID: "r://2",
			LastTerminationState: ended("r://2")}, v1.ContainerStatus{}},
		{"another run was stored", v1.ContainerStatus{ContainerID: "r://1",
			LastTerminationState: ended("r://0")}, v1.ContainerStatus{}},
	} {
		got := merge(&v1.PodSpec{}, &v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{c.stored}},
			&v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{
				{ContainerID: "r://2", State: ended("r://2")}}})
		if last := got.ContainerStatuses[0].LastTerminationState; !equality.Semantic.DeepEqual(last,
			c.want.LastTerminationState) {
			t.Errorf("%s: last state %v", c.name, last)
		}
	}
}

func TestLastTerminationIsKept(t *testing.T) {
	exited := v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: 9}}
	stored := &v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{
		{Name: "a", ContainerID: "r://1", RestartCount: 2, State: exited}}}
	got := merge(&v1.PodSpec{}, stored, &v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{
		{Name: "a", RestartCount: 2}}})
	if last := got.ContainerStatuses[0].LastTerminationState.Terminated; last == nil ||
		last.ExitCode != 9 {
		t.Errorf("container %+v", got.ContainerStatuses[0])
	}
}

// The IPs of a pod are kept as long as the agent knows no others: an agent that was restarted does
// not know those of a stopped sandbox.
func TestStoredIPsAreKept(t *testing.T) {
	stored := &v1.PodStatus{PodIP: "10.0.0.5", PodIPs: []v1.PodIP{{IP: "10.0.0.5"}, {IP: "fd00::5"}}}
	if got := merge(&v1.PodSpec{}, stored, &v1.PodStatus{}); got.PodIP != "10.0.0.5" ||
		len(got.PodIPs) != 2 {
		t.Errorf("IPs %s, %v", got.PodIP, got.PodIPs)
	}
	others := &v1.PodStatus{PodIP: "10.0.0.6", PodIPs: []v1.PodIP{{IP: "10.0.0.6"}}}
	if got := merge(&v1.PodSpec{}, stored, others); got.PodIP != "10.0.0.6" || len(got.PodIPs) != 1 {
		t.Errorf("IPs %s, %v", got.PodIP, got.PodIPs)
	}
}

// The conditions AllContainersRestarting and DisruptionTarget are written if the node has them.
// DisruptionTarget of another client stays, and needs no patch.
func TestSharedConditions(t *testing.T) {
	disruption := v1.PodCondition{Type: v1.DisruptionTarget, Status: v1.ConditionTrue}
	object := &v1.Pod{Status: v1.PodStatus{Conditions: []v1.PodCondition{disruption}}}
	e := &Entry{Stored: object}
	if got := merge(&object.Spec, &object.Status, &v1.PodStatus{}); !e.hasStatus(got) {
		t.Errorf("a patch for %+v", got.Conditions)
	}
	own := []v1.PodCondition{{Type: v1.AllContainersRestarting, Status: v1.ConditionTrue},
		{Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: "TerminationByKubelet"}}
	text := string(newPatch(&v1.Pod{}, merge(&v1.PodSpec{}, &v1.PodStatus{},
		&v1.PodStatus{Conditions: own})))
	for _, want := range []string{"AllContainersRestarting", "TerminationByKubelet"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
	merged := merge(&object.Spec, &object.Status, &v1.PodStatus{Conditions: own})
	if len(merged.Conditions) != 2 || merged.Conditions[1].Reason != "TerminationByKubelet" {
		t.Errorf("conditions %+v", merged.Conditions)
	}
	app := []v1.ContainerStatus{{Name: "app", ContainerID: "c://1"}}
	ended := &v1.PodStatus{Phase: v1.PodFailed, Reason: "Ended", ContainerStatuses: app}
	desired := &v1.PodStatus{ContainerStatuses: app, Conditions: own}
	if got := merge(&v1.PodSpec{}, ended, desired); len(got.Conditions) != 1 {
		t.Errorf("a pod that has ended is given %+v", got.Conditions)
	}
}

// How containers of a terminal pod have ended stays when their runs have been removed, unless a
// later run of them was.
func TestEndsOfRemovedRunsAreKept(t *testing.T) {
	status := func(restarts int32, code *int32) *v1.PodStatus {
		c := v1.ContainerStatus{Name: "c", RestartCount: restarts}
		if code != nil {
			c.ContainerID = "id"
			c.State.Terminated = &v1.ContainerStateTerminated{ExitCode: *code}
		}
		list := []v1.ContainerStatus{c}
		return &v1.PodStatus{InitContainerStatuses: list, ContainerStatuses: slices.Clone(list),
			EphemeralContainerStatuses: slices.Clone(list)}
	}
	code := int32(7)
	for removed, isKept := range map[int32]bool{0: true, 2: true, 3: false} {
		desired := status(removed, nil)
		desired.Phase = v1.PodFailed
		merged := merge(&v1.PodSpec{}, status(2, &code), desired)
		for _, c := range slices.Concat(merged.InitContainerStatuses, merged.ContainerStatuses,
			merged.EphemeralContainerStatuses) {
			end := c.State.Terminated
			if got := end != nil && end.ExitCode == code; got != isKept {
				t.Errorf("removed after %d restarts: %+v", removed, c)
			}
		}
	}
}

// The containers of a terminal pod that have never run are terminated, as in the kubelet: those of
// a pod that was initialized, and at least the first init container of another.
func TestUnstartedContainersOfTerminalPodAreTerminated(t *testing.T) {
	waiting := func(name string) v1.ContainerStatus {
		return v1.ContainerStatus{Name: name,
			State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "ContainerCreating"}}}
	}
	exited := v1.ContainerStatus{Name: "a", State: v1.ContainerState{
		Terminated: &v1.ContainerStateTerminated{ExitCode: 0}}}
	list := func(l ...v1.ContainerStatus) []v1.ContainerStatus { return l }
	for _, c := range []struct {
		name        string
		inits, apps []v1.ContainerStatus
		want        string // for each container: its exit code, or - if it waits
	}{
		{"no init containers", nil, list(waiting("a"), waiting("b")), "137 137"},
		{"one has run", nil, list(exited, waiting("b")), "0 137"},
		{"not initialized", list(waiting("i"), waiting("j")), list(waiting("a")), "137 - -"},
		{"halfway initialized", list(exited, waiting("j")), list(waiting("a")), "0 - -"},
		{"initialized", list(waiting("i"), exited), list(waiting("a")), "137 0 137"},
	} {
		desired := &v1.PodStatus{Phase: v1.PodFailed, InitContainerStatuses: c.inits,
			ContainerStatuses: c.apps}
		var got []string
		merged := merge(&v1.PodSpec{}, &v1.PodStatus{Phase: v1.PodPending}, desired)
		for _, s := range append(merged.InitContainerStatuses, merged.ContainerStatuses...) {
			text := "-"
			if end := s.State.Terminated; end != nil {
				text = fmt.Sprint(end.ExitCode)
			}
			got = append(got, text)
		}
		if text := strings.Join(got, " "); text != c.want {
			t.Errorf("%s: %s, want %s", c.name, text, c.want)
		}
	}
	running := merge(&v1.PodSpec{}, &v1.PodStatus{}, &v1.PodStatus{Phase: v1.PodRunning,
		ContainerStatuses: list(waiting("a"))})
	if running.ContainerStatuses[0].State.Terminated != nil {
		t.Error("a container of a running pod is terminated")
	}
}

// A terminal status gains no containers that have never run: those of a rejected pod do not exist.
func TestTerminalStatusGainsNoUnstartedContainers(t *testing.T) {
	unstarted := func() []v1.ContainerStatus { return []v1.ContainerStatus{{Name: "b"}} }
	desired := &v1.PodStatus{Phase: v1.PodFailed, HostIP: "192.0.2.1",
		InitContainerStatuses: unstarted(), ContainerStatuses: unstarted(),
		EphemeralContainerStatuses: unstarted(),
		Conditions:                 []v1.PodCondition{ready(v1.ConditionFalse, t0)}}
	rejected := &v1.PodStatus{Phase: v1.PodFailed, Reason: "OutOfcpu"}
	got := merge(&v1.PodSpec{}, rejected, desired)
	if !equality.Semantic.DeepEqual(got, rejected) {
		t.Errorf("%+v of a rejected pod", got)
	}
	exited := v1.ContainerStatus{Name: "a", ContainerID: "r://1", State: v1.ContainerState{
		Terminated: &v1.ContainerStateTerminated{ExitCode: 1}}}
	desired.ContainerStatuses = append(desired.ContainerStatuses, exited)
	got = merge(&v1.PodSpec{}, rejected, desired)
	if apps := got.ContainerStatuses; len(apps) != 1 || apps[0].Name != "a" ||
		len(got.InitContainerStatuses)+len(got.EphemeralContainerStatuses) > 0 {
		t.Errorf("%+v of a pod with a run", got)
	}
}

// A sidecar that has exited is no proof that the pod was initialized: the app container, whose
// image cannot be pulled, waits.
func TestExitedSidecarDoesNotInitialize(t *testing.T) {
	always := v1.ContainerRestartPolicyAlways
	for _, policy := range []*v1.ContainerRestartPolicy{nil, &always} {
		spec := &v1.PodSpec{InitContainers: []v1.Container{{Name: "i", RestartPolicy: policy}}}
		exited := v1.ContainerState{Terminated: &v1.ContainerStateTerminated{}}
		got := merge(spec, &v1.PodStatus{}, &v1.PodStatus{Phase: v1.PodFailed,
			InitContainerStatuses: []v1.ContainerStatus{{Name: "i", State: exited}},
			ContainerStatuses: []v1.ContainerStatus{{Name: "web", State: v1.ContainerState{
				Waiting: &v1.ContainerStateWaiting{Reason: "ImagePullBackOff"}}}}})
		if isWaiting := got.ContainerStatuses[0].State.Waiting != nil; isWaiting != (policy != nil) {
			t.Errorf("sidecar %v: %+v", policy != nil, got.ContainerStatuses[0].State)
		}
	}
}

// A patch encodes the statuses of containers once, without decoding them again.
func TestPatchOfManyContainers(t *testing.T) {
	patch := func(containers int) float64 {
		status := &v1.PodStatus{ContainerStatuses: make([]v1.ContainerStatus, containers)}
		return testing.AllocsPerRun(5, func() { newPatch(&v1.Pod{}, status) })
	}
	if few, many := patch(1), patch(101); many-few > 5*100 {
		t.Errorf("%.1f allocations for a container", (many-few)/100)
	}
}

// The least of a status has no list of any kind of container, and the status itself stays.
func TestLeastStatus(t *testing.T) {
	list, long := []v1.ContainerStatus{{Name: "c"}}, strings.Repeat("m", 12<<10)
	status := &v1.PodStatus{Phase: v1.PodFailed, Reason: "Evicted", Message: long,
		InitContainerStatuses: list, ContainerStatuses: list, EphemeralContainerStatuses: list,
		Conditions: []v1.PodCondition{{Type: v1.PodReady, Message: long}}}
	least := withoutLists(status)
	if least.InitContainerStatuses != nil || least.ContainerStatuses != nil ||
		least.EphemeralContainerStatuses != nil || least.Reason != "Evicted" ||
		len(least.Message) != leastMessageMax || len(status.Conditions[0].Message) != len(long) {
		t.Errorf("%+v", least)
	}
}

// The mirror of a static pod that has run again since its end has the later end, also if no status
// said between them that it ran. A pod of the API server keeps the end that it has.
func TestEndOfLaterRunOfStaticPod(t *testing.T) {
	status := func(phase v1.PodPhase, reason string, restarts, exit int32) v1.PodStatus {
		return v1.PodStatus{Phase: phase, Reason: reason, ContainerStatuses: []v1.ContainerStatus{{
			Name: "c", RestartCount: restarts, ContainerID: fmt.Sprint("x://", restarts),
			State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: exit}}}}}
	}
	for _, c := range []struct {
		annotation string
		restarts   int32
		want       v1.PodPhase
	}{
		{v1.MirrorPodAnnotationKey, 1, v1.PodSucceeded},
		{v1.MirrorPodAnnotationKey, 0, v1.PodFailed},
		{"other", 1, v1.PodFailed},
	} {
		e := &Entry{Stored: &v1.Pod{Status: status(v1.PodFailed, "Terminated", 0, 143)}}
		e.Stored.Annotations = map[string]string{c.annotation: "u"}
		desired := status(v1.PodSucceeded, "", c.restarts, 0)
		got := e.merged(&desired, &op.Effects{})
		if got.Phase != c.want || (got.Reason == "") != (c.want == v1.PodSucceeded) {
			t.Errorf("%s, %d restarts: %s %q, want %s", c.annotation, c.restarts, got.Phase, got.Reason,
				c.want)
		}
	}
}
