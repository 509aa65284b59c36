package eviction

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
)

// A pod within its request is evicted after one of a higher priority that exceeds its own. The
// overhead is part of a request, if there is one, and a pod exactly at its request is within it.
func TestPodsWithinTheirRequest(t *testing.T) {
	for _, c := range []struct {
		name                            string
		requestMiB, overheadMiB, useMiB int64
		want                            string
	}{
		{"below its request", 100, 0, 99, "other"},
		{"exactly at its request", 100, 0, 100, "other"},
		{"above its request", 100, 0, 101, "pod"},
		{"with its overhead at its request", 100, 50, 150, "other"},
		{"with its overhead above its request", 100, 50, 151, "pod"},
		{"with an overhead and no request", 0, 50, 1, "pod"},
	} {
		h := newHarness(t, &kubeletconfig.KubeletConfiguration{
			EvictionHard: map[string]string{"memory.available": "25%"}})
		h.addPod("pod", 0, c.requestMiB)
		h.candidates[0].Pod.Spec.Overhead = v1.ResourceList{
			v1.ResourceMemory: *resource.NewQuantity(c.overheadMiB*mib, resource.BinarySI)}
		h.addPod("other", 5, 100)
		usage := usageOf(statsOf(map[string]int64{"pod": c.useMiB, "other": 101}))
		first, found := h.m.first(&Attempt{Usage: usage}, h.candidates, MemoryAvailable)
		if !found || first.UID != c.want {
			t.Errorf("%s: %s is evicted first, want %s", c.name, first.UID, c.want)
		}
	}
}
