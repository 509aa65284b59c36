package oracle

import (
	"testing"

	"seedlet.dev/sim/truth"
)

func TestPodDirectories(t *testing.T) {
	runCases(t, []testCase{
		{"after the exit", "", func(s *script) {
			s.changePath(truth.PathCreated, podsDir+"/u1", "")
			r := s.startPod(always)
			s.PodNoLongerDesired(s.now, "u1")
			r.exit(0, truth.CauseStop)
			s.changePath(truth.PathRemoved, podsDir+"/u1", "")
		}},
		{"while a process runs", "pod-directories", func(s *script) {
			s.startPod(always)
			s.changePath(truth.PathRemoved, podsDir+"/u1", "")
		}},
		{"the logs, while a process runs", "pod-directories", func(s *script) {
			s.startPod(always)
			s.changePath(truth.PathRemoved, logsDir+"/ns_web_u1", "")
		}},
		{"by an administrator", "", func(s *script) {
			s.startPod(always)
			s.changePath(truth.PathRemoved, podsDir+"/u1", truth.CauseAdministrator)
		}},
	})
}
