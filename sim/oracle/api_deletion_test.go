package oracle

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/truth"
)

func TestAPIDeletion(t *testing.T) {
	runCases(t, []testCase{
		{"terminal and stopped", "", func(s *script) {
			s.startPod(always).exit(143, truth.CauseStop)
			s.PodNoLongerDesired(s.now, "u1")
			s.store(1, s.served("u1", v1.PodFailed), nil)
		}},
		{"while it runs", "api-deletion", func(s *script) {
			s.startPod(always)
			s.PodNoLongerDesired(s.now, "u1")
			s.store(1, s.served("u1", v1.PodFailed), nil)
		}},
		{"while it is desired", "api-deletion", func(s *script) {
			s.startPod(always).exit(143, truth.CauseStop)
			s.store(1, s.served("u1", v1.PodFailed), nil)
		}},
		{"without a terminal phase", "api-deletion", func(s *script) {
			s.setDesired(spec("u1", always, "app"))
			s.PodNoLongerDesired(s.now, "u1")
			s.store(1, s.served("u1", v1.PodPending), nil)
		}},
		{"force-deleted by another client", "", func(s *script) {
			s.startPod(always)
			s.PodNoLongerDesired(s.now, "u1")
			s.store(0, s.served("u1", v1.PodRunning), nil)
		}},
	})
}
