package allocation

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func resources(cpu, memory string) v1.ResourceList {
	l := v1.ResourceList{}
	if cpu != "" {
		l[v1.ResourceCPU] = resource.MustParse(cpu)
	}
	if memory != "" {
		l[v1.ResourceMemory] = resource.MustParse(memory)
	}
	return l
}

func newPod() *v1.Pod {
	always := v1.ContainerRestartPolicyAlways
	return &v1.Pod{Spec: v1.PodSpec{
		InitContainers: []v1.Container{{Name: "once"}, {Name: "side", RestartPolicy: &always,
			Resources: v1.ResourceRequirements{Requests: resources("1", "")}}},
		Containers: []v1.Container{{Name: "app", Resources: v1.ResourceRequirements{
			Requests: resources("100m", "1Mi"), Limits: resources("", "2Mi")}}},
	}}
}

// What is allocated replaces what a pod asks for, and only that. A pod that asks for it is not
// copied, and one that does not is not changed.
func TestApply(t *testing.T) {
	held, pod := Of(newPod()), newPod()
	if held.Apply(pod) != pod || len(held.Containers) != 3 {
		t.Errorf("another pod for %+v", held)
	}
	pod.Spec.InitContainers[1].Resources.Requests = resources("2", "")
	pod.Spec.InitContainers[0].Image = "new"
	pod.Spec.Containers = append(pod.Spec.Containers, v1.Container{Name: "unknown",
		Resources: v1.ResourceRequirements{Requests: resources("5", "")}})
	got := held.Apply(pod)
	inits, apps := got.Spec.InitContainers, got.Spec.Containers
	if inits[1].Resources.Requests.Cpu().String() != "1" || inits[0].Image != "new" ||
		apps[1].Resources.Requests.Cpu().String() != "5" ||
		pod.Spec.InitContainers[1].Resources.Requests.Cpu().String() != "2" {
		t.Errorf("%+v of %+v", got.Spec, pod.Spec)
	}
	pod = newPod()
	pod.Spec.Resources = &v1.ResourceRequirements{Requests: resources("3", "")}
	if held.Apply(pod).Spec.Resources != nil {
		t.Error("the resources of the pod as a whole are not those that are allocated")
	}
	pod = newPod()
	pod.Spec.Containers[0].Resources.Requests = resources("0.1", "1024Ki")
	if held.Apply(pod) != pod {
		t.Error("another way to write a quantity is a difference")
	}
}

func TestAmounts(t *testing.T) {
	pod := newPod()
	pod.Spec.Resources = &v1.ResourceRequirements{Limits: resources("3", "5Mi")}
	a := AmountsOf(pod, &pod.Spec.Containers[0])
	if a != (Amounts{100, 3000, 1 << 20, 2 << 20}) {
		t.Errorf("amounts %+v", a)
	}
	if m := a.Max(Amounts{CPURequest: 50, CPULimit: 4000, MemoryRequest: 2 << 20}); m !=
		(Amounts{100, 4000, 2 << 20, 0}) {
		t.Errorf("the greater ones are %+v", m)
	}
	for _, test := range []struct {
		from, to int64
		want     bool
	}{{0, 0, false}, {0, 1, true}, {1, 0, false}, {2, 1, true}, {1, 2, false}} {
		if got := (Amounts{MemoryLimit: test.from}).LowersMemory(Amounts{
			MemoryLimit: test.to}); got != test.want {
			t.Errorf("from %d to %d: %v", test.from, test.to, got)
		}
	}
	r := a.Over(v1.ResourceRequirements{Limits: v1.ResourceList{"memory": resource.MustParse("1"),
		"hugepages-2Mi": resource.MustParse("2")}})
	if r.Limits.Memory().Value() != 2<<20 || len(r.Limits) != 2 || len(r.Requests) != 2 {
		t.Errorf("instead of others: %+v", r)
	}
}

// The kernel has a least amount of CPU: one that is reported may stand for any below it.
func TestKnown(t *testing.T) {
	others := Amounts{CPURequest: 1, CPULimit: 5, MemoryRequest: 7, MemoryLimit: 9}
	for _, test := range []struct{ reported, want Amounts }{
		{Amounts{}, others},
		{Amounts{CPURequest: CPURequestMin, CPULimit: CPULimitMin, MemoryLimit: 3}, Amounts{1, 5, 7, 3}},
		{Amounts{CPURequestMin + 1, CPULimitMin + 1, 1, 3}, Amounts{3, 11, 7, 3}},
	} {
		if got := test.reported.Known(others); got != test.want {
			t.Errorf("%+v: %+v, want %+v", test.reported, got, test.want)
		}
	}
}

func TestRestartPolicies(t *testing.T) {
	c := &v1.Container{ResizePolicy: []v1.ContainerResizePolicy{
		{ResourceName: v1.ResourceCPU, RestartPolicy: v1.NotRequired},
		{ResourceName: v1.ResourceMemory, RestartPolicy: v1.RestartContainer}}}
	all := Amounts{1, 2, 3, 4}
	for _, test := range []struct {
		to   Amounts
		want bool
	}{
		{all, false}, {Amounts{9, 9, 3, 4}, false}, {Amounts{1, 2, 9, 4}, true},
		{Amounts{1, 2, 3, 9}, true},
	} {
		if got := MustRestart(c, all, test.to); got != test.want {
			t.Errorf("to %+v: %v", test.to, got)
		}
	}
	if got := Recall(c, Amounts{5, 6, 7, 8}, all); got != (Amounts{1, 2, 7, 8}) {
		t.Errorf("recalled %+v", got)
	}
	c.ResizePolicy[0].RestartPolicy = v1.RestartContainer
	if got := Recall(c, Amounts{5, 6, 7, 8}, all); got != (Amounts{5, 6, 7, 8}) ||
		!MustRestart(c, all, Amounts{9, 2, 3, 4}) || !MustRestart(c, all, Amounts{1, 9, 3, 4}) {
		t.Errorf("with both: recalled %+v", got)
	}
}
