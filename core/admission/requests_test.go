package admission

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// What is remembered of pods, which come and go, changes no conflict of host ports: it is that of a
// check that knows nothing.
func TestRememberedPortsChangeNoConflict(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	addresses := []string{"", "0.0.0.0", "10.0.0.1", "10.0.0.2"}
	newPod := func() *v1.Pod {
		pod := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{}}}}
		for range random.IntN(3) {
			pod.Spec.Containers[0].Ports = append(pod.Spec.Containers[0].Ports, v1.ContainerPort{
				HostPort: int32(random.IntN(6)), HostIP: addresses[random.IntN(len(addresses))]})
		}
		return pod
	}
	var pods []*v1.Pod
	for range 6 {
		pods = append(pods, newPod())
	}
	some := func() []*v1.Pod {
		return slices.DeleteFunc(slices.Clone(pods), func(*v1.Pod) bool { return random.IntN(3) == 0 })
	}
	var remembered Requests
	conflicts := 0
	for i := range 2000 {
		pods[random.IntN(len(pods))] = newPod()
		remembered.Remember(some())
		c := Check{Pod: newPod(), OtherPods: some(), Requests: remembered}
		bare := Check{Pod: c.Pod, OtherPods: c.OtherPods}
		if c.hasHostPortConflict() != bare.hasHostPortConflict() {
			t.Fatalf("check %d of %v: %t", i, c.Pod.Spec.Containers[0].Ports, c.hasHostPortConflict())
		}
		if bare.hasHostPortConflict() {
			conflicts++
		}
	}
	remembered.Remember(nil)
	if len(remembered.ports) > 0 || conflicts < 100 || conflicts > 1900 {
		t.Error(fmt.Sprint(remembered.ports, " are left, and conflicts in ", conflicts))
	}
}
