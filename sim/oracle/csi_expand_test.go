package oracle

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"seedlet.dev/sim/truth"
	"seedlet.dev/world"
)

// claimOf returns the claim "data" with a capacity, and what is allocated to it.
func claimOf(has, allocated string) world.Object {
	list := func(size string) v1.ResourceList {
		return v1.ResourceList{v1.ResourceStorage: resource.MustParse(size)}
	}
	return world.Object{Claim: &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "data"},
		Spec:       v1.PersistentVolumeClaimSpec{VolumeName: "pv"},
		Status: v1.PersistentVolumeClaimStatus{Capacity: list(has),
			AllocatedResources: list(allocated)}}}
}

func TestCSIExpand(t *testing.T) {
	grown := func(s *script, bytes int64) {
		csiStart(s)
		s.CheckFact(truth.Fact{Time: s.now, Kind: truth.VolumeExpanded, Bytes: bytes,
			Volume: &truth.Volume{Driver: csiDriver, Handle: "h"}})
	}
	runCases(t, []testCase{
		{"expanded, then written", "", func(s *script) {
			grown(s, 2<<30)
			writeObject(s, claimOf("1Gi", "2Gi"), claimOf("2Gi", "2Gi"), 1)
		}},
		{"written, and not expanded", "csi-expand", func(s *script) {
			csiStart(s)
			writeObject(s, claimOf("1Gi", "2Gi"), claimOf("2Gi", "2Gi"), 1)
		}},
		{"another size than what is allocated", "csi-expand", func(s *script) {
			grown(s, 4<<30)
			writeObject(s, claimOf("1Gi", "2Gi"), claimOf("4Gi", "2Gi"), 1)
		}},
		{"written by a controller", "", func(s *script) {
			csiStart(s)
			writeObject(s, claimOf("1Gi", "2Gi"), claimOf("2Gi", "2Gi"), 0)
		}},
	})
}
