package pod

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// A pod that runs may get other images, and their references may be too many. Its containers are
// not created again, while those that run go on.
func TestChangedImagesOverBudget(t *testing.T) {
	p := New(spec(v1.RestartPolicyAlways, "", "web"), nil, true, true, t0)
	p.Watches.Problem = "too many"
	if err := p.checkChanged(p.specContainer("web")); err != nil {
		t.Errorf("%v: the images are within the bound", err)
	}
	changed := p.Spec.DeepCopy()
	for i := range 17 {
		changed.Spec.Containers = append(changed.Spec.Containers, v1.Container{
			Name: fmt.Sprint("c", i), Image: fmt.Sprintf("%01024d", i)})
	}
	p.SetDesired(changed, nil, t0)
	p.Watches.Problem = "too many"
	if err := p.checkChanged(p.specContainer("web")); err == nil || err.Error() != "too many" {
		t.Errorf("%v", err)
	}
}

// Ephemeral containers may be added while the sandbox is being created, and keep no other container
// from starting: a pod with too many of them holds what it was admitted with. A pod that exceeds a
// bound by something else never starts, and holds nothing.
func TestPodOverBudgetHoldsNoResources(t *testing.T) {
	p := New(spec(v1.RestartPolicyAlways, "", "web"), nil, true, true, t0)
	if !p.HoldsResources() {
		t.Fatal("a pod that is to run holds no resources")
	}
	grown := p.Spec.DeepCopy()
	for i := range 300 {
		grown.Spec.EphemeralContainers = append(grown.Spec.EphemeralContainers, v1.EphemeralContainer{
			EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: fmt.Sprint("e", i), Image: "i"}})
	}
	p.SetDesired(grown, nil, t0)
	if !p.HoldsResources() || New(grown, nil, true, true, t0).OverBudget {
		t.Error("a pod with too many ephemeral containers holds no resources")
	}
	grown = p.Spec.DeepCopy()
	grown.Spec.Containers[0].Ports = make([]v1.ContainerPort, 5000)
	if p := New(grown, nil, true, true, t0); p.HoldsResources() || !ExceedsBudget(grown) {
		t.Error("a pod with too many ports holds resources")
	}
}
