package oracle

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"seedlet.dev/sim/truth"
	"seedlet.dev/world"
)

// A pod gets a volume that belongs to its group, if the driver leaves that to the agent.
func TestCSIGroups(t *testing.T) {
	file, none := storagev1.FileFSGroupPolicy, storagev1.NoneFSGroupPolicy
	for name, c := range map[string]struct {
		policy  storagev1.FSGroupPolicy
		group   *int64
		got     int64
		change  func(s *script)
		isWrong bool
	}{
		"its group":          {policy: file, group: new(int64(7)), got: 7},
		"another group":      {policy: file, group: new(int64(7)), isWrong: true},
		"no group":           {policy: file},
		"none by the driver": {policy: none, group: new(int64(7))},
		"none by its type": {policy: storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy,
			group: new(int64(7))},
		"the driver does that": {policy: file, group: new(int64(7)), change: func(s *script) {
			s.model.csi.grouping[csiDriver] = true
		}},
		"of two pods": {policy: file, group: new(int64(7)), change: func(s *script) {
			csiFact(s, truth.VolumePublished, inlineHandle("u1", "v"), csiTarget("u2"))
		}},
		"the second container": {policy: file, group: new(int64(7)), change: func(s *script) {
			s.model.csi.apply(&truth.Fact{Time: s.now, Kind: truth.ContainerStarted, PodUID: "u1"})
			s.wait(1)
		}},
		"the first container since a reboot": {policy: file, group: new(int64(7)),
			change: func(s *script) {
				s.model.csi.apply(&truth.Fact{Time: s.now, Kind: truth.ContainerStarted, PodUID: "u1"})
				s.wait(1)
				s.model.csi.apply(&truth.Fact{Time: s.now, Kind: truth.PowerLost})
				csiFact(s, truth.VolumePublished, inlineHandle("u1", "v"), inlineTarget)
			}, isWrong: true},
	} {
		s := newScript()
		writeObject(s, world.Object{}, world.Object{CSIDriver: &storagev1.CSIDriver{
			ObjectMeta: metav1.ObjectMeta{Name: csiDriver},
			Spec:       storagev1.CSIDriverSpec{FSGroupPolicy: &c.policy}}}, 0)
		p := spec("u1", always, "app")
		p.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: c.group}
		p.Spec.Volumes = []v1.Volume{{Name: "v",
			VolumeSource: v1.VolumeSource{CSI: &v1.CSIVolumeSource{Driver: csiDriver}}}}
		p.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "v"}}
		s.setDesired(p)
		s.wait(1)
		csiFact(s, truth.VolumePublished, inlineHandle("u1", "v"), inlineTarget)
		s.model.opts.GroupOf = func(string) (int64, bool) { return c.got, true }
		if c.change != nil {
			c.change(s)
		}
		found := (&csiGroups{}).checkFact(s.model, &truth.Fact{Time: s.now,
			Kind: truth.ContainerStarted, PodUID: "u1", Container: "app"})
		if (found != nil) != c.isWrong {
			t.Errorf("%s: %v", name, found)
		}
	}
}
