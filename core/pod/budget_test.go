package pod

import (
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/core/budget"
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

// An image may list its user in any number of groups, all of which the runtime reports. The first
// ones are kept, and the others do not stay in memory.
func TestGroupsOfAContainerAreBounded(t *testing.T) {
	for reported, kept := range map[int]int{3: 3, 256: 256, 257: 256, 65_000: 256} {
		c := Container{}
		c.setUser(&runtimeapi.LinuxContainerUser{SupplementalGroups: make([]int64, reported)})
		if got := c.User.Linux.SupplementalGroups; len(got) != kept || cap(got) > 2*kept {
			t.Errorf("%d groups: %d are kept, in room for %d", reported, len(got), cap(got))
		}
	}
}

// A pod exceeds its budget by an annotation of resources and host ports that is too long, and not
// by too many labels, which may change.
func TestExceedsBudgetByItsAllocation(t *testing.T) {
	pod := spec(v1.RestartPolicyAlways, "", "web")
	pod.Labels = map[string]string{"a": strings.Repeat("x", budget.SandboxMetadataMax)}
	if ExceedsBudget(pod) {
		t.Error("labels count")
	}
	for i := range 1000 {
		pod.Spec.Containers[0].Ports = append(pod.Spec.Containers[0].Ports,
			v1.ContainerPort{HostPort: int32(i + 1), HostIP: "2001:db8::ffff:ffff:ffff:1"})
	}
	if !ExceedsBudget(pod) {
		t.Error("host ports do not count")
	}
}
