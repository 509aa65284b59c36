package core

import (
	"fmt"
	"maps"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/admission"
)

// wrongWaiting compares the index of the waiting pods with their rejections. It is called after
// each step of every test of the agent, and returns the difference.
func (n *fakeNode) wrongWaiting() string {
	want := map[string]map[string]bool{"all": {}, "preempting": {}, "awaitingOther": {},
		"awaitingNode": {}}
	for uid, r := range n.agent.state.APIRejections {
		for name, isIn := range map[string]bool{"all": r.Waiting, "preempting": r.isPreempting(),
			"awaitingOther": r == awaitingOtherPod, "awaitingNode": r.NodeOp != 0} {
			if isIn {
				want[name][uid] = true
			}
		}
	}
	w := &n.agent.waiting
	for name, got := range map[string]map[string]bool{"all": w.all, "preempting": w.preempting,
		"awaitingOther": w.awaitingOther, "awaitingNode": w.awaitingNode} {
		if !maps.Equal(got, want[name]) {
			return fmt.Sprintf("%s of the waiting pods are %v, want %v", name, got, want[name])
		}
	}
	return ""
}

// Each pod that is checked asks for the pods that others are preempted for, and each pod that is
// planned asks whether one waits for another: neither looks at the other pods that wait.
func TestWaitingPodsOfOneKindAreKnown(t *testing.T) {
	n := bootWithPods(nil)
	a := n.agent
	a.state.APIRejections = map[string]Rejection{}
	for i := range 1000 {
		a.setRejection(fmt.Sprint("u", i), Rejection{Phase: v1.PodPending, Waiting: true})
	}
	preempting := Rejection{Phase: v1.PodPending, Reason: admission.PreemptedReason, Waiting: true}
	for uid, r := range map[string]Rejection{"u1": preempting, "u2": awaitingOtherPod,
		"u3": {Waiting: true, NodeOp: 7}} {
		a.setRejection(uid, r)
	}
	if wrong := n.wrongWaiting(); wrong != "" {
		t.Error(wrong)
	}
	if !a.hasUndecidedAdmission() || !a.isNodeAwaited() || len(a.waiting.preempting) != 1 {
		t.Errorf("%v", a.waiting.preempting)
	}
	a.setRejection("u1", awaitingOtherPod)
	for _, uid := range []string{"u2", "u3"} {
		a.clearRejection(uid)
	}
	if wrong := n.wrongWaiting(); wrong != "" || a.isNodeAwaited() {
		t.Error(wrong)
	}
	a.clearRejection("u1")
	if a.hasUndecidedAdmission() || len(a.waiting.all) != 997 {
		t.Errorf("%d pods wait", len(a.waiting.all))
	}
}

// While a static pod waits for room, the end of another pod leads to its check, and to no plan of
// the static pods that run, of their mirrors and statuses, or of what cleans up the node.
func TestWaitingStaticPodIsCheckedAlone(t *testing.T) {
	manifests := map[string]string{}
	for i := range 5 {
		manifests[fmt.Sprint("s", i, ".yaml")] = staticOf(fmt.Sprint("s", i), "1m")
	}
	manifests["z.yaml"] = staticOf("z", "64")
	n := bootWithPods(manifests, apiPodNamed("a", "u1"))
	n.advance(time.Minute)
	if len(n.agent.state.StaticRejections) != 1 || len(n.containers) != 6 {
		t.Fatalf("%v wait, %d containers", n.agent.state.StaticRejections, len(n.containers))
	}
	n.agent.retryAdmission()
	if keys := n.agent.queue.keys; len(keys) > 0 {
		t.Errorf("planned again: %v", keys)
	}
	n.manifests["z.yaml"] = staticOf("z", "1m")
	n.advance(time.Minute)
	if len(n.agent.state.StaticRejections) > 0 || len(n.containers) != 7 {
		t.Errorf("%v, %d containers", n.agent.state.StaticRejections, len(n.containers))
	}
}

func staticOf(name, cpu string) string {
	return `{apiVersion: v1, kind: Pod, metadata: {name: ` + name + `}, spec: {containers: [
		{name: c, image: i, resources: {requests: {cpu: "` + cpu + `"}}}]}}`
}
