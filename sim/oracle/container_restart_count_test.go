package oracle

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/sim/truth"
)

func TestRestartCount(t *testing.T) {
	runCases(t, []testCase{
		{"counted", "", func(s *script) {
			s.startPod(always).exit(1, truth.CauseSelf)
			s.serve("u1", v1.PodRunning, "app#0 waiting")
			s.start("u1-s0", "app", 1)
			s.serve("u1", v1.PodRunning, "app#1 ready")
		}},
		{"an attempt used twice", "restart-count", func(s *script) {
			r := s.startPod(always)
			r.exit(1, truth.CauseSelf)
			r.change(truth.ContainerRemoved, "")
			s.create("u1-s0", "app", 0)
		}},
		{"an earlier agent's request takes effect late", "", lateCreate(false)},
		{"an earlier agent has used the attempt", "restart-count", lateCreate(true)},
		{"an attempt that was never started", "", func(s *script) {
			s.setDesired(spec("u1", always, "app"))
			s.create(s.sandbox("u1", 0), "app", 0).change(truth.ContainerRemoved, "")
			s.create("u1-s0", "app", 0)
		}},
		{"the annotation decreases", "restart-count", func(s *script) {
			s.startPod(always).exit(1, truth.CauseSelf)
			s.addFact(truth.ContainerCreated, truth.Fact{SandboxID: "u1-s0", Container: "app",
				ContainerID: "x", Attempt: 1, Annotations: map[string]string{
					annotationRestarts: "0"}})
		}},
		{"the served count decreases", "restart-count", func(s *script) {
			s.startPod(always).exit(1, truth.CauseSelf)
			s.start("u1-s0", "app", 1)
			s.serve("u1", v1.PodRunning, "app#1 ready")
			s.AgentStarted(s.now)
			s.serve("u1", v1.PodUnknown)
			s.serve("u1", v1.PodRunning, "app#0 waiting")
		}},
		{"the served count is not the annotation", "restart-count", func(s *script) {
			s.startPod(always)
			p := s.served("u1", v1.PodRunning, "app#0 ready")
			p.Status.ContainerStatuses[0].RestartCount = 3
			s.CheckServed(s.now, []*v1.Pod{p})
		}},
		{"removed and back", "", func(s *script) {
			r := s.startPod(always)
			r.exit(1, truth.CauseSelf)
			second := s.start("u1-s0", "app", 1)
			s.serve("u1", v1.PodRunning, "app#1 ready")
			s.PodNoLongerDesired(s.now, "u1")
			s.setDesired(s.pods["u1"])
			second.exit(0, truth.CauseStop)
			r.change(truth.ContainerRemoved, "")
			second.change(truth.ContainerRemoved, "")
			s.serve("u1", v1.PodPending)
			s.start("u1-s0", "app", 0)
			s.serve("u1", v1.PodRunning, "app#0 ready")
		}},
	})
}

func TestRestartCountAfterManualRemoval(t *testing.T) {
	removed := func(s *script, r run) {
		r.exit(137, truth.CauseSandbox)
		r.change(truth.ContainerRemoved, "")
		s.addFact(truth.SandboxRemoved, truth.Fact{SandboxID: "u1-s0", Cause: truth.CauseAdministrator})
	}
	ran := func(s *script) run {
		r := s.startPod(always)
		s.wait(2)
		s.ListReceived(s.now, true)
		return r
	}
	runCases(t, []testCase{
		{"count continued", "", func(s *script) {
			removed(s, ran(s))
			s.start(s.sandbox("u1", 0), "app", 1)
		}},
		{"count started over", "restart-count", func(s *script) {
			removed(s, ran(s))
			s.start(s.sandbox("u1", 0), "app", 0)
		}},
		{"count started over by another agent", "", func(s *script) {
			removed(s, ran(s))
			s.AgentKilled(s.now)
			s.AgentStarted(s.now)
			s.start(s.sandbox("u1", 0), "app", 0)
		}},
		{"count started over after a list from before the start", "", func(s *script) {
			r := s.startPod(always)
			s.wait(0.5)
			s.ListReceived(s.now, true)
			s.wait(5)
			removed(s, r)
			s.start(s.sandbox("u1", 0), "app", 0)
		}},
		{"count started over by an agent that had not listed", "", func(s *script) {
			removed(s, s.startPod(always))
			s.start(s.sandbox("u1", 0), "app", 0)
		}},
	})
}

// lateCreate has two agents ask for attempt 0 while requests may be delayed, and attempt 0 be
// created twice, in the life of the second one or of both.
func lateCreate(inFirstLife bool) func(*script) {
	return func(s *script) {
		s.model.opts.FaultPossible = func(string, time.Time, time.Time) bool { return true }
		ask := func() {
			s.Called(s.now, &runtimeapi.CreateContainerRequest{PodSandboxId: "u1-s0",
				Config: &runtimeapi.ContainerConfig{
					Metadata: &runtimeapi.ContainerMetadata{Name: "app"}},
				SandboxConfig: &runtimeapi.PodSandboxConfig{
					Metadata: &runtimeapi.PodSandboxMetadata{Uid: "u1"}}})
		}
		s.setDesired(spec("u1", always, "app"))
		s.sandbox("u1", 0)
		run := func() {
			r := s.start("u1-s0", "app", 0)
			r.exit(1, truth.CauseSelf)
			r.change(truth.ContainerRemoved, "")
		}
		if ask(); inFirstLife {
			run()
		}
		s.wait(1)
		s.AgentStarted(s.now)
		s.wait(1)
		if ask(); !inFirstLife {
			run()
		}
		s.create("u1-s0", "app", 0)
	}
}
