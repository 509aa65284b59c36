package core

import (
	"testing"

	"seedlet.dev/core/image"
	"seedlet.dev/core/pod"
	"seedlet.dev/core/statuswriter"
	"seedlet.dev/core/timer"
)

// What is served of a pod whose plan is left to a later step is built again: the event may have
// changed facts already.
func TestPodWhosePlanIsLeftIsServedAsItIs(t *testing.T) {
	n := bootWithPods(nil, apiPodNamed("a", "u1"))
	before := n.agent.servedPod("u1")
	p := n.agent.state.Pods["u1"]
	p.Spec = p.Spec.DeepCopy()
	p.Spec.Labels = map[string]string{"changed": "true"}
	n.agent.leave(timer.Key{Component: pod.Component, Name: "u1"}, n.now)
	if after := n.agent.servedPod("u1"); before == after || after.Labels["changed"] != "true" {
		t.Errorf("labels %v are served, want those of now", after.Labels)
	}
}

// The plans of pods, of their statuses, and of the images that they wait for are left to later
// steps; those of the node are not.
func TestPlansOfPods(t *testing.T) {
	for component, want := range map[string]bool{ //ordered: each by itself
		pod.Component: true, statuswriter.Component: true, image.Component: true, "eviction": false,
	} {
		if got := isOfPod(timer.Key{Component: component, Name: "x"}); got != want {
			t.Errorf("%s is of a pod: %t, want %t", component, got, want)
		}
	}
}
