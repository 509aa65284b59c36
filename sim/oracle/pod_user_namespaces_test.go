package oracle

import (
	"testing"

	"seedlet.dev/sim/truth"
)

func TestUserNamespaces(t *testing.T) {
	first, second := truth.IDs{First: 65536, Length: 65536}, truth.IDs{First: 131072, Length: 65536}
	runCases(t, []testCase{
		{"separate ranges", "", func(s *script) {
			s.startPodWithIDs("u1", first)
			s.startPodWithIDs("u2", second)
		}},
		{"one after the other", "", func(s *script) {
			s.startPodWithIDs("u1", first)()
			s.startPodWithIDs("u2", first)
		}},
		{"overlapping ranges", "user-namespaces", func(s *script) {
			s.startPodWithIDs("u1", first)
			s.startPodWithIDs("u2", truth.IDs{First: 131071, Length: 65536})
		}},
		{"no range", "user-namespaces", func(s *script) { s.startPodWithIDs("u1", truth.IDs{}) }},
		{"a range with host IDs", "user-namespaces", func(s *script) {
			s.startPodWithIDs("u1", truth.IDs{First: 1000, Length: 65536})
		}},
		{"hostUsers not set", "", func(s *script) { s.startPod(always) }},
	})
}

// startPodWithIDs starts a pod with hostUsers false, in a sandbox that has the IDs. The function
// that it returns ends the pod's container.
func (s *script) startPodWithIDs(uid string, ids truth.IDs) (end func()) {
	no := false
	p := spec(uid, always, "app")
	p.Name, p.Spec.HostUsers = uid, &no
	s.setDesired(p)
	f := truth.Fact{PodUID: uid, PodName: uid, SandboxID: uid + "-s0", IDs: ids}
	s.addFact(truth.SandboxCreated, f)
	s.addFact(truth.SandboxReady, f)
	f.Container, f.ContainerID = "app", uid+"-app#0"
	s.addFact(truth.ContainerCreated, f)
	s.addFact(truth.ContainerStarted, f)
	return func() {
		f.Cause = truth.CauseSelf
		s.addFact(truth.ContainerExited, f)
	}
}
