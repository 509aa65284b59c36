package admission

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
)

func list(pairs ...string) v1.ResourceList {
	l := v1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		l[v1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return l
}

// asks is a pod that asks for resources.
func asks(name string, pairs ...string) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}}
	p.Spec.Containers = []v1.Container{{Resources: v1.ResourceRequirements{Requests: list(pairs...)}}}
	return p
}

func changed(p *v1.Pod, change func(*v1.Pod)) *v1.Pod {
	change(p)
	return p
}

func onPort(name string, ip string, port int32) *v1.Pod {
	return changed(asks(name), func(p *v1.Pod) {
		p.Spec.Containers[0].Ports = []v1.ContainerPort{{HostIP: ip, HostPort: port}}
	})
}

var aNode = &v1.Node{
	ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"disk": "ssd",
		v1.LabelOSStable: "linux"}},
	Spec: v1.NodeSpec{Taints: []v1.Taint{{Key: "gpu", Effect: v1.TaintEffectNoExecute},
		{Key: "busy", Effect: v1.TaintEffectNoSchedule}}},
}

var stands = []v1.Toleration{{Key: "gpu", Operator: v1.TolerationOpExists}}

func TestReject(t *testing.T) {
	tolerant := func(p *v1.Pod) { p.Spec.Tolerations = stands }
	has := list("cpu", "2", "memory", "1Gi", "pods", "3", "ephemeral-storage", "1Gi")
	for _, c := range []struct {
		name   string
		pod    *v1.Pod
		static bool
		others []*v1.Pod
		want   []string
	}{
		{"fits", asks("p", "cpu", "2"), false, nil, nil},
		{"other pods have it", asks("p", "cpu", "2"), false, []*v1.Pod{asks("q", "cpu", "1m")},
			[]string{"OutOfcpu"}},
		{"too little of several", asks("p", "memory", "2Gi", "cpu", "3"), false, nil,
			[]string{"OutOfcpu", "OutOfmemory"}},
		{"no place", asks("p"), false, []*v1.Pod{asks("a"), asks("b"), asks("c")},
			[]string{"OutOfpods"}},
		{"what the node does not know", asks("p", "example.com/fpga", "1"), false, nil, nil},
		{"selector", changed(asks("p"), func(p *v1.Pod) {
			p.Spec.NodeSelector = map[string]string{"disk": "hdd"}
		}), false, nil, []string{"NodeAffinity"}},
		{"another operating system", changed(asks("p"), func(p *v1.Pod) {
			p.Spec.NodeSelector = map[string]string{v1.LabelOSStable: "windows"}
		}), false, nil, []string{"PodOSSelectorNodeLabelDoesNotMatch"}},
		{"for Windows", changed(asks("p"), func(p *v1.Pod) {
			p.Spec.OS = &v1.PodOS{Name: v1.Windows}
		}), false, nil, []string{"PodOSNotSupported"}},
		{"a port that is taken", onPort("p", "", 80), false, []*v1.Pod{onPort("q", "10.0.0.1", 80)},
			[]string{"NodePorts"}},
		{"the same port of other addresses", onPort("p", "10.0.0.2", 80), false,
			[]*v1.Pod{onPort("q", "10.0.0.1", 80)}, nil},
	} {
		check := Check{Pod: changed(c.pod, tolerant), Static: c.static, Node: aNode,
			Allocatable: has, Others: c.others}
		var got []string
		for _, f := range check.Reject() {
			got = append(got, f.Reason)
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s: %s", c.name, d)
		}
	}
}

func TestTaints(t *testing.T) {
	check := Check{Pod: asks("p"), Node: aNode}
	if got := check.Reject(); len(got) != 1 || got[0].Reason != "TaintToleration" {
		t.Errorf("rejected for %v", got)
	}
	check.Static = true
	if got := check.Reject(); len(got) > 0 {
		t.Errorf("a static pod is rejected for %v", got)
	}
}

func TestMessage(t *testing.T) {
	check := Check{Pod: asks("p", "cpu", "4"), Allocatable: list("cpu", "2"),
		Others: []*v1.Pod{asks("q", "cpu", "500m")}}
	got := check.Reject()[0]
	want := "Node didn't have enough resource: cpu, requested: 4000, used: 500, capacity: 2000"
	if got.Message != want || got.Missing != (Missing{v1.ResourceCPU, 2500}) {
		t.Errorf("%+v, want message %q", got, want)
	}
}

func critical(p *v1.Pod) *v1.Pod {
	priority := int32(systemCritical)
	return changed(p, func(p *v1.Pod) { p.Spec.Priority = &priority })
}

func TestVictims(t *testing.T) {
	of := func(qos v1.PodQOSClass, pods ...*v1.Pod) []Candidate {
		var list []Candidate
		for _, p := range pods {
			list = append(list, Candidate{Pod: p, QOS: qos})
		}
		return list
	}
	none := of(v1.PodQOSBestEffort, asks("e1"), asks("e2"))
	burst := of(v1.PodQOSBurstable, asks("b1", "cpu", "1"), asks("b2", "cpu", "2"))
	full := of(v1.PodQOSGuaranteed, asks("g1", "cpu", "4"))
	for _, c := range []struct {
		name   string
		pod    *v1.Pod
		need   []Missing
		others []Candidate
		want   []string
	}{
		{"a place", critical(asks("p")), []Missing{{v1.ResourcePods, 1}},
			append(none, burst...), []string{"e1"}},
		{"the nearest", critical(asks("p")), []Missing{{v1.ResourceCPU, 2000}},
			append(none, burst...), []string{"b2"}},
		{"the better class only if it must be", critical(asks("p")),
			[]Missing{{v1.ResourceCPU, 3000}}, append(burst, full...), []string{"b2", "b1"}},
		{"the better class", critical(asks("p")), []Missing{{v1.ResourceCPU, 5000}},
			append(burst, full...), []string{"b1", "g1"}},
		{"never enough", critical(asks("p")), []Missing{{v1.ResourceCPU, 9000}}, full, nil},
		{"more than room", critical(asks("p")), []Missing{{}}, full, nil},
		{"not critical", asks("p"), []Missing{{v1.ResourcePods, 1}}, none, nil},
		{"of critical ones", critical(asks("p")), []Missing{{v1.ResourcePods, 1}},
			of(v1.PodQOSBestEffort, critical(asks("c"))), nil},
	} {
		var failures []Failure
		for _, m := range c.need {
			failures = append(failures, Failure{Missing: m})
		}
		victims, ok := Victims(c.pod, false, failures, c.others)
		var got []string
		for _, v := range victims {
			got = append(got, v.Name)
		}
		if d := cmp.Diff(c.want, got); d != "" || ok != (c.want != nil) {
			t.Errorf("%s: %v %s", c.name, ok, d)
		}
	}
}

func TestDecisive(t *testing.T) {
	failures := []Failure{{Reason: "OutOfcpu", Missing: Missing{v1.ResourceCPU, 1}},
		{Reason: "NodePorts"}}
	for _, c := range []struct {
		pod      *v1.Pod
		failures []Failure
		want     string
	}{
		{asks("p"), failures, "OutOfcpu"},
		{critical(asks("p")), failures, "NodePorts"},
		{critical(asks("p")), failures[:1], "OutOfcpu"},
	} {
		if got := Decisive(c.pod, false, c.failures).Reason; got != c.want {
			t.Errorf("%s, want %s", got, c.want)
		}
	}
}

// Once the victims have gone the pod fits.
func TestVictimsMakeRoom(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		amount := rapid.IntRange(0, 4)
		pod := critical(asks("p", "cpu", fmt.Sprint(amount.Draw(t, "cpu"))))
		var others []Candidate
		check := Check{Pod: pod, Allocatable: list("cpu", "6", "pods", "4")}
		for i := range rapid.IntRange(0, 4).Draw(t, "others") {
			cpu := rapid.IntRange(0, 2).Draw(t, "its cpu")
			other := asks(fmt.Sprintf("o%d", i), "cpu", fmt.Sprint(cpu))
			qos := v1.PodQOSBurstable
			if cpu == 0 {
				qos = v1.PodQOSBestEffort
			}
			others = append(others, Candidate{Pod: other, QOS: qos})
			check.Others = append(check.Others, other)
		}
		victims, ok := Victims(pod, false, check.Reject(), others)
		if !ok {
			t.Fatal("all of them would have made room")
		}
		for _, v := range victims {
			check.Others = without(check.Others, v)
		}
		if why := check.Reject(); len(why) > 0 {
			t.Errorf("still rejected for %v", why)
		}
	})
}

func without(pods []*v1.Pod, pod *v1.Pod) []*v1.Pod {
	var rest []*v1.Pod
	for _, p := range pods {
		if p != pod {
			rest = append(rest, p)
		}
	}
	return rest
}
