package oracle

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/truth"
	"seedlet.dev/world"
)

// readData reads the claim "data" some times.
func readData(s *script, every float64, times int) {
	for range times {
		s.wait(every)
		get := &world.GetObject{Resource: world.ResourceClaims, Namespace: "ns", Name: "data"}
		s.storageAsked(s.now, get)
		s.storageAskedAgain(s.now, get)
	}
}

func dataClaim(phase v1.PersistentVolumeClaimPhase) world.Object {
	c := &v1.PersistentVolumeClaim{}
	c.UID, c.Namespace, c.Name, c.Status.Phase = "c", "ns", "data", phase
	return world.Object{Claim: c}
}

// useData has a pod that has the claim.
func useData(s *script) {
	p := spec("u1", v1.RestartPolicyAlways, "app")
	p.Spec.Volumes = []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{
		PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
	s.setDesired(p)
}

func TestStorageReads(t *testing.T) {
	write := func(s *script, before, after world.Object) {
		s.addFact(truth.ObjectUpdated, truth.Fact{Write: &truth.Write{Resource: world.ResourceClaims,
			Namespace: "ns", Name: "data", Before: before, After: after}})
	}
	writeByAgent := func(s *script, state v1.ClaimResourceStatus) {
		after := dataClaim(v1.ClaimBound)
		if state != "" {
			after.Claim.Status.AllocatedResourceStatuses = map[v1.ResourceName]v1.ClaimResourceStatus{
				v1.ResourceStorage: state}
		}
		s.addFact(truth.ObjectUpdated, truth.Fact{Write: &truth.Write{Resource: world.ResourceClaims,
			Namespace: "ns", Name: "data", Before: dataClaim(v1.ClaimBound), After: after,
			Incarnation: 1}})
	}
	const name = "storage-reads"
	runCases(t, []testCase{
		{"with a back-off", "", func(s *script) {
			useData(s)
			for _, wait := range []float64{0.25, 0.5, 1, 2, 4, 8, 16, 30, 30, 30} {
				readData(s, wait, 1)
			}
		}},
		{"every ten seconds", "", func(s *script) { useData(s); readData(s, 10, 60) }},
		{"a pod has come", "", func(s *script) { useData(s); readData(s, 1, 19) }},
		{"a pod has come long before", name, func(s *script) {
			useData(s)
			s.wait(61)
			readData(s, 1, 11)
		}},
		{"every second", name, func(s *script) { useData(s); readData(s, 1, 21) }},
		{"by two agents", "", func(s *script) {
			useData(s)
			readData(s, 1, 9)
			s.AgentStarted(s.now)
			readData(s, 1, 9)
		}},
		{"the claim was bound meanwhile", "", func(s *script) {
			useData(s)
			readData(s, 1, 9)
			write(s, dataClaim(v1.ClaimPending), dataClaim(v1.ClaimBound))
			readData(s, 1, 9)
		}},
		{"the agent has noted that it is expanded", "", func(s *script) {
			useData(s)
			s.wait(61)
			readData(s, 1, 9)
			writeByAgent(s, v1.PersistentVolumeClaimNodeResizeInProgress)
			readData(s, 1, 9)
		}},
		{"the agent has written it without a change", name, func(s *script) {
			useData(s)
			s.wait(61)
			readData(s, 1, 9)
			writeByAgent(s, "")
			readData(s, 1, 9)
		}},
		{"a change that no pod waits for", name, func(s *script) {
			useData(s)
			readData(s, 1, 11)
			write(s, dataClaim(v1.ClaimPending), dataClaim(v1.ClaimPending))
			readData(s, 1, 11)
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

// A claim that a pod has, or none, and that no pod waits for is read once a minute.
func TestNeedlessStorageReads(t *testing.T) {
	bound := func(s *script) {
		useData(s)
		c, v := dataClaim(v1.ClaimBound), world.Object{Volume: &v1.PersistentVolume{}}
		c.Claim.Spec.VolumeName, v.Volume.Name, v.Volume.UID = "pv", "pv", "v"
		v.Volume.Spec.ClaimRef = &v1.ObjectReference{UID: "c"}
		writeObject(s, world.Object{}, c, 0)
		writeObject(s, world.Object{}, v, 0)
		s.wait(5)
	}
	const name = "storage-reads"
	runCases(t, []testCase{
		{"once a minute, and no pod waits", "", func(s *script) { bound(s); readData(s, 60, 60) }},
		{"every ten seconds, and no pod waits", name, func(s *script) {
			bound(s)
			readData(s, 10, 6)
		}},
		{"every ten seconds, and no pod has it", name, func(s *script) { readData(s, 10, 6) }},
		{"every ten seconds, while reads fail", "", func(s *script) {
			bound(s)
			s.model.opts.FaultPossible = func(call string, _, _ time.Time) bool {
				return call == "GetObject"
			}
			readData(s, 10, 6)
		}},
		{"every ten seconds, as the claim was deleted", "", func(s *script) {
			bound(s)
			s.CheckFact(truth.Fact{Time: s.now, Kind: truth.ObjectDeleted, Write: &truth.Write{
				Resource: world.ResourceClaims, Namespace: "ns", Name: "data",
				Before: dataClaim(v1.ClaimBound)}})
			readData(s, 10, 6)
		}},
	})
}
