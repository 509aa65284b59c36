package admission

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
)

func resources(pairs ...string) v1.ResourceList {
	l := v1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		l[v1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return l
}

// podRequesting returns a pod that requests pairs of resource and amount.
func podRequesting(name string, pairs ...string) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}}
	p.Spec.Containers = []v1.Container{{
		Resources: v1.ResourceRequirements{Requests: resources(pairs...)}}}
	return p
}

func modified(p *v1.Pod, change func(*v1.Pod)) *v1.Pod {
	change(p)
	return p
}

func podOnHostPort(name string, ip string, port int32) *v1.Pod {
	return modified(podRequesting(name), func(p *v1.Pod) {
		p.Spec.Containers[0].Ports = []v1.ContainerPort{{HostIP: ip, HostPort: port}}
	})
}

var testNode = &v1.Node{
	ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"disk": "ssd",
		v1.LabelOSStable: "linux"}},
	Spec: v1.NodeSpec{Taints: []v1.Taint{{Key: "gpu", Effect: v1.TaintEffectNoExecute},
		{Key: "busy", Effect: v1.TaintEffectNoSchedule}}},
}

var gpuToleration = []v1.Toleration{{Key: "gpu", Operator: v1.TolerationOpExists}}

func TestFailures(t *testing.T) {
	tolerant := func(p *v1.Pod) { p.Spec.Tolerations = gpuToleration }
	has := resources("cpu", "2", "memory", "1Gi", "pods", "3", "ephemeral-storage", "1Gi")
	for _, c := range []struct {
		name   string
		pod    *v1.Pod
		static bool
		others []*v1.Pod
		want   []string
	}{
		{"fits", podRequesting("p", "cpu", "2"), false, nil, nil},
		{"other pods use it", podRequesting("p", "cpu", "2"), false,
			[]*v1.Pod{podRequesting("q", "cpu", "1m")}, []string{"OutOfcpu"}},
		{"several resources are short", podRequesting("p", "memory", "2Gi", "cpu", "3"), false, nil,
			[]string{"OutOfcpu", "OutOfmemory"}},
		{"too many pods", podRequesting("p"), false,
			[]*v1.Pod{podRequesting("a"), podRequesting("b"), podRequesting("c")},
			[]string{"OutOfpods"}},
		{"huge pages that the node does not have", podRequesting("p", "hugepages-1Gi", "1Gi"),
			false, nil, []string{"OutOfhugepages-1Gi"}},
		{"a resource that the node does not have", podRequesting("p", "example.com/fpga", "1"), false,
			nil, nil},
		{"selector", modified(podRequesting("p"), func(p *v1.Pod) {
			p.Spec.NodeSelector = map[string]string{"disk": "hdd"}
		}), false, nil, []string{"NodeAffinity"}},
		{"selector and resources", modified(podRequesting("p", "cpu", "3"), func(p *v1.Pod) {
			p.Spec.NodeSelector = map[string]string{"disk": "hdd"}
		}), false, nil, []string{"OutOfcpu", "NodeAffinity"}},
		{"selector and name", modified(podRequesting("p"), func(p *v1.Pod) {
			p.Spec.NodeSelector = map[string]string{"disk": "hdd"}
			p.Spec.NodeName = "another"
		}), false, nil, []string{"NodeAffinity", "NodeName"}},
		{"another operating system", modified(podRequesting("p"), func(p *v1.Pod) {
			p.Spec.NodeSelector = map[string]string{v1.LabelOSStable: "windows"}
		}), false, nil, []string{"NodeAffinity"}},
		{"labeled for Windows", modified(podRequesting("p"), func(p *v1.Pod) {
			p.Labels, p.Spec.OS = map[string]string{v1.LabelOSStable: "windows"}, &v1.PodOS{Name: "windows"}
		}), false, nil, []string{"PodOSSelectorNodeLabelDoesNotMatch"}},
		{"for Windows", modified(podRequesting("p"), func(p *v1.Pod) {
			p.Spec.OS = &v1.PodOS{Name: v1.Windows}
		}), false, nil, []string{"PodOSNotSupported"}},
		{"a host port in use", podOnHostPort("p", "", 80), false,
			[]*v1.Pod{podOnHostPort("q", "10.0.0.1", 80)}, []string{"NodePorts"}},
		{"the same host port of another address", podOnHostPort("p", "10.0.0.2", 80), false,
			[]*v1.Pod{podOnHostPort("q", "10.0.0.1", 80)}, nil},
		{"the same host port of the same address", podOnHostPort("p", "10.0.0.1", 80), false,
			[]*v1.Pod{podOnHostPort("q", "10.0.0.1", 80)}, []string{"NodePorts"}},
		{"a host port of an address that another pod has of all", podOnHostPort("p", "10.0.0.1", 80),
			false, []*v1.Pod{podOnHostPort("q", "0.0.0.0", 80)}, []string{"NodePorts"}},
		{"another host port", podOnHostPort("p", "", 81), false,
			[]*v1.Pod{podOnHostPort("q", "", 80)}, nil},
		{"the same host port of another protocol",
			modified(podOnHostPort("p", "", 80), func(p *v1.Pod) {
				p.Spec.Containers[0].Ports[0].Protocol = v1.ProtocolUDP
			}), false, []*v1.Pod{podOnHostPort("q", "", 80)}, nil},
	} {
		check := Check{Pod: modified(c.pod, tolerant), Static: c.static, Node: testNode,
			Allocatable: has, OtherPods: c.others}
		failures, got := check.Failures(), []string(nil)
		for _, f := range failures {
			got = append(got, f.Reason)
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s: %s", c.name, d)
		}
	}
}

func TestCausedByNode(t *testing.T) {
	for reason, want := range map[string]bool{ //ordered: each alone
		"NodeAffinity": true, "TaintToleration": true, "NodePorts": false, "OutOfcpu": false,
	} {
		if CausedByNode(Failure{Reason: reason}) != want {
			t.Errorf("%s is caused by the Node: %v", reason, !want)
		}
	}
}

func TestTaints(t *testing.T) {
	check := Check{Pod: podRequesting("p"), Node: testNode}
	const message = "Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate"
	if got := check.Failures(); len(got) != 1 || got[0].Message != message {
		t.Errorf("rejected for %v", got)
	}
	check.Static = true
	if got := check.Failures(); len(got) > 0 {
		t.Errorf("a static pod is rejected for %v", got)
	}
}

func TestMessage(t *testing.T) {
	check := Check{Pod: podRequesting("p", "cpu", "4"), Allocatable: resources("cpu", "2"),
		OtherPods: []*v1.Pod{podRequesting("q", "cpu", "500m")}}
	got := check.Failures()[0]
	want := "Node didn't have enough resource: cpu, requested: 4000, used: 500, capacity: 2000"
	if got.Message != want || got.Shortage != (Shortage{v1.ResourceCPU, 2500}) {
		t.Errorf("%+v, want message %q", got, want)
	}
}

func critical(p *v1.Pod) *v1.Pod {
	priority := int32(systemCriticalPriority)
	return modified(p, func(p *v1.Pod) { p.Spec.Priority = &priority })
}

func TestVictims(t *testing.T) {
	of := func(qos v1.PodQOSClass, pods ...*v1.Pod) []Candidate {
		var list []Candidate
		for _, p := range pods {
			list = append(list, Candidate{Pod: p, QOS: qos})
		}
		return list
	}
	none := of(v1.PodQOSBestEffort, podRequesting("e1"), podRequesting("e2"))
	burst := of(v1.PodQOSBurstable, podRequesting("b1", "cpu", "1"), podRequesting("b2", "cpu", "2"))
	full := of(v1.PodQOSGuaranteed, podRequesting("g1", "cpu", "4"))
	for _, c := range []struct {
		name   string
		pod    *v1.Pod
		need   []Shortage
		others []Candidate
		want   []string
	}{
		{"one pod less", critical(podRequesting("p")), []Shortage{{v1.ResourcePods, 1}},
			append(none, burst...), []string{"e1"}},
		{"the nearest amount", critical(podRequesting("p")), []Shortage{{v1.ResourceCPU, 2000}},
			append(none, burst...), []string{"b2"}},
		{"a better class is spared if possible", critical(podRequesting("p")),
			[]Shortage{{v1.ResourceCPU, 3000}}, append(burst, full...), []string{"b2", "b1"}},
		{"the better class", critical(podRequesting("p")), []Shortage{{v1.ResourceCPU, 5000}},
			append(burst, full...), []string{"b1", "g1"}},
		{"all pods are not enough", critical(podRequesting("p")),
			[]Shortage{{v1.ResourceCPU, 9000}}, full, nil},
		{"a failure that is no shortage", critical(podRequesting("p")), []Shortage{{}}, full, nil},
		{"not critical", podRequesting("p"), []Shortage{{v1.ResourcePods, 1}}, none, nil},
		{"critical pods are not preempted", critical(podRequesting("p")),
			[]Shortage{{v1.ResourcePods, 1}}, of(v1.PodQOSBestEffort, critical(podRequesting("c"))), nil},
	} {
		var failures []Failure
		for _, m := range c.need {
			failures = append(failures, Failure{Shortage: m})
		}
		victims, ok := (&Check{Pod: c.pod}).Victims(failures, c.others)
		var got []string
		for _, v := range victims {
			got = append(got, v.Name)
		}
		if d := cmp.Diff(c.want, got); d != "" || ok != (c.want != nil) {
			t.Errorf("%s: %v %s", c.name, ok, d)
		}
	}
}

func TestDecisiveFailure(t *testing.T) {
	failures := []Failure{{Reason: "OutOfcpu", Shortage: Shortage{v1.ResourceCPU, 1}},
		{Reason: "NodePorts"}}
	for _, c := range []struct {
		pod      *v1.Pod
		failures []Failure
		want     string
	}{
		{podRequesting("p"), failures, "OutOfcpu"},
		{critical(podRequesting("p")), failures, "NodePorts"},
		{critical(podRequesting("p")), failures[:1], "OutOfcpu"},
	} {
		if got := DecisiveFailure(c.pod, false, c.failures).Reason; got != c.want {
			t.Errorf("%s, want %s", got, c.want)
		}
	}
}

// Amounts that together exceed an int64 neither make room nor take room from others below zero.
func TestAmountsDoNotWrapAround(t *testing.T) {
	huge := func(name, x, y string) *v1.Pod {
		return modified(podRequesting("h", name, x), func(p *v1.Pod) {
			p.Spec.Containers = append(p.Spec.Containers, podRequesting("", name, y).Spec.Containers...)
		})
	}
	allocatable := resources("cpu", "2", "memory", "1Gi")
	for _, test := range []struct{ name, x, y string }{
		{"memory", "9223372036854775807", "1"},
		{"memory", "9223372036854775807", "9223371929480593409"}, // 2^64 - 100 GiB
		{"cpu", "9223372036854775", "9223372036854675"},
	} {
		name := v1.ResourceName(test.name)
		other := huge(test.name, test.x, test.y)
		check := Check{Pod: podRequesting("p", test.name, "50"), Allocatable: allocatable,
			OtherPods: []*v1.Pod{other}}
		if got := check.Failures(); len(got) != 1 || got[0].Shortage.Resource != name ||
			!strings.Contains(got[0].Message, "used: 4503599627370496, ") {
			t.Errorf("beside %+v: %+v", test, got)
		}
		alone := Check{Pod: other, Allocatable: allocatable}
		if got := alone.Failures(); len(got) != 1 || got[0].Shortage.Resource != name {
			t.Errorf("%+v: %+v", test, got)
		}
	}
	many := Check{Pod: podRequesting("p", "memory", "1"), Allocatable: allocatable}
	for range 5000 {
		many.OtherPods = append(many.OtherPods, podRequesting("q", "memory", "9223372036854775807"))
	}
	if got := many.Failures(); len(got) != 1 {
		t.Errorf("beside many: %+v", got)
	}
	negative := DecodeAllocation(`{"resources":{"requests":{"memory":"-5Gi"}}}`)
	if got := requests(negative)[v1.ResourceMemory]; got != 0 {
		t.Errorf("a negative amount counts as %d", got)
	}
}

// The requests of a candidate are summed once, however many there are and whatever they request.
func TestCostOfVictims(t *testing.T) {
	const count = 100
	check := Check{Pod: critical(podRequesting("p", "memory", "1Ti")),
		Allocatable: resources("memory", "100Mi")}
	var candidates []Candidate
	for i := range count {
		p := podRequesting(fmt.Sprint("v", i), "memory", "1Mi")
		for k := range 1000 {
			name := v1.ResourceName(fmt.Sprint("example.com/r", k))
			p.Spec.Containers[0].Resources.Requests[name] = resource.MustParse("1")
		}
		check.OtherPods = append(check.OtherPods, p)
		candidates = append(candidates, Candidate{Pod: p, QOS: v1.PodQOSBurstable})
	}
	check.Requests.Remember(check.OtherPods)
	failures := []Failure{{Shortage: Shortage{v1.ResourceMemory, count << 20}}}
	allocations := testing.AllocsPerRun(1, func() {
		if victims, ok := check.Victims(failures, candidates); !ok || len(victims) != count {
			t.Errorf("%d victims, %t", len(victims), ok)
		}
	})
	if allocations > 20*count {
		t.Errorf("%v allocations for %d candidates", allocations, count)
	}
}

// Without the victims the pod fits.
func TestPodFitsWithoutTheVictims(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		amount := rapid.IntRange(0, 4)
		pod := critical(podRequesting("p", "cpu", fmt.Sprint(amount.Draw(t, "cpu"))))
		var others []Candidate
		check := Check{Pod: pod, Allocatable: resources("cpu", "6", "pods", "4")}
		for i := range rapid.IntRange(0, 4).Draw(t, "others") {
			cpu := rapid.IntRange(0, 2).Draw(t, "its cpu")
			other := podRequesting(fmt.Sprintf("o%d", i), "cpu", fmt.Sprint(cpu))
			qos := v1.PodQOSBurstable
			if cpu == 0 {
				qos = v1.PodQOSBestEffort
			}
			others = append(others, Candidate{Pod: other, QOS: qos})
			check.OtherPods = append(check.OtherPods, other)
		}
		victims, ok := check.Victims(check.Failures(), others)
		if !ok {
			t.Fatal("no victims, but all of them would do")
		}
		for _, v := range victims {
			check.OtherPods = without(check.OtherPods, v)
		}
		if remaining := check.Failures(); len(remaining) > 0 {
			t.Errorf("still rejected for %v", remaining)
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
