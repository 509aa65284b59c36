package oracle

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/world"
)

// A part of the oracle csi-content: how a driver is to mount a volume.

// findWrongCapability judges with which capability a call asks for a persistent volume; nil for any
// other volume.
func findWrongCapability(call string, pv *v1.PersistentVolume, got *world.CSICapability) *finding {
	if pv == nil || pv.Spec.CSI == nil {
		return nil
	}
	if !slices.Contains(accessOf(pv), got.Access) {
		return findingf("%s of volume %s asks for %s, although its access modes are %v", call, pv.Name,
			got.Access, pv.Spec.AccessModes)
	}
	isBlock := pv.Spec.VolumeMode != nil && *pv.Spec.VolumeMode == v1.PersistentVolumeBlock
	if isBlock || got.Block {
		if !isBlock || !got.Block || got.FSType != "" || len(got.MountFlags) > 0 {
			return findingf("%s of volume %s asks for %+v, although it is a device: %v", call, pv.Name,
				*got, isBlock)
		}
		return nil
	}
	if got.FSType != pv.Spec.CSI.FSType {
		return findingf("%s of volume %s asks for the file system %q, not %q", call, pv.Name, got.FSType,
			pv.Spec.CSI.FSType)
	}
	flags := slices.DeleteFunc(slices.Clone(got.MountFlags), func(flag string) bool {
		return strings.HasPrefix(flag, "context=") // the oracle csi-labels judges it
	})
	if !slices.Equal(flags, pv.Spec.MountOptions) {
		return findingf("%s of volume %s has the options %q, not %q", call, pv.Name, flags,
			pv.Spec.MountOptions)
	}
	return nil
}

// accessOf returns the access modes with which a driver may be asked for a volume: by its first
// one, as by a kubelet. A driver that lacks SINGLE_NODE_MULTI_WRITER is asked for
// SINGLE_NODE_WRITER.
func accessOf(pv *v1.PersistentVolume) []world.CSIAccessMode {
	mode := v1.ReadWriteOnce
	if len(pv.Spec.AccessModes) > 0 {
		mode = pv.Spec.AccessModes[0]
	}
	switch mode {
	case v1.ReadOnlyMany:
		return []world.CSIAccessMode{world.CSIMultiNodeReaderOnly}
	case v1.ReadWriteMany:
		return []world.CSIAccessMode{world.CSIMultiNodeMultiWriter}
	case v1.ReadWriteOncePod:
		return []world.CSIAccessMode{world.CSISingleNodeWriter, world.CSISingleNodeSingleWriter}
	}
	return []world.CSIAccessMode{world.CSISingleNodeWriter, world.CSISingleNodeMultiWriter}
}

// findWrongMount judges how a call mounts a volume of a pod.
func (m *model) findWrongMount(p *pod, v *v1.Volume, call *world.PublishVolume) *finding {
	name, readOnly := claimName(p.spec, v)
	if v.CSI != nil {
		name, readOnly = v.Name, isTrue(v.CSI.ReadOnly)
	}
	if name != "" && call.ReadOnly != readOnly {
		return findingf("PublishVolume of volume %s of %s is read-only: %v, want %v", v.Name, p,
			call.ReadOnly, readOnly)
	}
	return findWrongCapability("PublishVolume", m.volumes.volumeOf(p.spec, v), &call.Capability)
}
