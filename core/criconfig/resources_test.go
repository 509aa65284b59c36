package criconfig

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func TestQOSWithPodLevelResources(t *testing.T) {
	p := newPod()
	s := p.Spec
	p.web().Resources.Requests = resources("1", "1Mi")
	for _, test := range []struct {
		own  v1.ResourceRequirements
		want v1.PodQOSClass
	}{
		{v1.ResourceRequirements{}, v1.PodQOSBurstable},
		{v1.ResourceRequirements{Requests: resources("1", "1Mi")}, v1.PodQOSBurstable},
		{v1.ResourceRequirements{Requests: resources("2", "2Mi"), Limits: resources("2", "2Mi")},
			v1.PodQOSGuaranteed},
	} {
		s.Spec.Resources = &test.own
		if got := QOS(s); got != test.want {
			t.Errorf("%v: %s, want %s", test.own, got, test.want)
		}
	}
}

// A container without a limit has the pod's, and its score counts a share of the memory that only
// the pod requests.
func TestContainerResourcesWithPodLevelLimits(t *testing.T) {
	p := newPod()
	p.web().Resources = v1.ResourceRequirements{
		Requests: resources("1", "100Mi"), Limits: v1.ResourceList{"cpu": resource.MustParse("1500m")}}
	p.Spec.Spec.Resources = &v1.ResourceRequirements{Requests: resources("2", "300Mi"),
		Limits: resources("3", "1Gi")}
	p.Node.MemoryBytes = 1000 << 20
	r := p.ContainerResources(p.web())
	if r.CpuQuota != 150_000 || r.CpuShares != 1024 || r.MemoryLimitInBytes != 1<<30 ||
		r.OomScoreAdj != 800 {
		t.Errorf("resources %v", r)
	}
	ref := &v1.ResourceFieldSelector{Resource: "limits.memory"}
	got, err := p.resourceFieldValue(ref, p.web())
	if got != "1073741824" || err != nil {
		t.Errorf("the downward API has %s, %v", got, err)
	}
}

// The containers of node-critical pods are killed last, whatever their class. A sidecar is not
// killed before the regular containers of its pod.
func TestOOMScoreAdj(t *testing.T) {
	always, critical, high := v1.ContainerRestartPolicyAlways, int32(2_000_001_000), int32(1000)
	memory := func(text string) v1.ResourceRequirements {
		return v1.ResourceRequirements{
			Requests: v1.ResourceList{v1.ResourceMemory: resource.MustParse(text)}}
	}
	for _, c := range []struct {
		name            string
		init, web, web2 v1.ResourceRequirements
		class           string
		priority        *int32
		static          bool
		wantInit        int64
		wantWeb         int64
	}{
		{name: "best effort", wantInit: 1000, wantWeb: 1000},
		{name: "burstable", web: memory("100Mi"), web2: memory("200Mi"), wantInit: 900, wantWeb: 900},
		{name: "the sidecar requests more", init: memory("300Mi"), web: memory("100Mi"),
			wantInit: 700, wantWeb: 900},
		{name: "a regular container requests nothing", init: memory("300Mi"),
			wantInit: 700, wantWeb: 999},
		{name: "all of the memory", web: memory("1000Mi"), web2: memory("1000Mi"),
			wantInit: 3, wantWeb: 3},
		{name: "node critical", class: "system-node-critical", priority: &critical,
			wantInit: -997, wantWeb: -997},
		{name: "node critical and burstable", class: "system-node-critical", priority: &critical,
			web: memory("100Mi"), wantInit: -997, wantWeb: -997},
		{name: "a static pod without a priority", class: "system-node-critical", static: true,
			wantInit: -997, wantWeb: -997},
		{name: "a name without its priority", class: "system-node-critical", priority: &high,
			wantInit: 1000, wantWeb: 1000},
		{name: "cluster critical", class: "system-cluster-critical", priority: &critical,
			wantInit: 1000, wantWeb: 1000},
	} {
		p := newPod()
		p.Static, p.Node.MemoryBytes = c.static, 1000<<20
		spec := &p.Spec.Spec
		spec.PriorityClassName, spec.Priority = c.class, c.priority
		spec.InitContainers[0].RestartPolicy = &always
		spec.InitContainers[0].Resources = c.init
		spec.Containers = append(spec.Containers, v1.Container{Name: "web2", Resources: c.web2})
		p.web().Resources = c.web
		if c.web2.Requests == nil {
			spec.Containers = spec.Containers[:1]
		}
		init := p.ContainerResources(&spec.InitContainers[0]).OomScoreAdj
		web := p.ContainerResources(p.web()).OomScoreAdj
		if init != c.wantInit || web != c.wantWeb {
			t.Errorf("%s: %d and %d, want %d and %d", c.name, init, web, c.wantInit, c.wantWeb)
		}
	}
	p := newPod() // an init container that ends is not a sidecar
	p.Node.MemoryBytes = 1000 << 20
	p.web().Resources = memory("100Mi")
	if adj := p.oomScoreAdj(&p.Spec.Spec.InitContainers[0]); adj != 999 {
		t.Errorf("an init container has %d, want 999", adj)
	}
}

// A container with a limit and no request has the shares of its limit. A request of zero is one.
func TestSharesOfLimitWithoutRequest(t *testing.T) {
	p, cpus := newPod(), func(text string) v1.ResourceList {
		return v1.ResourceList{v1.ResourceCPU: resource.MustParse(text)}
	}
	for _, c := range []struct {
		own, pod v1.ResourceRequirements
		want     int64
	}{
		{v1.ResourceRequirements{}, v1.ResourceRequirements{}, 2},
		{v1.ResourceRequirements{Limits: cpus("2")}, v1.ResourceRequirements{}, 2048},
		{v1.ResourceRequirements{Requests: cpus("0"), Limits: cpus("2")},
			v1.ResourceRequirements{}, 2},
		{v1.ResourceRequirements{Requests: cpus("1")},
			v1.ResourceRequirements{Limits: cpus("3")}, 1024},
		{v1.ResourceRequirements{}, v1.ResourceRequirements{Limits: cpus("3")}, 3072},
	} {
		p.web().Resources, p.Spec.Spec.Resources = c.own, &c.pod
		if got := p.ContainerResources(p.web()).CpuShares; got != c.want {
			t.Errorf("%+v in %+v: %d shares, want %d", c.own, c.pod, got, c.want)
		}
	}
}
