package core

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/core/cgroup"
	"seedlet.dev/core/qos"
	"seedlet.dev/world"
)

// A resize counts when it is asked for, while it waits or is being carried out, and when it ends.
func TestResizeMetrics(t *testing.T) {
	const requested, pending, accepted, duration = "kubelet_container_requested_resizes_total ",
		"kubelet_pod_pending_resizes ", "kubelet_pod_deferred_accepted_resizes_total ",
		"kubelet_pod_resize_duration_milliseconds "
	r := newResizeNode(withRequests(apiPodNamed("a", "u1"), "1", 0),
		withRequests(apiPodNamed("b", "u2"), "400m", 0))
	r.resize("b", "1200m")
	r.expectMetrics(t, "deferred", map[string]float64{requested + "cpu requests increase": 1,
		pending + "deferred": 1, "kubelet_pod_in_progress_resizes": 0})
	refused, inner := true, r.answer
	r.answer = func(effect any) any {
		if _, isUpdate := effect.(*runtimeapi.UpdateContainerResourcesRequest); isUpdate && refused {
			return world.Errorf(world.KindInternal, "UpdateContainerResources", "no")
		}
		return inner(effect)
	}
	r.resize("a", "500m")
	r.expectMetrics(t, "refused", map[string]float64{requested + "cpu requests decrease": 1,
		pending + "deferred": 1, "kubelet_pod_in_progress_resizes": 1, duration + "false": 1})
	refused = false
	r.advance(time.Minute)
	r.expectMetrics(t, "done", map[string]float64{accepted + "pod_resized": 1,
		"kubelet_pod_in_progress_resizes": 0, duration + "true": 2})
	if _, waits := r.metricValues()[pending+"deferred"]; waits {
		t.Error("a resize that is allocated still waits")
	}
}

// A resize that can never be allocated counts once, however often it is looked at.
func TestInfeasibleResizeMetric(t *testing.T) {
	r := newResizeNode(withRequests(apiPodNamed("a", "u1"), "1", 0))
	r.agent.state.NodeObject.Settings.DeclaredFeatures = nil
	p := r.apiServer.objects["default/a"].DeepCopy()
	p.Generation++
	p.Spec.Resources = &v1.ResourceRequirements{
		Requests: v1.ResourceList{"cpu": resource.MustParse("1500m")}}
	r.apiServer.put(p)
	r.advance(10 * time.Minute)
	r.expectMetrics(t, "infeasible", map[string]float64{
		"kubelet_pod_infeasible_resizes_total plr_feature_gate_off": 1,
		"kubelet_pod_pending_resizes infeasible":                    1})
	want := "Infeasible: InPlacePodLevelResourcesVerticalScaling is disabled"
	if got := r.pending("a"); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// Each change of a request or limit counts by its kind.
func TestRequestedResizesMetric(t *testing.T) {
	pod := func(requests, limits v1.ResourceList) *v1.Pod {
		p := apiPodNamed("a", "u1")
		p.Spec.InitContainers = []v1.Container{{Name: "setup"}}
		p.Spec.InitContainers[0].Resources = v1.ResourceRequirements{Requests: requests, Limits: limits}
		return p
	}
	list := func(cpu, memory string) v1.ResourceList {
		l := v1.ResourceList{}
		for name, text := range map[v1.ResourceName]string{"cpu": cpu, "memory": memory} {
			if text != "" {
				l[name] = resource.MustParse(text)
			}
		}
		return l
	}
	var m Metrics
	m.recordRequestedResizes(pod(list("1", ""), list("2", "3Mi")),
		pod(list("", "1Mi"), list("1", "4Mi")))
	for _, key := range []string{"cpu requests remove", "memory requests add", "cpu limits decrease",
		"memory limits increase"} {
		if m.ResizesRequested[key] != 1 {
			t.Errorf("%s: %d", key, m.ResizesRequested[key])
		}
	}
	if len(m.ResizesRequested) != 4 {
		t.Errorf("%v", m.ResizesRequested)
	}
}

// What the kernel protects is only that if pods are to have it protected, and the cgroups can.
func TestMemoryQoSMetrics(t *testing.T) {
	const hard, soft = "kubelet_memory_qos_node_memory_min_bytes",
		"kubelet_memory_qos_node_memory_low_bytes"
	n := bootNode(nil)
	s := &n.agent.state
	s.QOS.Sums = qos.Sums{Guaranteed: qos.Share{MemoryBytes: 5}, Burstable: qos.Share{MemoryBytes: 7}}
	if _, exists := n.metricValues()[hard]; exists {
		t.Error("without the feature gate there is a metric")
	}
	for name, c := range map[string]struct {
		policy   cgroup.Policy
		min, low float64
	}{
		"reserved":     {cgroup.Policy{MemoryQoS: true, Unified: true, ReserveMemory: true}, 5, 7},
		"not reserved": {cgroup.Policy{MemoryQoS: true, Unified: true}, 0, 0},
		"cgroup v1":    {cgroup.Policy{MemoryQoS: true, ReserveMemory: true}, 0, 0},
	} {
		s.Node.Cgroups.Policy = c.policy
		n.expectMetrics(t, name, map[string]float64{hard: c.min, soft: c.low})
	}
}
