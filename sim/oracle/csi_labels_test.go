package oracle

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"seedlet.dev/sim/truth"
	"seedlet.dev/world"
)

// A container has its volume with the label of its pod, where driver and access mode allow that.
func TestCSILabels(t *testing.T) {
	const own = "system_u:object_r:container_file_t:s0:c1,c2"
	recursive := v1.SELinuxChangePolicyRecursive
	for name, c := range map[string]struct {
		disabled, allModes, unsupported bool
		since                           time.Duration // that the driver supports labels, before its pod
		mode                            v1.PersistentVolumeAccessMode
		change                          func(p *v1.Pod)
		got                             string
		isWrong                         bool
	}{
		"label":                   {since: time.Hour, got: own},
		"no label":                {since: time.Hour, isWrong: true},
		"another label":           {since: time.Hour, got: "x", isWrong: true},
		"SELinux is off":          {since: time.Hour, disabled: true},
		"of several pods":         {since: time.Hour, mode: v1.ReadWriteOnce, got: own, isWrong: true},
		"the gate is on":          {since: time.Hour, mode: v1.ReadWriteOnce, allModes: true, got: own},
		"unsupported":             {since: time.Hour, unsupported: true, got: own, isWrong: true},
		"the driver was not read": {since: time.Second},
		"relabeled": {since: time.Hour, got: own, isWrong: true, change: func(p *v1.Pod) {
			p.Spec.SecurityContext.SELinuxChangePolicy = &recursive
		}},
		"of its container": {since: time.Hour, got: "u:object_r:container_file_t:s0", change: func(
			p *v1.Pod) {
			p.Spec.Containers[0].SecurityContext = &v1.SecurityContext{
				SELinuxOptions: &v1.SELinuxOptions{User: "u", Level: "s0"}}
		}},
		"not mounted": {since: time.Hour, change: func(p *v1.Pod) {
			p.Spec.Containers[0].VolumeMounts = nil
		}},
	} {
		s := newScript()
		s.model.opts.SELinux, s.model.opts.LabelsAllModes = !c.disabled, c.allModes
		supports := !c.unsupported
		writeObject(s, world.Object{}, world.Object{CSIDriver: &storagev1.CSIDriver{
			ObjectMeta: metav1.ObjectMeta{Name: csiDriver},
			Spec:       storagev1.CSIDriverSpec{SELinuxMount: &supports}}}, 0)
		s.now = s.now.Add(c.since)
		csiObjects(s)
		pv := s.model.volumes.volumes["pv"]
		pv.Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteOncePod}
		if c.mode != "" {
			pv.Spec.AccessModes[0] = c.mode
		}
		p := spec("u1", always, "app")
		p.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{
			PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
		p.Spec.SecurityContext = &v1.PodSecurityContext{
			SELinuxOptions: &v1.SELinuxOptions{Level: "s0:c1,c2"}}
		p.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "v"}}
		if c.change != nil {
			c.change(p)
		}
		s.setDesired(p)
		s.CheckFact(truth.Fact{Time: s.now, Kind: truth.VolumePublished, Path: csiTarget("u1"),
			Volume: &truth.Volume{Driver: csiDriver, Handle: "h", Label: c.got}})
		found := (&csiLabels{}).checkFact(s.model, &truth.Fact{Time: s.now,
			Kind: truth.ContainerStarted, PodUID: "u1", Container: "app"})
		if (found != nil) != c.isWrong {
			t.Errorf("%s: %v", name, found)
		}
	}
}
