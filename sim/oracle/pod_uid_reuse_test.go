package oracle

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/truth"
)

// killAfter has the container asked to stop, and killed some seconds later.
func (r run) killAfter(seconds float64) {
	r.change(truth.StopRequested, "")
	r.script.wait(seconds)
	r.change(truth.KillRequested, truth.CauseStop)
}

func TestUIDReuse(t *testing.T) {
	// renamed gives the UID of a running pod to another name.
	renamed := func(s *script) (run, *v1.Pod) {
		r := s.startPod(always)
		s.PodNoLongerDesired(s.now, "u1")
		other := spec("u1", always, "app")
		other.Name = "other"
		s.setDesired(other)
		return r, other
	}
	// starts starts a container of the pod of the new name.
	starts := func(s *script) {
		f := truth.Fact{Time: s.now, PodUID: "u1", PodNamespace: "ns", PodName: "other",
			SandboxID: "u1-s1", Container: "app", ContainerID: "u1-app#1", Attempt: 1}
		for _, f.Kind = range []truth.Kind{truth.SandboxCreated, truth.SandboxReady,
			truth.ContainerCreated, truth.ContainerStarted} {
			s.CheckFact(f)
		}
	}
	runCases(t, []testCase{
		{"one after the other", "", func(s *script) {
			r, _ := renamed(s)
			r.exit(143, truth.CauseStop)
			r.change(truth.ContainerRemoved, "")
			starts(s)
			s.serve("u1", v1.PodRunning, "app#1 ready")
		}},
		{"started while the old one runs", "one-run uid-reuse", func(s *script) {
			renamed(s)
			starts(s)
		}},
		{"served with a container of the old one", "uid-reuse", func(s *script) {
			renamed(s)
			s.serve("u1", v1.PodRunning, "app#0 ready")
		}},
		{"killed early", "grace-period", func(s *script) {
			r, _ := renamed(s)
			r.killAfter(2)
		}},
		{"killed as an orphan by the next agent", "", func(s *script) {
			r, _ := renamed(s)
			s.restartAgent()
			r.killAfter(2)
		}},
		{"stopped by a late list of the old one", "needless-stop", func(s *script) {
			r := s.startPod(always)
			s.PodNoLongerDesired(s.now, "u1")
			r.change(truth.StopRequested, "")
			r.exit(143, truth.CauseStop)
			r.change(truth.ContainerRemoved, "")
			s.setDesired(s.pods["u1"])
			s.wait(200)
			again := s.start("u1-s0", "app", 0)
			s.wait(5)
			again.change(truth.StopRequested, "")
		}},
		{"stopped, created before the manifest was read again", "", func(s *script) {
			s.startPod(always)
			s.PodNoLongerDesired(s.now, "u1")
			s.setDesired(s.pods["u1"])
			s.wait(5)
			late := s.start("u1-s0", "more", 0)
			s.wait(200)
			late.change(truth.StopRequested, "")
		}},
	})
}
