package oracle

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"seedlet.dev/sim/truth"
)

// startPodWithDeadline starts a pod with an active deadline of a minute, and serves its start
// time.
func (s *script) startPodWithDeadline(runs string) run {
	s.AgentStarted(s.now)
	p := spec("u1", always, "app")
	minute := int64(60)
	p.Spec.ActiveDeadlineSeconds = &minute
	p.Status.StartTime = &metav1.Time{Time: s.now}
	s.setDesired(p)
	r := s.start(s.sandbox("u1", 0), "app", 0)
	s.serve("u1", v1.PodRunning, runs)
	return r
}

// serveDeadlineExceeded serves the pod as past its active deadline.
func (s *script) serveDeadlineExceeded() {
	p := s.served("u1", v1.PodFailed, "app#0 terminated")
	p.Status.Reason = reasonDeadline
	s.CheckServed(s.now, []*v1.Pod{p})
}

func TestActiveDeadline(t *testing.T) {
	runCases(t, []testCase{
		{"in time", "", func(s *script) {
			r := s.startPodWithDeadline("app#0 ready")
			s.wait(60)
			r.change(truth.StopRequested, "")
			r.exit(143, truth.CauseStop)
			s.serveDeadlineExceeded()
		}},
		{"stopped too early", "needless-stop", func(s *script) {
			r := s.startPodWithDeadline("app#0 ready")
			s.wait(50)
			r.change(truth.StopRequested, "")
		}},
		{"served too early", "active-deadline", func(s *script) {
			s.startPodWithDeadline("app#0 ready").exit(1, truth.CauseSelf)
			s.wait(50)
			s.serveDeadlineExceeded()
		}},
		{"started after it", "active-deadline", func(s *script) {
			s.startPodWithDeadline("app#0 ready").exit(1, truth.CauseSelf)
			s.wait(150)
			s.start("u1-s0", "app", 1)
		}},
		{"served as running after it", "terminal-phase", func(s *script) {
			s.startPodWithDeadline("app#0 ready").exit(1, truth.CauseSelf)
			s.wait(61)
			s.serveDeadlineExceeded()
			s.serve("u1", v1.PodRunning, "app#0 waiting")
		}},
	})
}
