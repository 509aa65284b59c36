package oracle

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/truth"
)

func TestNeedlessStop(t *testing.T) {
	stop := func(r run) { r.change(truth.StopRequested, "") }
	restart := func(s *script) {
		s.wait(200)
		s.AgentKilled(s.now)
		s.wait(5)
		s.AgentStarted(s.now)
	}
	runCases(t, []testCase{
		{"stopped after a restart of the agent", "needless-stop", func(s *script) {
			r := s.startPod(always)
			restart(s)
			stop(r)
		}},
		{"its manifest was gone meanwhile", "", func(s *script) {
			r := s.startPod(always)
			restart(s)
			s.PodNoLongerDesired(s.now, "u1")
			stop(r)
		}},
		{"its manifest is being written", "", func(s *script) {
			r := s.startPod(always)
			restart(s)
			stop(r)
			s.wait(0.5)
			s.setDesired(s.pods["u1"])
		}},
		{"its sandbox has stopped", "", func(s *script) {
			r := s.startPod(always)
			s.changeSandbox(truth.SandboxStopped, "u1-s0")
			stop(r)
		}},
		{"its spec changed", "", func(s *script) {
			r := s.startPod(always)
			changed := spec("u1", always, "app")
			changed.Spec.Containers[0].Image = "image:2"
			s.setDesired(changed)
			stop(r)
		}},
		{"another pod has its name", "", func(s *script) {
			r := s.startPod(always)
			s.setDesired(spec("u2", always, "app"))
			stop(r)
		}},
	})
}

func TestNeedlessStopOfLostContainer(t *testing.T) {
	runCases(t, []testCase{
		{"stopped after the runtime lost it", "", func(s *script) {
			r := s.startPod(always)
			s.wait(200)
			r.change(truth.ContainerLost, "")
			r.change(truth.StopRequested, "")
		}},
		{"not ready while the runtime has lost it", "", func(s *script) {
			r := s.startPod(always)
			s.serve("u1", v1.PodRunning, "app#0 ready")
			r.change(truth.ContainerLost, "")
			s.serve("u1", v1.PodRunning, "app#0 waiting")
		}},
	})
}
