package pod

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	podresources "k8s.io/component-helpers/resource"
)

// A pod that has ended holds no resources, unless it is created again.
func TestReplacedPodHoldsResources(t *testing.T) {
	p := podWith(spec(v1.RestartPolicyAlways, "", "web"))
	p.Sandboxes, p.NoLongerDesired, p.Stage = nil, true, Terminated
	if p.HoldsResources() {
		t.Error("a pod that has ended holds resources")
	}
	if p.Replacement = p.Spec; !p.HoldsResources() {
		t.Error("a pod that is created again holds no resources")
	}
}

// A pod whose termination is to be confirmed may release its resources in a moment; one that still
// has something to stop does not.
func TestMayBecomeTerminal(t *testing.T) {
	p := podWith(spec(v1.RestartPolicyAlways, "", "web"), run("web", 0, Exited))
	for _, c := range []struct {
		stage       Stage
		state       State
		ready, want bool
	}{
		{Terminating, Exited, false, true}, {Terminating, Exited, true, false},
		{Terminating, Running, false, false}, {Terminated, Exited, false, false},
		{Syncing, Running, true, false},
	} {
		p.Stage, p.Containers[0].State, p.Sandboxes[0].Ready = c.stage, c.state, c.ready
		if got := p.MayBecomeTerminal(); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// What is reserved for a pod that grows is the larger amount of each resource, and its overhead
// once.
func TestReservedPod(t *testing.T) {
	s := spec(v1.RestartPolicyAlways, "", "web")
	s.Spec.Overhead = resources("100m", "10Mi")
	s.Spec.Containers[0].Resources.Requests = resources("1", "100Mi")
	p := podWith(s)
	if p.ReservedPod() != p.Spec {
		t.Error("a pod that is not resized has another reservation")
	}
	p.Resize.Desired = s.DeepCopy()
	p.Resize.Desired.Spec.Containers[0].Resources.Requests = resources("2", "50Mi")
	got := podresources.PodRequests(p.ReservedPod(), podresources.PodResourcesOptions{})
	if got.Cpu().String() != "2100m" || got.Memory().String() != "110Mi" {
		t.Errorf("reserved are %s and %s", got.Cpu(), got.Memory())
	}
	if s.Spec.Resources != nil {
		t.Error("the pod itself is changed")
	}
}
