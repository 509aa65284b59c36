package oracle

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/truth"
)

// The containers of a static pod that has ended stay, as long as the pod is desired.
func TestContainersOfEndedStaticPods(t *testing.T) {
	ended := func(then func(s *script, r run)) func(*script) {
		return func(s *script) {
			p := spec("u1", v1.RestartPolicyNever, "app")
			p.Annotations = map[string]string{annotationSource: sourceFile}
			s.AgentStarted(s.now)
			s.setDesired(p)
			r := s.start(s.sandbox("u1", 0), "app", 0)
			r.exit(0, truth.CauseSelf)
			s.serve("u1", v1.PodSucceeded, "app#0 completed")
			then(s, r)
		}
	}
	runCases(t, []testCase{
		{"removed while the pod is desired", "reclaim", ended(func(_ *script, r run) {
			r.change(truth.ContainerRemoved, "")
		})},
		{"removed by an administrator", "", ended(func(_ *script, r run) {
			r.change(truth.ContainerRemoved, truth.CauseAdministrator)
		})},
		{"removed after the manifest", "", ended(func(s *script, r run) {
			s.PodNoLongerDesired(s.now, "u1")
			r.change(truth.ContainerRemoved, "")
		})},
	})
}
