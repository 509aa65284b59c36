package eviction

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
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

// Of two sandboxes of a pod each has the memory of its whole cgroup.
func TestUsageOfTwoSandboxes(t *testing.T) {
	for _, order := range [][]uint32{{0, 1}, {1, 0}} {
		listed := &runtimeapi.ListPodSandboxStatsResponse{}
		for _, attempt := range order {
			of := statsOf(map[string]int64{"a": 5 + int64(attempt)})
			of.Stats[0].Attributes.Metadata.Attempt = attempt
			listed.Stats = append(listed.Stats, of.Stats...)
		}
		if got := usageOf(listed)["a"].MemoryBytes; got != 6*mib {
			t.Errorf("attempts %v: %d bytes, want those of the newer sandbox", order, got)
		}
	}
}
