package oracle

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/truth"
)

func TestEphemeral(t *testing.T) {
	debugged := func(p *v1.Pod) {
		p.Spec.EphemeralContainers = []v1.EphemeralContainer{{
			EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug"}}}
	}
	runCases(t, []testCase{
		{"once", "", func(s *script) {
			s.runPod(podWithCPUs("u1", "0", debugged)).startNext("debug", 0).exit(1, truth.CauseSelf)
		}},
		{"again", "ephemeral", func(s *script) {
			r := s.runPod(podWithCPUs("u1", "0", debugged)).startNext("debug", 0)
			r.exit(1, truth.CauseSelf)
			s.wait(60)
			r.startNext("debug", 1)
		}},
	})
	s := newScript()
	s.runPod(podWithCPUs("u1", "0", debugged))
	const want = "ephemeral container debug has never run"
	if got := s.model.pods["u1"].runtimeProblem(s.now); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// An ephemeral container waits for the volumes of its pod, as the others do.
func TestEphemeralContainerWaitsForVolumes(t *testing.T) {
	for _, isIssued := range []bool{false, true} {
		s := newScript()
		withCertificates(func(c *certificateScript) {
			p := c.pods["u1"].DeepCopy()
			p.Spec.EphemeralContainers = []v1.EphemeralContainer{{
				EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug"}}}
			c.setDesired(p)
			c.sandbox("u1", 0)
			c.request("a")
			if isIssued {
				_, chain := credential(1)
				c.answer("a", "Issued", chain)
			}
		})(s)
		s.wait(60)
		const want = "ephemeral container debug has never run"
		if got := s.unsettled(); strings.Contains(got, want) != isIssued {
			t.Errorf("issued %t: %s", isIssued, got)
		}
	}
}
