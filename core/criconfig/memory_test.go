package criconfig

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"seedlet.dev/core/cgroup"
)

// memoryPod returns a pod of which a container requests memory and is limited to more; an empty
// text is none.
func memoryPod(request, limit string, policy cgroup.Policy) *Pod {
	p := newPod()
	p.Node.MemoryBytes, p.Node.UnreservedMemory = 1000<<20, 900<<20
	p.Node.Cgroups.Policy = policy
	p.web().Resources = v1.ResourceRequirements{Requests: v1.ResourceList{}, Limits: v1.ResourceList{}}
	if request != "" {
		p.web().Resources.Requests[v1.ResourceMemory] = resource.MustParse(request)
	}
	if limit != "" {
		p.web().Resources.Limits[v1.ResourceMemory] = resource.MustParse(limit)
	}
	return p
}

// unified returns the files that a container sets in its cgroup.
func unified(p *Pod) string {
	files := p.ContainerResources(p.web()).Unified
	var all []string
	for _, file := range slices.Sorted(maps.Keys(files)) {
		all = append(all, file+" "+files[file])
	}
	return strings.Join(all, ", ")
}

// All processes of a container are ended together in cgroup v2, unless singleProcessOOMKill is set.
func TestOOMGroup(t *testing.T) {
	for _, test := range []struct {
		policy cgroup.Policy
		want   string
	}{
		{cgroup.Policy{Unified: true}, "memory.oom.group 1"},
		{cgroup.Policy{Unified: true, KillProcess: true}, ""},
		{cgroup.Policy{}, ""},
	} {
		p := memoryPod("1Mi", "2Mi", test.policy)
		if got := unified(p); got != test.want {
			t.Errorf("%+v: %q", test.policy, got)
		}
		if got := p.sandboxResources().Unified["memory.oom.group"]; (got == "1") != (test.want != "") {
			t.Errorf("%+v: the sandbox has %q", test.policy, got)
		}
	}
}

// A container may have the share of the swap that it requests of the memory, if its pod is
// Burstable and not critical.
func TestSwap(t *testing.T) {
	unlimited := cgroup.Policy{Unified: true, KillProcess: true, SwapLimits: true,
		SwapBytes: 500 << 20, LimitedSwap: true}
	noSwap, old, without := unlimited, unlimited, unlimited
	noSwap.LimitedSwap, old.Unified, without.SwapLimits = false, false, false
	isCritical := func(p *Pod) { priority := int32(2e9); p.Spec.Spec.Priority = &priority }
	isGuaranteed := func(p *Pod) {
		p.Spec.Spec.InitContainers = nil
		p.web().Resources = v1.ResourceRequirements{Requests: resources("1", "100Mi"),
			Limits: resources("1", "100Mi")}
	}
	isCPUOnly := func(p *Pod) {
		p.web().Resources = v1.ResourceRequirements{
			Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")}}
	}
	isSmall := func(p *Pod) { p.Node.MemoryBytes = 50 << 20 }
	for _, test := range []struct {
		name           string
		request, limit string
		policy         cgroup.Policy
		change         func(*Pod)
		want           string
	}{
		{"limited", "100Mi", "200Mi", unlimited, nil, fmt.Sprint(50 << 20)},
		{"without a limit", "100Mi", "", unlimited, nil, fmt.Sprint(50 << 20)},
		{"without a request", "", "100Mi", unlimited, nil, "0"},
		{"request and limit equal", "100Mi", "100Mi", unlimited, nil, "0"},
		{"no memory", "", "", unlimited, isCPUOnly, "0"},
		{"BestEffort", "", "", unlimited, nil, "0"},
		{"Guaranteed", "", "", unlimited, isGuaranteed, "0"},
		{"critical", "100Mi", "200Mi", unlimited, isCritical, "0"},
		{"more than the machine has", "100Mi", "200Mi", unlimited, isSmall, "0"},
		{"NoSwap", "100Mi", "200Mi", noSwap, nil, "0"},
		{"no controller", "100Mi", "200Mi", without, nil, ""},
		{"v1", "100Mi", "200Mi", old, nil, ""},
	} {
		p := memoryPod(test.request, test.limit, test.policy)
		if test.change != nil {
			test.change(p)
		}
		r := p.ContainerResources(p.web())
		if got := r.Unified["memory.swap.max"]; got != test.want {
			t.Errorf("%s: swap of %q, want %q", test.name, got, test.want)
		}
		if isOld := test.name == "v1"; (r.MemorySwapLimitInBytes == 200<<20) != isOld ||
			!isOld && r.MemorySwapLimitInBytes != 0 {
			t.Errorf("%s: memory and swap of %d", test.name, r.MemorySwapLimitInBytes)
		}
	}
}

func TestMemoryQoS(t *testing.T) {
	policy := cgroup.Policy{Unified: true, KillProcess: true, MemoryQoS: true, PageBytes: 4096,
		ThrottlingFactor: 0.9}
	tiered := policy
	tiered.ReserveMemory = true
	const none = "memory.high max, memory.low 0, memory.min 0"
	for _, test := range []struct {
		name           string
		request, limit string
		policy         cgroup.Policy
		want           string
	}{
		{"throttled below its limit", "10000", "100000", policy,
			"memory.high 90112, memory.low 0, memory.min 0"},
		{"throttled below what pods may have", "100Mi", "", policy,
			fmt.Sprintf("memory.high %d, memory.low 0, memory.min 0", 820<<20)},
		{"without a request", "", "100000", policy, "memory.high 86016, memory.low 0, memory.min 0"},
		{"request and limit equal", "1Mi", "1Mi", policy, none},
		{"throttled at once", "4095", "4096", policy, none},
		{"tiered", "100Mi", "", tiered, fmt.Sprintf("memory.high %d, memory.low %d", 820<<20, 100<<20)},
		{"tiered, without memory", "", "", tiered, none},
	} {
		if got := unified(memoryPod(test.request, test.limit, test.policy)); got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
	p := memoryPod("", "", tiered)
	p.Spec.Spec.InitContainers = nil
	p.web().Resources = v1.ResourceRequirements{Requests: resources("1", "1Mi"),
		Limits: resources("1", "1Mi")}
	if got := unified(p); got != "memory.high max, memory.min 1048576" {
		t.Errorf("Guaranteed: %q", got)
	}
	p.Node.Cgroups.Policy.Unified = false
	if got := unified(p); got != "" {
		t.Errorf("in cgroup v1: %q", got)
	}
}

// A container has its own limit of huge pages, or the pod's, and none of the other sizes.
func TestHugePages(t *testing.T) {
	p := newPod()
	p.Node.Cgroups.PageSizes = []int64{64 << 10, 2 << 20, 1 << 30}
	p.web().Resources.Limits = v1.ResourceList{"hugepages-2Mi": resource.MustParse("4Mi"),
		"hugepages-16Mi": resource.MustParse("16Mi")}
	limits := func() string {
		var all []string
		for _, l := range p.ContainerResources(p.web()).HugepageLimits {
			all = append(all, fmt.Sprint(l.PageSize, " ", l.Limit))
		}
		return strings.Join(all, ", ")
	}
	if got := limits(); got != "64KB 0, 2MB 4194304, 1GB 0" {
		t.Errorf("of the container: %s", got)
	}
	p.Spec.Spec.Resources = &v1.ResourceRequirements{Limits: v1.ResourceList{
		"hugepages-2Mi": resource.MustParse("8Mi"), "hugepages-1Gi": resource.MustParse("1Gi")}}
	if got := limits(); got != "64KB 0, 2MB 4194304, 1GB 1073741824" {
		t.Errorf("of the container and the pod: %s", got)
	}
}
