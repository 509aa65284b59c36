package csi

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/world"
)

// The first access mode of a persistent volume is that of the calls, as far as the driver knows it.
func TestAccessMode(t *testing.T) {
	const once, onePod = v1.ReadWriteOnce, v1.ReadWriteOncePod
	for _, c := range []struct {
		modes       []v1.PersistentVolumeAccessMode
		ephemeral   bool
		one, writer world.CSIAccessMode // without and with SINGLE_NODE_MULTI_WRITER
	}{
		{nil, true, world.CSISingleNodeWriter, world.CSISingleNodeMultiWriter},
		{[]v1.PersistentVolumeAccessMode{once}, false, world.CSISingleNodeWriter,
			world.CSISingleNodeMultiWriter},
		{[]v1.PersistentVolumeAccessMode{onePod}, false, world.CSISingleNodeWriter,
			world.CSISingleNodeSingleWriter},
		{[]v1.PersistentVolumeAccessMode{v1.ReadOnlyMany}, false, world.CSIMultiNodeReaderOnly,
			world.CSIMultiNodeReaderOnly},
		{[]v1.PersistentVolumeAccessMode{v1.ReadWriteMany, once}, false,
			world.CSIMultiNodeMultiWriter, world.CSIMultiNodeMultiWriter},
		{[]v1.PersistentVolumeAccessMode{once, v1.ReadWriteMany}, false, world.CSISingleNodeWriter,
			world.CSISingleNodeMultiWriter},
	} {
		v, u := &Volume{Ephemeral: c.ephemeral}, &Use{AccessModes: c.modes}
		if got := accessMode(v, u, false); got != c.one {
			t.Errorf("%v: %v, want %v", c.modes, got, c.one)
		}
		if got := accessMode(v, u, true); got != c.writer {
			t.Errorf("%v, driver with SINGLE_NODE_MULTI_WRITER: %v, want %v", c.modes, got, c.writer)
		}
	}
}
