package oracle

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/truth"
)

// A container has the disk of its claim with the label of its pod, where the access mode allows
// that, and a disk that is written in the pod without one.
func TestDiskLabels(t *testing.T) {
	const own = "system_u:object_r:container_file_t:s0:c1,c2"
	recursive := v1.SELinuxChangePolicyRecursive
	for name, c := range map[string]struct {
		disabled, isInline bool
		mode               v1.PersistentVolumeAccessMode
		change             func(p *v1.Pod)
		got                string
		isWrong            bool
	}{
		"label":           {got: own},
		"no label":        {isWrong: true},
		"another label":   {got: "x", isWrong: true},
		"SELinux is off":  {disabled: true},
		"of several pods": {mode: v1.ReadWriteOnce, got: own, isWrong: true},
		"relabeled": {change: func(p *v1.Pod) {
			p.Spec.SecurityContext.SELinuxChangePolicy = &recursive
		}},
		"not mounted":              {change: func(p *v1.Pod) { p.Spec.Containers[0].VolumeMounts = nil }},
		"of the pod":               {isInline: true},
		"of the pod, with a label": {isInline: true, got: own, isWrong: true},
	} {
		s := newScript()
		s.model.opts.SELinux = !c.disabled
		csiObjects(s)
		pv, filesystem := s.model.volumes.volumes["pv"], v1.PersistentVolumeFilesystem
		pv.Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteOncePod}
		if c.mode != "" {
			pv.Spec.AccessModes[0] = c.mode
		}
		source := v1.ISCSIVolumeSource{TargetPortal: "10.0.0.1", IQN: diskTarget, Lun: 1}
		pv.Spec.PersistentVolumeSource = v1.PersistentVolumeSource{
			ISCSI: &v1.ISCSIPersistentVolumeSource{TargetPortal: source.TargetPortal, IQN: source.IQN,
				Lun: source.Lun}}
		pv.Spec.VolumeMode = &filesystem
		p := spec("u1", always, "app")
		p.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{
			PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
		at := podsDir + "/u1/volumes/kubernetes.io~iscsi/pv"
		if c.isInline {
			p.Spec.Volumes[0].VolumeSource, at = v1.VolumeSource{ISCSI: &source}, diskOfPod
		}
		p.Spec.SecurityContext = &v1.PodSecurityContext{
			SELinuxOptions: &v1.SELinuxOptions{Level: "s0:c1,c2"}}
		p.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "v"}}
		if c.change != nil {
			c.change(p)
		}
		s.setDesired(p)
		s.CheckFact(truth.Fact{Time: s.now, Kind: truth.Mounted, Path: at, Source: diskNode,
			NewPath: "/", Label: c.got})
		found := (&diskLabels{}).checkFact(s.model, &truth.Fact{Time: s.now,
			Kind: truth.ContainerStarted, PodUID: "u1", Container: "app"})
		if (found != nil) != c.isWrong {
			t.Errorf("%s: %v", name, found)
		}
	}
}
