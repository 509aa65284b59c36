package oracle

import (
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"seedlet.dev/sim/truth"
	api "seedlet.dev/world"
)

// setCPUs sets the allocatable of the node: the given CPUs, and three pods.
func (s *script) setCPUs(cpus string) {
	s.model.opts.Allocatable = v1.ResourceList{"cpu": resource.MustParse(cpus),
		"memory": resource.MustParse("1Gi"), "pods": resource.MustParse("3")}
}

// podWithCPUs returns a pod with a name of its own that requests CPUs.
func podWithCPUs(uid, cpus string, changes ...func(*v1.Pod)) *v1.Pod {
	p := spec(uid, always, "app")
	p.Name = uid
	p.Spec.Containers[0].Resources.Requests = v1.ResourceList{"cpu": resource.MustParse(cpus)}
	for _, change := range changes {
		change(p)
	}
	return p
}

func withHostPort(p *v1.Pod) { p.Spec.Containers[0].Ports = []v1.ContainerPort{{HostPort: 80}} }

func asStatic(p *v1.Pod) {
	p.Annotations = map[string]string{annotationSource: "file"}
}

func withPriority(priority int32) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Spec.Priority = &priority }
}

// runPod makes a pod desired and starts it.
func (s *script) runPod(p *v1.Pod) run {
	s.setDesired(p)
	r := run{s, truth.Fact{PodUID: string(p.UID), PodName: p.Name, SandboxID: p.Name + "-s0"}}
	r.change(truth.SandboxCreated, "")
	r.change(truth.SandboxReady, "")
	return r.startNext("app", 0)
}

// startNext creates and starts a container in the same sandbox.
func (r run) startNext(name string, attempt uint32) run {
	r.fact.Container, r.fact.Attempt = name, attempt
	r.fact.ContainerID = fmt.Sprintf("%s-%s#%d", r.fact.PodUID, name, attempt)
	r.change(truth.ContainerCreated, "")
	r.change(truth.ContainerStarted, "")
	return r
}

// reportFailed adds the agent's report that a pod has failed.
func (s *script) reportFailed(p *v1.Pod, reason, message string) {
	is := p.DeepCopy()
	is.Status = v1.PodStatus{Phase: v1.PodFailed, Reason: reason, Message: message}
	if reason == reasonPreempted {
		is.Status.Conditions = []v1.PodCondition{disruptionTarget}
	}
	s.store(1, p, is)
}

// disruptionTarget is the condition of a pod that an agent has ended for the node.
var disruptionTarget = v1.PodCondition{Type: v1.DisruptionTarget, Status: v1.ConditionTrue,
	Reason: v1.PodReasonTerminationByKubelet}

func (s *script) setNode(change func(*v1.Node)) {
	n := &v1.Node{}
	change(n)
	s.CheckFact(truth.Fact{Time: s.now, Kind: truth.ObjectUpdated, Write: &truth.Write{
		Resource: api.ResourceNodes, After: api.Object{Node: n}}})
}

func TestAdmission(t *testing.T) {
	runCases(t, []testCase{
		{"pods that fit", "", func(s *script) {
			s.setCPUs("2")
			s.runPod(podWithCPUs("u1", "1500m", withHostPort))
			s.runPod(podWithCPUs("u2", "500m"))
		}},
		{"more CPUs than allocatable", "admission", func(s *script) {
			s.setCPUs("2")
			s.runPod(podWithCPUs("u1", "1500m"))
			s.runPod(podWithCPUs("u2", "501m"))
		}},
		{"after the other pod has ended", "", func(s *script) {
			s.setCPUs("2")
			s.runPod(podWithCPUs("u1", "1500m")).exit(143, truth.CauseStop)
			s.PodNoLongerDesired(s.now, "u1")
			s.runPod(podWithCPUs("u2", "501m"))
		}},
		{"while the other pod is in back-off", "admission", func(s *script) {
			s.setCPUs("2")
			s.runPod(podWithCPUs("u1", "1500m")).exit(1, truth.CauseSelf)
			s.runPod(podWithCPUs("u2", "501m"))
		}},
		{"more pods than allocatable", "admission", func(s *script) {
			s.setCPUs("2")
			for _, uid := range []string{"u1", "u2", "u3", "u4"} {
				s.runPod(podWithCPUs(uid, "0"))
			}
		}},
		{"a host port twice", "admission", func(s *script) {
			s.setCPUs("2")
			s.runPod(podWithCPUs("u1", "1", withHostPort))
			s.runPod(podWithCPUs("u2", "1", withHostPort))
		}},
		{"an untolerated taint", "admission", func(s *script) {
			s.setCPUs("2")
			s.setNode(addTaint)
			s.wait(60)
			s.runPod(podWithCPUs("u1", "1"))
		}},
	})
}

func addTaint(n *v1.Node) {
	n.Spec.Taints = []v1.Taint{{Key: "k", Effect: v1.TaintEffectNoExecute}}
}

func TestRejection(t *testing.T) {
	rejects := func(cpus, reason string, changes ...func(*v1.Pod)) func(*script) {
		return func(s *script) {
			s.setCPUs("2")
			s.runPod(podWithCPUs("u1", "1500m", withHostPort))
			p := podWithCPUs("u2", cpus, changes...)
			s.setDesired(p)
			s.reportFailed(p, reason, "")
		}
	}
	runCases(t, []testCase{
		{"too few CPUs", "", rejects("501m", "OutOfcpu")},
		{"enough CPUs", "admission", rejects("500m", "OutOfcpu")},
		{"enough memory", "admission", rejects("501m", "OutOfmemory")},
		{"a used host port", "", rejects("0", "NodePorts", withHostPort)},
		{"a free host port", "admission", rejects("0", "NodePorts")},
		{"a critical pod that could pre-empt", "admission",
			rejects("1", "OutOfcpu", withPriority(systemCriticalPriority))},
		{"a critical pod that is too large", "",
			rejects("3", "OutOfcpu", withPriority(systemCriticalPriority))},
		{"a pod that has run", "admission", func(s *script) {
			s.setCPUs("2")
			s.runPod(podWithCPUs("u1", "3")).exit(1, truth.CauseSelf)
			s.reportFailed(s.pods["u1"], "OutOfcpu", "")
		}},
		{"a taint", "", func(s *script) {
			s.setCPUs("2")
			s.setNode(addTaint)
			p := podWithCPUs("u1", "0")
			s.setDesired(p)
			s.reportFailed(p, "TaintToleration", "")
		}},
		{"a taint that is gone", "admission", func(s *script) {
			s.setNode(addTaint)
			s.setNode(func(*v1.Node) {})
			s.wait(60)
			rejects("0", "TaintToleration")(s)
		}},
		{"a taint that was gone before the pod came, under a fault", "admission", func(s *script) {
			s.setNode(addTaint)
			s.setNode(func(*v1.Node) {})
			s.wait(1)
			s.model.opts.FaultPossible = func(string, time.Time, time.Time) bool { return true }
			rejects("0", "TaintToleration")(s)
		}},
		{"a missing label", "", func(s *script) {
			s.setNode(func(*v1.Node) {})
			rejects("0", "NodeAffinity", func(p *v1.Pod) {
				p.Spec.NodeSelector = map[string]string{"disk": "ssd"}
			})(s)
		}},
	})
}

// While there is no Node, the Node that the agent registers decides.
func TestAdmissionWithoutNode(t *testing.T) {
	admitted := func(label, value string) func(*script) {
		return func(s *script) {
			s.setCPUs("2")
			s.model.opts.RegisteredNode = &v1.Node{}
			s.model.opts.RegisteredNode.Labels = map[string]string{v1.LabelHostname: "sim"}
			s.runPod(podWithCPUs("u1", "0", func(p *v1.Pod) {
				p.Spec.NodeSelector = map[string]string{label: value}
			}))
		}
	}
	runCases(t, []testCase{
		{"a matching label", "", admitted(v1.LabelHostname, "sim")},
		{"no matching label", "admission", admitted("disk", "ssd")},
	})
}

// A rejected pod of which nothing is left is settled, and so is a static pod that waits.
func TestUnsettledAdmission(t *testing.T) {
	for _, c := range []struct {
		name, want string
		tell       func(*script)
	}{
		{"rejected", "", func(s *script) {
			p := podWithCPUs("u2", "3")
			s.setDesired(p)
			s.reportFailed(p, "OutOfcpu", "")
		}},
		{"rejected, with a sandbox", "pod ns/u2 (uid u2): it was rejected, but has a sandbox",
			func(s *script) {
				p := podWithCPUs("u2", "3")
				s.setDesired(p)
				s.reportFailed(p, "OutOfcpu", "")
				s.sandbox("u2", 0)
			}},
		{"a static pod that waits", "",
			func(s *script) { s.setDesired(podWithCPUs("u2", "3", asStatic)) }},
		{"a static pod that fits", "pod ns/u2 (uid u2): it has no sandbox that is ready",
			func(s *script) { s.setDesired(podWithCPUs("u2", "2", asStatic)) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScript()
			s.setCPUs("2")
			c.tell(s)
			s.wait(60)
			if got := s.model.pods["u2"].runtimeProblem(s.now); c.want == "" && got != "" ||
				c.want != "" && "pod ns/u2 (uid u2): "+got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// Only a pod of the API server that has waited without a fault should have been rejected.
func TestIsPendingForLong(t *testing.T) {
	for _, c := range []struct {
		change  func(*script, *pod)
		seconds float64
		want    bool
	}{
		{func(*script, *pod) {}, 6, true},
		{func(*script, *pod) {}, 4, false},
		{func(_ *script, p *pod) { p.static = true }, 6, false},
		{func(s *script, _ *pod) { s.start(s.sandbox("u1", 0), "app", 0) }, 6, false},
		{func(s *script, _ *pod) { s.restartAgent() }, 6, false},
		{func(s *script, _ *pod) {
			s.model.opts.LastFault = func(time.Time) time.Time { return s.now }
		}, 6, false},
		{func(s *script, _ *pod) { s.model.opts.Shutdown = &Shutdown{} }, 6, false},
	} {
		s := newScript()
		s.AgentStarted(s.now)
		s.wait(60)
		s.setDesired(spec("u1", never, "app"))
		p := s.model.pods["u1"]
		c.change(s, p)
		s.wait(c.seconds)
		if got := p.isPendingForLong(s.served("u1", v1.PodPending), s.now); got != c.want {
			t.Errorf("after %v s: %t, want %t", c.seconds, got, c.want)
		}
	}
}
