package oracle

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/world"
)

// A driver mounts a persistent volume as that says.
func TestCSICapability(t *testing.T) {
	pv := func(change func(*v1.PersistentVolumeSpec)) *v1.PersistentVolume {
		pv := &v1.PersistentVolume{Spec: v1.PersistentVolumeSpec{MountOptions: []string{"noatime"},
			AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
			PersistentVolumeSource: v1.PersistentVolumeSource{
				CSI: &v1.CSIPersistentVolumeSource{FSType: "xfs"}}}}
		change(&pv.Spec)
		return pv
	}
	as := func(mode v1.PersistentVolumeAccessMode) func(*v1.PersistentVolumeSpec) {
		return func(s *v1.PersistentVolumeSpec) { s.AccessModes[0] = mode }
	}
	device := func(s *v1.PersistentVolumeSpec) {
		block := v1.PersistentVolumeBlock
		s.VolumeMode = &block
	}
	same := func(*v1.PersistentVolumeSpec) {}
	const one, single = world.CSISingleNodeWriter, world.CSISingleNodeSingleWriter
	const multi, many = world.CSISingleNodeMultiWriter, world.CSIMultiNodeMultiWriter
	flags := []string{"noatime"}
	files := func(access world.CSIAccessMode) world.CSICapability {
		return world.CSICapability{FSType: "xfs", MountFlags: flags, Access: access}
	}
	labelled, bare, ext4 := files(multi), files(one), files(one)
	labelled.MountFlags, bare.MountFlags, ext4.FSType = append(flags, "context=x"), nil, "ext4"
	for name, c := range map[string]struct {
		change func(*v1.PersistentVolumeSpec)
		got    world.CSICapability
		found  bool
	}{
		"as it is":                {same, files(one), false},
		"with a label":            {same, labelled, false},
		"no options":              {same, bare, true},
		"another type":            {same, ext4, true},
		"as a device":             {same, world.CSICapability{Block: true, Access: one}, true},
		"for many nodes":          {same, files(many), true},
		"of one pod":              {as(v1.ReadWriteOncePod), files(single), false},
		"of one pod, for several": {as(v1.ReadWriteOncePod), files(multi), true},
		"of many nodes":           {as(v1.ReadWriteMany), files(many), false},
		"of many nodes, for one":  {as(v1.ReadWriteMany), files(one), true},
		"to read, for a writer":   {as(v1.ReadOnlyMany), files(one), true},
		"a device":                {device, world.CSICapability{Block: true, Access: one}, false},
		"a device with a file system": {device,
			world.CSICapability{Block: true, FSType: "xfs", Access: one}, true},
		"a device, as files": {device, files(one), true},
	} {
		if f := findWrongCapability("StageVolume", pv(c.change), &c.got); (f != nil) != c.found {
			t.Errorf("%s: %v", name, f)
		}
	}
	if f := findWrongCapability("StageVolume", nil, &world.CSICapability{}); f != nil {
		t.Errorf("without a persistent volume: %v", f)
	}
}
