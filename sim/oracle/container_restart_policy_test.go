package oracle

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/truth"
)

// removedRecord has a container complete, an administrator remove its sandbox and record some
// seconds later, the agent restart a number of times, and the container run again.
func removedRecord(after float64, restarts int) func(*script) {
	return func(s *script) {
		r := s.startPod(onFailure)
		s.wait(20)
		s.ListReceived(s.now, true)
		r.exit(0, truth.CauseSelf)
		s.wait(after)
		r.change(truth.ContainerRemoved, truth.CauseAdministrator)
		s.addFact(truth.SandboxRemoved, truth.Fact{SandboxID: "u1-s0", Cause: truth.CauseAdministrator})
		for range restarts {
			s.AgentKilled(s.now)
			s.AgentStarted(s.now)
		}
		s.start(s.sandbox("u1", 1), "app", 1)
	}
}

func TestRestartPolicyAfterManualRemoval(t *testing.T) {
	runCases(t, []testCase{
		{"soon after its exit", "", removedRecord(0.5, 0)},
		{"later", "restart-policy", removedRecord(10, 0)},
		{"for another agent", "", removedRecord(10, 1)},
	})
}

func TestRestartPolicy(t *testing.T) {
	again := func(policy v1.RestartPolicy, code int32) func(*script) {
		return func(s *script) {
			s.startPod(policy).exit(code, truth.CauseSelf)
			s.start("u1-s0", "app", 1)
		}
	}
	runCases(t, []testCase{
		{"Always after success", "", again(always, 0)},
		{"OnFailure after failure", "", again(onFailure, 1)},
		{"OnFailure after success", "restart-policy", again(onFailure, 0)},
		{"Never after failure", "restart-policy", again(never, 1)},
		{"completed before its image changed", "restart-policy", func(s *script) {
			s.startPod(onFailure).exit(0, truth.CauseSelf)
			s.wait(60)
			s.ListReceived(s.now, true)
			s.wait(1)
			s.image = "image:2"
			s.setDesired(withImage(s.image))
			s.start("u1-s0", "app", 1)
		}},
		{"completed before its image changed, but no list had it", "", func(s *script) {
			s.startPod(onFailure).exit(0, truth.CauseSelf)
			s.wait(1)
			s.image = "image:2"
			s.setDesired(withImage(s.image))
			s.start("u1-s0", "app", 1)
		}},
		{"running when its image changed", "", func(s *script) {
			first := s.startPod(onFailure)
			s.wait(1)
			s.image = "image:2"
			s.setDesired(withImage(s.image))
			first.exit(0, truth.CauseSelf)
			s.start("u1-s0", "app", 1)
		}},
		{"Never in a new sandbox", "restart-policy", func(s *script) {
			s.startPod(never).exit(137, truth.CauseKilled)
			s.changeSandbox(truth.SandboxStopped, "u1-s0")
			s.start(s.sandbox("u1", 1), "app", 1)
		}},
		{"Never, but it could not be started before", "", func(s *script) {
			s.setDesired(spec("u1", never, "app"))
			s.create(s.sandbox("u1", 0), "app", 0).exit(128, truth.CauseStart)
			s.start("u1-s0", "app", 1)
		}},
		{"Never, removed and back", "", func(s *script) {
			r := s.startPod(never)
			s.PodNoLongerDesired(s.now, "u1")
			r.exit(143, truth.CauseStop)
			r.change(truth.ContainerRemoved, "")
			s.changeSandbox(truth.SandboxRemoved, "u1-s0")
			s.setDesired(s.pods["u1"])
			s.start(s.sandbox("u1", 0), "app", 0)
		}},
		{"an init container where it has completed", "restart-policy", func(s *script) {
			s.setDesired(spec("u1", always, "init", "app"))
			s.start(s.sandbox("u1", 0), "init", 0).exit(0, truth.CauseSelf)
			s.start("u1-s0", "init", 1)
		}},
		{"an init container in a new sandbox", "", func(s *script) {
			s.setDesired(spec("u1", never, "init", "app"))
			s.start(s.sandbox("u1", 0), "init", 0).exit(0, truth.CauseSelf)
			s.changeSandbox(truth.SandboxStopped, "u1-s0")
			s.start(s.sandbox("u1", 1), "init", 1)
		}},
	})
}

// withImage returns the pod of startPod with another image.
func withImage(image string) *v1.Pod {
	pod := spec("u1", onFailure, "app")
	pod.Spec.Containers[0].Image = image
	return pod
}
