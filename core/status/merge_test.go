package status

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	same := merge(stored, &v1.PodStatus{Conditions: []v1.PodCondition{
		ready(v1.ConditionTrue, later)}})
	if got := same.Conditions[0].LastTransitionTime; !got.Time.Equal(t0) {
		t.Errorf("a condition that has not changed is since %v", got)
	}
	other := merge(stored, &v1.PodStatus{Conditions: []v1.PodCondition{
		ready(v1.ConditionFalse, later)}})
	if got := other.Conditions[0].LastTransitionTime; !got.Time.Equal(later.Truncate(time.Second)) {
		t.Errorf("a condition that has changed is since %v", got)
	}
}

func TestWhatIsOverStays(t *testing.T) {
	stored := &v1.PodStatus{Phase: v1.PodFailed, Reason: "Evicted",
		ContainerStatuses: []v1.ContainerStatus{running("a"), running("b")}}
	exited := v1.ContainerStatus{Name: "b", State: v1.ContainerState{
		Terminated: &v1.ContainerStateTerminated{ExitCode: 1}}}
	got := merge(stored, &v1.PodStatus{Phase: v1.PodRunning,
		ContainerStatuses: []v1.ContainerStatus{{Name: "a"}, exited}})
	if got.Phase != v1.PodFailed || got.Reason != "Evicted" {
		t.Errorf("phase %s, reason %s", got.Phase, got.Reason)
	}
	if got.ContainerStatuses[0].State.Running == nil ||
		got.ContainerStatuses[1].State.Terminated == nil {
		t.Errorf("containers %+v", got.ContainerStatuses)
	}
}

func TestLostContainersHaveEnded(t *testing.T) {
	stored := &v1.PodStatus{Phase: v1.PodRunning,
		ContainerStatuses: []v1.ContainerStatus{running("a")}}
	got := merge(stored, &v1.PodStatus{Phase: v1.PodFailed,
		ContainerStatuses: []v1.ContainerStatus{{Name: "a"}}})
	end := got.ContainerStatuses[0]
	if end.State.Terminated == nil || end.State.Terminated.Reason != "ContainerStatusUnknown" ||
		end.RestartCount != 3 {
		t.Errorf("container %+v", end)
	}
}

// A patch says everything that is the node's, names the object, and leaves others' conditions.
func TestPatch(t *testing.T) {
	object := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u1"}}
	data := patch(object, &v1.PodStatus{Phase: v1.PodPending, PodIPs: []v1.PodIP{{IP: "10.0.0.2"}},
		Conditions: []v1.PodCondition{ready(v1.ConditionTrue, t0), {Type: "example.com/own"}}})
	var got struct {
		Metadata struct{ UID string }
		Status   map[string]any
	}
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	if got.Metadata.UID != "u1" {
		t.Errorf("it names %q", got.Metadata.UID)
	}
	if reason, is := got.Status["reason"]; !is || reason != nil {
		t.Errorf("it leaves the reason as it is: %s", data)
	}
	if n := len(got.Status["conditions"].([]any)); n != 1 {
		t.Errorf("it has %d conditions: %s", n, data)
	}
	condition := got.Status["conditions"].([]any)[0].(map[string]any)
	if reason, is := condition["reason"]; !is || reason != nil {
		t.Errorf("it leaves the reason of a condition as it is: %s", data)
	}
	if n := len(got.Status["podIPs"].([]any)); n != 2 {
		t.Errorf("addresses are merged, not replaced: %s", data)
	}
}

// What is told may not be so any more when it arrives, or not have been seen to be so when it was
// sent: it is told of one version of the object only.
func TestPatchOfOneVersion(t *testing.T) {
	object := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u1", ResourceVersion: "7"}}
	for _, phase := range []v1.PodPhase{v1.PodPending, v1.PodRunning, v1.PodFailed, v1.PodSucceeded} {
		data := string(patch(object, &v1.PodStatus{Phase: phase}))
		if !strings.Contains(data, `"resourceVersion":"7"`) {
			t.Errorf("%s: %s", phase, data)
		}
	}
}

func TestTheLastRunIsRemembered(t *testing.T) {
	exited := v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: 9}}
	stored := &v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{
		{Name: "a", ContainerID: "r://1", RestartCount: 2, State: exited}}}
	got := merge(stored, &v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{
		{Name: "a", RestartCount: 2}}})
	if last := got.ContainerStatuses[0].LastTerminationState.Terminated; last == nil ||
		last.ExitCode != 9 {
		t.Errorf("container %+v", got.ContainerStatuses[0])
	}
}
