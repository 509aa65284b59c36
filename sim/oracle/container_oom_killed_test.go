package oracle

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/truth"
)

func TestOOMKilled(t *testing.T) {
	terminated := func(id, reason string) v1.ContainerState {
		return v1.ContainerState{Terminated: &v1.ContainerStateTerminated{Reason: reason,
			ContainerID: "sim://u1-" + id}}
	}
	shows := func(s *script, run, id, reason string) *v1.Pod {
		p := s.served("u1", v1.PodRunning, run)
		status := &p.Status.ContainerStatuses[0]
		if status.State.Terminated != nil {
			status.State = terminated(id, reason)
		} else {
			status.LastTerminationState = terminated(id, reason)
		}
		return p
	}
	serves := func(s *script, run, id, reason string) {
		s.CheckServed(s.now, []*v1.Pod{shows(s, run, id, reason)})
	}
	runCases(t, []testCase{
		{"killed for memory", "", func(s *script) {
			s.startPod(never).exit(137, truth.CauseOOM)
			serves(s, "app#0 terminated", "app#0", "OOMKilled")
		}},
		{"killed for memory, served as an error", "oom-killed", func(s *script) {
			s.startPod(never).exit(137, truth.CauseOOM)
			serves(s, "app#0 terminated", "app#0", "Error")
		}},
		{"the run before was killed for memory", "", func(s *script) {
			s.startPod(always).exit(137, truth.CauseOOM)
			s.wait(20)
			s.start("u1-s0", "app", 1)
			serves(s, "app#1 running", "app#0", "OOMKilled")
		}},
		{"the run before was killed for memory, served as an error", "oom-killed", func(s *script) {
			s.startPod(always).exit(137, truth.CauseOOM)
			s.wait(20)
			s.start("u1-s0", "app", 1)
			serves(s, "app#1 running", "app#0", "Error")
		}},
		{"killed by its stop", "oom-killed", func(s *script) {
			s.startPod(never).exit(137, truth.CauseStop)
			serves(s, "app#0 terminated", "app#0", "OOMKilled")
		}},
		{"an exit of its own with 137", "oom-killed", func(s *script) {
			s.startPod(never).exit(137, truth.CauseSelf)
			serves(s, "app#0 terminated", "app#0", "OOMKilled")
		}},
		{"an ephemeral container", "oom-killed", func(s *script) {
			s.startPod(never).exit(137, truth.CauseOOM)
			p := s.served("u1", v1.PodRunning)
			p.Status.EphemeralContainerStatuses = []v1.ContainerStatus{
				{Name: "app", State: terminated("app#0", "Error")}}
			s.CheckServed(s.now, []*v1.Pod{p})
		}},
		{"a status of before its removal", "oom-killed", func(s *script) {
			r := s.startPod(never)
			r.exit(137, truth.CauseOOM)
			r.change(truth.ContainerRemoved, "")
			serves(s, "app#0 terminated", "app#0", "Error")
		}},
		{"at the API server", "oom-killed", func(s *script) {
			s.startPod(never).exit(137, truth.CauseOOM)
			s.store(1, s.served("u1", v1.PodRunning), shows(s, "app#0 terminated", "app#0", "Error"))
		}},
	})
}

// An end for lack of memory has to be served after a while.
func TestOOMKilledIsServed(t *testing.T) {
	const missing = "killed for lack of memory"
	s := newScript()
	s.startPod(always).exit(137, truth.CauseOOM)
	s.wait(20)
	s.start("u1-s0", "app", 1)
	s.Healed(s.now)
	s.wait(10)
	s.serve("u1", v1.PodRunning, "app#1 ready")
	if got := s.unsettled(); !strings.Contains(got, missing) {
		t.Errorf("unsettled: %q", got)
	}
	p := s.served("u1", v1.PodRunning, "app#1 ready")
	p.Status.ContainerStatuses[0].LastTerminationState.Terminated = &v1.ContainerStateTerminated{
		Reason: reasonOOMKilled, ContainerID: "sim://u1-app#0"}
	s.CheckServed(s.now, []*v1.Pod{p})
	if got := s.unsettled(); strings.Contains(got, missing) {
		t.Errorf("unsettled: %q", got)
	}
}
