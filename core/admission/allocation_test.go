package admission

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
)

// The decoded allocation requests the same as the pod.
func TestAllocationRoundTrip(t *testing.T) {
	p := modified(podOnHostPort("p", "10.0.0.1", 80), func(p *v1.Pod) {
		p.Spec.Containers = append(p.Spec.Containers, podRequesting("", "cpu", "500m").Spec.Containers...)
		p.Spec.InitContainers = podRequesting("", "cpu", "2", "memory", "1Gi").Spec.Containers
		p.Spec.Overhead = resources("memory", "1Mi")
	})
	decoded := DecodeAllocation(EncodeAllocation(p))
	if d := cmp.Diff(requests(p), requests(decoded)); d != "" {
		t.Error(d)
	}
	check := Check{Pod: podOnHostPort("q", "", 80), OtherPods: []*v1.Pod{decoded}}
	if got := check.Failures(); len(got) != 1 || got[0].Reason != "NodePorts" {
		t.Errorf("rejected for %v", got)
	}
	if EncodeAllocation(podRequesting("p")) != "" || len(requests(DecodeAllocation("{"))) > 0 {
		t.Error("an empty or invalid allocation requests something")
	}
	// The pod of a kubelet may have such an annotation: parsing it would take hours.
	hostile := `{"resources":{"requests":{"cpu":"1e-999999999"}}}`
	if len(requests(DecodeAllocation(hostile))) > 0 {
		t.Error("a quantity with a huge exponent requests something")
	}
}

// The number of host ports alone never says more than the text has.
func TestLeastAllocation(t *testing.T) {
	for _, ports := range []int{1, 2, 1000} {
		pod := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{}}}}
		for i := range ports {
			c := &pod.Spec.Containers[0]
			c.Ports = append(c.Ports, v1.ContainerPort{HostPort: 1 + int32(i)%9})
		}
		if least, bytes := LeastAllocation(pod), len(EncodeAllocation(pod)); least > bytes ||
			least < bytes/2 && ports > 2 {
			t.Errorf("%d ports take %d bytes, at least %d", ports, bytes, least)
		}
	}
}
