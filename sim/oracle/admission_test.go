package oracle

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"seedlet.dev/core/manifest"
	"seedlet.dev/sim/truth"
	api "seedlet.dev/world"
)

// hasCPUs is the node with so many CPUs and three places.
func (s *story) hasCPUs(cpus string) {
	s.world.opts.Allocatable = v1.ResourceList{"cpu": resource.MustParse(cpus),
		"memory": resource.MustParse("1Gi"), "pods": resource.MustParse("3")}
}

// asking is a pod of a name of its own, that asks for CPUs.
func asking(uid, cpus string, changes ...func(*v1.Pod)) *v1.Pod {
	p := spec(uid, always, "app")
	p.Name = uid
	p.Spec.Containers[0].Resources.Requests = v1.ResourceList{"cpu": resource.MustParse(cpus)}
	for _, change := range changes {
		change(p)
	}
	return p
}

func onPort(p *v1.Pod) { p.Spec.Containers[0].Ports = []v1.ContainerPort{{HostPort: 80}} }

func fromFile(p *v1.Pod) {
	p.Annotations = map[string]string{manifest.ConfigSourceAnnotation: "file"}
}

func ranked(priority int32) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Spec.Priority = &priority }
}

// takes wants a pod and runs it.
func (s *story) takes(p *v1.Pod) run {
	s.want(p)
	r := run{s, truth.Fact{PodUID: string(p.UID), PodName: p.Name, SandboxID: p.Name + "-s0"}}
	r.is(truth.SandboxCreated, "")
	r.is(truth.SandboxReady, "")
	return r.starts("app", 0)
}

// starts makes and starts a container in the same sandbox.
func (r run) starts(name string, attempt uint32) run {
	r.f.Container, r.f.Attempt = name, attempt
	r.f.ContainerID = fmt.Sprintf("%s-%s#%d", r.f.PodUID, name, attempt)
	r.is(truth.ContainerCreated, "")
	r.is(truth.ContainerStarted, "")
	return r
}

// failed has the agent tell that a pod has failed.
func (s *story) failed(p *v1.Pod, reason, message string) {
	is := p.DeepCopy()
	is.Status = v1.PodStatus{Phase: v1.PodFailed, Reason: reason, Message: message}
	s.stored(1, p, is)
}

func (s *story) node(change func(*v1.Node)) {
	n := &v1.Node{}
	change(n)
	s.Fact(truth.Fact{Time: s.now, Kind: truth.ObjectWritten, Write: &truth.Write{
		Resource: api.ResourceNodes, After: api.Object{Node: n}}})
}

func TestAdmission(t *testing.T) {
	judge(t, []tale{
		{"what fits", "", func(s *story) {
			s.hasCPUs("2")
			s.takes(asking("u1", "1500m", onPort))
			s.takes(asking("u2", "500m"))
		}},
		{"more than there is", "admission", func(s *story) {
			s.hasCPUs("2")
			s.takes(asking("u1", "1500m"))
			s.takes(asking("u2", "501m"))
		}},
		{"after the other has ended", "", func(s *story) {
			s.hasCPUs("2")
			s.takes(asking("u1", "1500m")).exit(143, truth.CauseStop)
			s.Unwanted(s.now, "u1")
			s.takes(asking("u2", "501m"))
		}},
		{"while the other is to run again", "admission", func(s *story) {
			s.hasCPUs("2")
			s.takes(asking("u1", "1500m")).exit(1, truth.CauseOwn)
			s.takes(asking("u2", "501m"))
		}},
		{"no place", "admission", func(s *story) {
			s.hasCPUs("2")
			for _, uid := range []string{"u1", "u2", "u3", "u4"} {
				s.takes(asking(uid, "0"))
			}
		}},
		{"a port twice", "admission", func(s *story) {
			s.hasCPUs("2")
			s.takes(asking("u1", "1", onPort))
			s.takes(asking("u2", "1", onPort))
		}},
		{"what is driven away", "admission", func(s *story) {
			s.hasCPUs("2")
			s.node(tainted)
			s.wait(60)
			s.takes(asking("u1", "1"))
		}},
	})
}

func tainted(n *v1.Node) {
	n.Spec.Taints = []v1.Taint{{Key: "k", Effect: v1.TaintEffectNoExecute}}
}

func TestRejection(t *testing.T) {
	rejects := func(cpus, reason string, changes ...func(*v1.Pod)) func(*story) {
		return func(s *story) {
			s.hasCPUs("2")
			s.takes(asking("u1", "1500m", onPort))
			p := asking("u2", cpus, changes...)
			s.want(p)
			s.failed(p, reason, "")
		}
	}
	judge(t, []tale{
		{"no room", "", rejects("501m", "OutOfcpu")},
		{"room", "admission", rejects("500m", "OutOfcpu")},
		{"enough of it", "admission", rejects("501m", "OutOfmemory")},
		{"a port that is taken", "", rejects("0", "NodePorts", onPort)},
		{"a port that is free", "admission", rejects("0", "NodePorts")},
		{"a critical pod, if others can make room", "admission",
			rejects("1", "OutOfcpu", ranked(priorityMin))},
		{"a critical pod that is too large", "", rejects("3", "OutOfcpu", ranked(priorityMin))},
		{"what has run", "admission", func(s *story) {
			s.hasCPUs("2")
			s.takes(asking("u1", "3")).exit(1, truth.CauseOwn)
			s.failed(s.pods["u1"], "OutOfcpu", "")
		}},
		{"a taint", "", func(s *story) {
			s.hasCPUs("2")
			s.node(tainted)
			p := asking("u1", "0")
			s.want(p)
			s.failed(p, "TaintToleration", "")
		}},
		{"a taint of another time", "admission", func(s *story) {
			s.node(tainted)
			s.node(func(*v1.Node) {})
			s.wait(60)
			rejects("0", "TaintToleration")(s)
		}},
		{"a label", "", func(s *story) {
			s.node(func(*v1.Node) {})
			rejects("0", "NodeAffinity", func(p *v1.Pod) {
				p.Spec.NodeSelector = map[string]string{"disk": "ssd"}
			})(s)
		}},
	})
}

// While there is no Node, it is what the agent registers that a pod is held against.
func TestNoNodeYet(t *testing.T) {
	taken := func(label, value string) func(*story) {
		return func(s *story) {
			s.hasCPUs("2")
			s.world.opts.Registers = &v1.Node{}
			s.world.opts.Registers.Labels = map[string]string{v1.LabelHostname: "sim"}
			s.takes(asking("u1", "0", func(p *v1.Pod) {
				p.Spec.NodeSelector = map[string]string{label: value}
			}))
		}
	}
	judge(t, []tale{
		{"a place for it", "", taken(v1.LabelHostname, "sim")},
		{"no place for it", "admission", taken("disk", "ssd")},
	})
}

func TestPreemption(t *testing.T) {
	preempts := func(cpus string, priority int32, message string, changes ...func(*v1.Pod)) func(
		*story) {
		return func(s *story) {
			s.hasCPUs("2")
			c := s.takes(asking("u1", "1500m", changes...))
			s.wait(60)
			s.want(asking("u2", cpus, ranked(priority)))
			c.is(truth.StopRequested, "")
			c.exit(143, truth.CauseStop)
			s.failed(s.pods["u1"], reasonPreempted, message)
		}
	}
	judge(t, []tale{
		{"needed", "", preempts("1", priorityMin, messagePreempted)},
		{"not told", "preemption", preempts("1", priorityMin, "")},
		{"not needed", "preemption undisturbed", preempts("500m", priorityMin, messagePreempted)},
		{"by nobody", "preemption undisturbed", preempts("1", 1000, messagePreempted)},
		{"of as critical a one", "preemption undisturbed",
			preempts("1", priorityMin, messagePreempted, ranked(priorityMin))},
		{"of a less critical one", "",
			preempts("1", priorityMin+1000, messagePreempted, ranked(priorityMin))},
		{"of a static one", "preemption undisturbed",
			preempts("1", priorityMin, messagePreempted, fromFile)},
	})
}

// A pod that was rejected is in order, if nothing of it is left; so is a static one that waits.
func TestUnsettledByAdmission(t *testing.T) {
	for _, c := range []struct {
		name, want string
		tell       func(*story)
	}{
		{"rejected", "", func(s *story) {
			p := asking("u2", "3")
			s.want(p)
			s.failed(p, "OutOfcpu", "")
		}},
		{"rejected, with a sandbox", "pod ns/u2 (uid u2): it was rejected, but has a sandbox",
			func(s *story) {
				p := asking("u2", "3")
				s.want(p)
				s.failed(p, "OutOfcpu", "")
				s.sandbox("u2", 0)
			}},
		{"a static one that waits", "", func(s *story) { s.want(asking("u2", "3", fromFile)) }},
		{"a static one that need not", "pod ns/u2 (uid u2): it has no sandbox that is ready",
			func(s *story) { s.want(asking("u2", "2", fromFile)) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := tell()
			s.hasCPUs("2")
			c.tell(s)
			s.wait(60)
			if got := s.world.pods["u2"].lacksRun(s.now); c.want == "" && got != "" ||
				c.want != "" && "pod ns/u2 (uid u2): "+got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestEphemeral(t *testing.T) {
	debugged := func(p *v1.Pod) {
		p.Spec.EphemeralContainers = []v1.EphemeralContainer{{
			EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug"}}}
	}
	judge(t, []tale{
		{"once", "", func(s *story) {
			s.takes(asking("u1", "0", debugged)).starts("debug", 0).exit(1, truth.CauseOwn)
		}},
		{"again", "ephemeral", func(s *story) {
			r := s.takes(asking("u1", "0", debugged)).starts("debug", 0)
			r.exit(1, truth.CauseOwn)
			s.wait(60)
			r.starts("debug", 1)
		}},
	})
	s := tell()
	s.takes(asking("u1", "0", debugged))
	const want = "ephemeral container debug has never run"
	if got := s.world.pods["u1"].lacksRun(s.now); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
