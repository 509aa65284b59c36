package oracle

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"seedlet.dev/sim/truth"
	api "seedlet.dev/world"
)

// endedPod is a pod whose container has run for 20 s and exited with code 3, on a node with an API
// server.
type endedPod struct {
	*script
	startedAt, exitedAt time.Time
}

func newEndedPod(s *script) endedPod {
	s.addNode(nil)
	e := endedPod{script: s}
	run := s.startPod(never)
	e.startedAt = s.now
	s.wait(20.25)
	run.exit(3, truth.CauseSelf)
	e.exitedAt = s.now
	return e
}

// addNode adds the Node with a status.
func (s *script) addNode(status *v1.NodeStatus) {
	s.model.opts.NodeName = "node"
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}}
	if status != nil {
		node.Status = *status
	}
	s.CheckFact(truth.Fact{Time: s.now, Kind: truth.ObjectCreated, Write: &truth.Write{
		Resource: api.ResourceNodes, Name: "node", After: api.Object{Node: node},
		Incarnation: s.model.agentStarts}})
}

// end returns the end of the run as it was.
func (e endedPod) end() *v1.ContainerStateTerminated {
	return &v1.ContainerStateTerminated{ExitCode: 3, Reason: "Error", ContainerID: "sim://u1-app#0",
		StartedAt:  metav1.NewTime(e.startedAt.Truncate(time.Second)),
		FinishedAt: metav1.NewTime(e.exitedAt.Truncate(time.Second))}
}

// report has the agent write a status of the container.
func (e endedPod) report(s v1.ContainerStatus) {
	s.Name = "app"
	pod := e.pods["u1"].DeepCopy()
	pod.Status.Phase, pod.Status.ContainerStatuses = v1.PodRunning, []v1.ContainerStatus{s}
	e.store(1, e.pods["u1"], pod)
}

// endCase returns a case in which an end is reported that is changed.
func endCase(name, want string, change func(t *v1.ContainerStateTerminated)) testCase {
	return testCase{name, want, func(s *script) {
		e := newEndedPod(s)
		end := e.end()
		change(end)
		e.report(v1.ContainerStatus{ContainerID: "sim://u1-app#0",
			State: v1.ContainerState{Terminated: end}})
	}}
}

func TestContainerStates(t *testing.T) {
	second := func(t *metav1.Time, n int) { t.Time = t.Add(time.Duration(n) * time.Second) }
	runCases(t, []testCase{
		endCase("as it was", "", func(*v1.ContainerStateTerminated) {}),
		endCase("another exit code", "container-states", func(t *v1.ContainerStateTerminated) {
			t.ExitCode = 4
		}),
		endCase("a signal", "container-states", func(t *v1.ContainerStateTerminated) { t.Signal = 9 }),
		endCase("another reason", "container-states", func(t *v1.ContainerStateTerminated) {
			t.Reason = "Completed"
		}),
		endCase("unknown, although it is there", "container-states",
			func(t *v1.ContainerStateTerminated) { t.Reason, t.ExitCode = reasonUnknownExit, 137 }),
		endCase("a later start", "container-states", func(t *v1.ContainerStateTerminated) {
			second(&t.StartedAt, 1)
		}),
		endCase("an earlier end", "container-states", func(t *v1.ContainerStateTerminated) {
			second(&t.FinishedAt, -1)
		}),
		endCase("the end of another run", "container-states", func(t *v1.ContainerStateTerminated) {
			t.ContainerID, t.ExitCode = "sim://other", 4
		}),
		{"another restart count", "container-states", func(s *script) {
			e := newEndedPod(s)
			e.report(v1.ContainerStatus{ContainerID: "sim://u1-app#0", RestartCount: 1,
				State: v1.ContainerState{Terminated: e.end()}})
		}},
		{"a lower restart count than before", "container-states", func(s *script) {
			e := newEndedPod(s)
			pod := e.pods["u1"].DeepCopy()
			pod.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "app", RestartCount: 1}}
			before := pod.DeepCopy()
			before.Status.ContainerStatuses[0].RestartCount = 2
			e.store(1, before, pod)
		}},
		{"the end twice", "container-states", func(s *script) {
			e := newEndedPod(s)
			e.report(v1.ContainerStatus{ContainerID: "sim://u1-app#0",
				State:                v1.ContainerState{Terminated: e.end()},
				LastTerminationState: v1.ContainerState{Terminated: e.end()}})
		}},
		{"the end while it waits", "", func(s *script) {
			e := newEndedPod(s)
			e.report(v1.ContainerStatus{ContainerID: "sim://u1-app#0",
				State:                v1.ContainerState{Waiting: &v1.ContainerStateWaiting{}},
				LastTerminationState: v1.ContainerState{Terminated: e.end()}})
		}},
	})
}

func TestLateContainerStates(t *testing.T) {
	late := func(seconds float64, skip bool) func(*script) {
		return func(s *script) {
			s.addNode(nil)
			pod := spec("u1", always, "app")
			pod.CreationTimestamp = metav1.NewTime(s.now)
			s.setDesired(pod)
			s.AgentStarted(s.now)
			s.start(s.sandbox("u1", 0), "app", 0)
			if skip {
				s.model.opts.LastFault = func(now time.Time) time.Time { return now }
			}
			reported := pod.DeepCopy()
			reported.Spec.NodeName = "node"
			reported.Status.Phase = v1.PodPending
			s.store(1, pod, reported)
			s.wait(seconds)
			s.CheckServed(s.now, nil)
			s.setDesired(pod.DeepCopy()) // after that, nothing is late any more
			reported = s.served("u1", v1.PodRunning, "app#0 ready")
			reported.Spec.NodeName = "node"
			reported.Status.ContainerStatuses[0].State.Running.StartedAt = metav1.NewTime(begin)
			s.store(1, pod, reported)
		}
	}
	runCases(t, []testCase{
		{"in time", "", late(20, false)},
		{"late", "container-states", late(40, false)},
		{"late under a fault", "", late(40, true)},
	})
}

// A container whose postStart hook takes long is reported as running within the bound of its end.
// One that a kubelet has started is, whether or not its hook has ended.
func TestLateAfterPostStart(t *testing.T) {
	late := func(byKubelet, ends bool, seconds float64) func(*script) {
		return func(s *script) {
			s.addNode(nil)
			pod := with(spec("u1", always, "app"), postStart)
			pod.CreationTimestamp = metav1.NewTime(s.now)
			if byKubelet {
				s.KubeletStarted()
			} else {
				s.AgentStarted(s.now)
			}
			s.setDesired(pod)
			r := s.start(s.sandbox("u1", 0), "app", 0)
			r.startRequest(postStartRequest)
			reported := s.served("u1", v1.PodPending, "app#0 waiting")
			reported.Spec.NodeName = "node"
			if byKubelet {
				s.store(0, pod, reported)
				s.KubeletEnded(s.now)
				s.AgentStarted(s.now)
			} else {
				s.store(1, pod, reported)
			}
			s.wait(60)
			if ends {
				r.endRequest(postStartRequest, truth.ReplySuccess)
			}
			s.wait(seconds)
			s.CheckServed(s.now, nil)
			s.PodNoLongerDesired(s.now, "u1")
		}
	}
	runCases(t, []testCase{
		{"while it runs", "", late(false, false, 0)},
		{"just after its end", "", late(false, true, 20)},
		{"late after its end", "container-states", late(false, true, 40)},
		{"interrupted with the kubelet", "container-states", late(true, false, 0)},
	})
}

func TestPodIPs(t *testing.T) {
	ips := func(hostIP, podIP string, ips ...string) func(*script) {
		return func(s *script) {
			s.model.opts.NodeAddresses = []string{"192.168.7.10"}
			s.AgentStarted(s.now)
			s.setDesired(spec("u1", always, "app"))
			s.addFact(truth.SandboxReady, truth.Fact{SandboxID: "u1-s0", Addresses: []string{"10.88.0.3"}})
			s.addFact(truth.SandboxStopped, truth.Fact{SandboxID: "u1-s0"})
			s.addFact(truth.SandboxReady, truth.Fact{SandboxID: "u1-s1", Attempt: 1,
				Addresses: []string{"10.88.0.4"}})
			pod := s.pods["u1"].DeepCopy()
			pod.Status.HostIP, pod.Status.HostIPs = hostIP, []v1.HostIP{{IP: hostIP}}
			pod.Status.PodIP = podIP
			for _, ip := range ips {
				pod.Status.PodIPs = append(pod.Status.PodIPs, v1.PodIP{IP: ip})
			}
			s.store(1, s.pods["u1"], pod)
		}
	}
	const host = "192.168.7.10"
	runCases(t, []testCase{
		{"of the sandbox", "", ips(host, "10.88.0.4", "10.88.0.4")},
		{"of an earlier sandbox", "", ips(host, "10.88.0.3", "10.88.0.3")},
		{"of another pod", "pod-ips", ips(host, "10.88.0.5", "10.88.0.5")},
		{"of the node", "pod-ips", ips(host, host, host)},
		{"two that differ", "pod-ips", ips(host, "10.88.0.3", "10.88.0.4")},
		{"of another host", "pod-ips", ips("192.168.7.11", "10.88.0.4", "10.88.0.4")},
		{"none yet", "", ips(host, "")},
	})
}
