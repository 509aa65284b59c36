package oracle

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/truth"
	"seedlet.dev/world"
)

func TestStorageReads(t *testing.T) {
	claim := func(phase v1.PersistentVolumeClaimPhase) world.Object {
		c := &v1.PersistentVolumeClaim{}
		c.UID, c.Namespace, c.Name, c.Status.Phase = "c", "ns", "data", phase
		return world.Object{Claim: c}
	}
	read := func(s *script, every float64, times int) {
		for range times {
			s.wait(every)
			s.storageAsked(s.now, &world.GetObject{Resource: world.ResourceClaims, Namespace: "ns",
				Name: "data"})
		}
	}
	write := func(s *script, before, after world.Object) {
		s.addFact(truth.ObjectUpdated, truth.Fact{Write: &truth.Write{Resource: world.ResourceClaims,
			Namespace: "ns", Name: "data", Before: before, After: after}})
	}
	const name = "storage-reads"
	runCases(t, []testCase{
		{"with a back-off", "", func(s *script) {
			for _, wait := range []float64{0.25, 0.5, 1, 2, 4, 8, 16, 30, 30, 30} {
				read(s, wait, 1)
			}
		}},
		{"every ten seconds", "", func(s *script) { read(s, 10, 60) }},
		{"every second", name, func(s *script) { read(s, 1, 11) }},
		{"by two agents", "", func(s *script) {
			read(s, 1, 9)
			s.AgentStarted(s.now)
			read(s, 1, 9)
		}},
		{"the claim was bound meanwhile", "", func(s *script) {
			read(s, 1, 9)
			write(s, claim(v1.ClaimPending), claim(v1.ClaimBound))
			read(s, 1, 9)
		}},
		{"a change that no pod waits for", name, func(s *script) {
			read(s, 1, 9)
			write(s, claim(v1.ClaimPending), claim(v1.ClaimPending))
			read(s, 1, 9)
		}},
		{"objects that a node watches", "", func(s *script) {
			for range 100 {
				s.storageAsked(s.now, &world.GetObject{Resource: world.ResourceSecrets, Name: "a"})
			}
		}},
	})
}

// Each pod that has a volume waits for its attachment by itself.
func TestReadsOfAttachments(t *testing.T) {
	attachment := func(s *script, users ...string) string {
		for _, uid := range users {
			p := spec(uid, v1.RestartPolicyAlways, "app")
			p.Name = uid
			p.Spec.Volumes = []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{
				Cinder: &v1.CinderVolumeSource{VolumeID: "disk"}}}}
			s.setDesired(p)
		}
		return s.model.attachmentName(csiName{cinderDriver, "disk"})
	}
	read := func(s *script, name string, times int) {
		for range times {
			s.wait(1)
			s.storageAsked(s.now, &world.GetObject{Resource: world.ResourceAttachments, Name: name})
		}
	}
	const name = "storage-reads"
	runCases(t, []testCase{
		{"an attachment, by two pods", "", func(s *script) {
			read(s, attachment(s, "u1", "u2"), 20)
		}},
		{"an attachment, by one pod", name, func(s *script) {
			read(s, attachment(s, "u1"), 11)
		}},
		{"an attachment, by a pod that is there and one that has gone", name, func(s *script) {
			attachment := attachment(s, "u1", "u2")
			s.PodNoLongerDesired(s.now, "u2")
			s.wait(61)
			read(s, attachment, 11)
		}},
		{"an attachment of another volume", name, func(s *script) {
			attachment(s, "u1", "u2")
			read(s, s.model.attachmentName(csiName{cinderDriver, "other"}), 11)
		}},
	})
}
