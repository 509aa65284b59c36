package oracle

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"seedlet.dev/sim/truth"
	"seedlet.dev/world"
)

// ephemeralClaim returns the bound claim of the ephemeral volume "v" of the pod "web", owned by the
// pod with a UID.
func ephemeralClaim(uid string) world.Object {
	return world.Object{Claim: &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web-v",
			OwnerReferences: []metav1.OwnerReference{{Kind: "Pod", Name: "web", UID: types.UID(uid),
				Controller: new(true)}}},
		Spec:   v1.PersistentVolumeClaimSpec{VolumeName: "pv"},
		Status: v1.PersistentVolumeClaimStatus{Phase: v1.ClaimBound}}}
}

func TestEphemeralClaims(t *testing.T) {
	const name = "ephemeral-claims"
	start := func(s *script, owner string) {
		s.AgentStarted(s.now)
		p := spec("u1", always, "app")
		p.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{
			Ephemeral: &v1.EphemeralVolumeSource{}}}}
		s.setDesired(p)
		writeObject(s, world.Object{}, ephemeralClaim(owner), 0)
	}
	tell := func(s *script) {
		s.addFact(truth.EventRecorded, truth.Fact{Reason: "FailedMount", Message: "Unable to attach or " +
			"mount volumes: PVC ns/web-v was not created for pod ns/web (pod is not owner)"})
	}
	serve := func(s *script) {
		s.wait(240)
		s.CheckServed(s.now, nil)
	}
	runCases(t, []testCase{
		{"its own claim", "", func(s *script) { start(s, "u1"); serve(s) }},
		{"told of a foreign claim", "", func(s *script) { start(s, "u0"); s.wait(5); tell(s); serve(s) }},
		{"not told of a foreign claim", name, func(s *script) { start(s, "u0"); serve(s) }},
		{"told of its own claim", name, func(s *script) { start(s, "u1"); s.wait(240); tell(s) }},
		{"told of a claim that was foreign", "", func(s *script) {
			start(s, "u0")
			writeObject(s, ephemeralClaim("u0"), ephemeralClaim("u1"), 0)
			tell(s)
		}},
	})
}
