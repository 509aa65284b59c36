package oracle

import (
	"testing"
	"time"

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

// A pod gets a volume once it is expanded, if its claim has waited for that for a while.
func TestCSIExpandBeforeStart(t *testing.T) {
	for name, c := range map[string]struct {
		waits   time.Duration
		change  func(s *script, p *v1.Pod)
		isWrong bool
	}{
		"not expanded":              {waits: expansionKnownBound + time.Second, isWrong: true},
		"the claim waits since now": {waits: expansionKnownBound - time.Second},
		"read-only": {waits: time.Hour, change: func(_ *script, p *v1.Pod) {
			p.Spec.Volumes[0].PersistentVolumeClaim.ReadOnly = true
		}},
		"expanded": {waits: time.Hour, change: func(s *script, _ *v1.Pod) {
			s.CheckFact(truth.Fact{Time: s.now, Kind: truth.VolumeExpanded, Bytes: 2 << 30,
				Volume: &truth.Volume{Driver: csiDriver, Handle: "h"}})
		}},
		"the claim could not be read": {waits: time.Hour, change: func(s *script, _ *v1.Pod) {
			s.model.opts.FaultPossible = func(call string, _, _ time.Time) bool {
				return call == "WatchObjects"
			}
		}},
	} {
		s, claim := newScript(), claimOf("1Gi", "2Gi")
		claim.Claim.Status.AllocatedResourceStatuses = map[v1.ResourceName]v1.ClaimResourceStatus{
			v1.ResourceStorage: v1.PersistentVolumeClaimNodeResizePending}
		csiObjects(s)
		writeObject(s, claimOf("1Gi", "2Gi"), claim, 0)
		s.wait(c.waits.Seconds())
		p := spec("u1", always, "app")
		p.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{
			PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
		p.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "v"}}
		if c.change != nil {
			c.change(s, p)
		}
		s.setDesired(p)
		csiVolumeUp(s, "u1")
		started := &truth.Fact{Time: s.now, Kind: truth.ContainerStarted, PodUID: "u1"}
		if found := (&csiExpand{}).checkFact(s.model, started); (found != nil) != c.isWrong {
			t.Errorf("%s: %v", name, found)
		}
		s.model.csi.apply(started)
		s.wait(1)
		again := &truth.Fact{Time: s.now, Kind: truth.ContainerStarted, PodUID: "u1"}
		if found := (&csiExpand{}).checkFact(s.model, again); found != nil {
			t.Errorf("%s: %v of another start", name, found)
		}
	}
}
