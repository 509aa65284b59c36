package core

import (
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"seedlet.dev/core/metrics"
)

// The metrics of in-place resizes. Upstream: pkg/kubelet/metrics/metrics.go, and
// recordContainerResizeOperations in pkg/kubelet/kubelet.go.

// resizeBounds are in milliseconds: a second is one.
var resizeBounds = metrics.Seconds(10, 50, 100, 500, 1000, 2000, 5000, 10000, 20000, 30000, 60000,
	120000, 300000, 600000)

// recordRequestedResizes counts how the resources of a pod's containers change.
func (t *Metrics) recordRequestedResizes(before, after *v1.Pod) {
	if before == after {
		return
	}
	t.recordContainerResizes(before.Spec.InitContainers, after.Spec.InitContainers)
	t.recordContainerResizes(before.Spec.Containers, after.Spec.Containers)
}

func (t *Metrics) recordContainerResizes(before, after []v1.Container) {
	for i := range before {
		if i >= len(after) || after[i].Name != before[i].Name {
			return // another pod: containers keep their order
		}
		x, y := &before[i].Resources, &after[i].Resources
		t.recordResizeOf("memory requests ", x.Requests.Memory(), y.Requests.Memory())
		t.recordResizeOf("memory limits ", x.Limits.Memory(), y.Limits.Memory())
		t.recordResizeOf("cpu requests ", x.Requests.Cpu(), y.Requests.Cpu())
		t.recordResizeOf("cpu limits ", x.Limits.Cpu(), y.Limits.Cpu())
	}
}

func (t *Metrics) recordResizeOf(key string, before, after *resource.Quantity) {
	switch order := after.Cmp(*before); {
	case order == 0:
	case after.IsZero():
		t.ResizesRequested.Increment(key + "remove")
	case before.IsZero():
		t.ResizesRequested.Increment(key + "add")
	case order < 0:
		t.ResizesRequested.Increment(key + "decrease")
	default:
		t.ResizesRequested.Increment(key + "increase")
	}
}

// recordResize counts an attempt to carry out a resize.
func (t *Metrics) recordResize(took time.Duration, succeeded bool) {
	t.ResizeDuration.Observe(strconv.FormatBool(succeeded), resizeBounds,
		took*time.Duration(time.Second/time.Millisecond))
}

// addResizeMetrics adds the kubelet's metrics about in-place resizes.
func (a *Agent) addResizeMetrics(m *metricList) {
	t := &a.state.Metrics
	m.addCounters("kubelet_container_requested_resizes_total", "Changes of the requests and limits "+
		"of containers that were asked for: what was added, removed, increased or decreased.",
		t.ResizesRequested, "resource", "requirement", "operation")
	m.addHistograms("kubelet_pod_resize_duration_milliseconds", "Time that an attempt to carry out "+
		"the resize of a pod took, in milliseconds.", t.ResizeDuration, resizeBounds, "success")
	help := "Pods with a resize that is not allocated, by the reason."
	for _, pending := range []struct {
		reason string
		pods   int
	}{{"deferred", t.Total.ResizesDeferred}, {"infeasible", t.Total.ResizesInfeasible}} {
		if pending.pods > 0 {
			m.addGauge("kubelet_pod_pending_resizes", help, pending.pods, "reason", pending.reason)
		}
	}
	m.addGauge("kubelet_pod_in_progress_resizes", "Pods with a resize that is being carried out.",
		t.Total.ResizesInProgress)
	m.addCounters("kubelet_pod_infeasible_resizes_total", "Resizes of pods that can never be "+
		"allocated, by why.", t.ResizesInfeasible, "reason_detail")
	m.addCounters("kubelet_pod_deferred_accepted_resizes_total", "Resizes that were allocated after "+
		"they had been deferred, by what had them looked at again.", t.ResizesAccepted,
		"retry_trigger")
}

// addMemoryQoSMetrics adds the kubelet's metrics about protected memory, with the gate MemoryQoS.
func (a *Agent) addMemoryQoSMetrics(m *metricList) {
	policy, sums := &a.state.Node.Cgroups.Policy, a.state.QOS.Sums
	if !policy.MemoryQoS {
		return
	}
	if !policy.Unified || !policy.ReserveMemory {
		sums.Guaranteed.MemoryBytes, sums.Burstable.MemoryBytes = 0, 0
	}
	m.addGauge("kubelet_memory_qos_node_memory_min_bytes", "Bytes that Guaranteed pods request and "+
		"the kernel never reclaims (memory.min).", int(sums.Guaranteed.MemoryBytes))
	m.addGauge("kubelet_memory_qos_node_memory_low_bytes", "Bytes that Burstable pods request and "+
		"the kernel reclaims last (memory.low).", int(sums.Burstable.MemoryBytes))
}
