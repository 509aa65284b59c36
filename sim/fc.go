package sim

import (
	"fmt"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/plan"
	"seedlet.dev/sim/scsi"
)

// provisionFC gives a claim a disk of its own, of the arrays in turns, and reports whether there
// are any. Some are named by the ports of their array, the others by themselves.
func (r *run) provisionFC(spec *v1.PersistentVolumeSpec, isFormatted bool) bool {
	if !r.plan.HasFC() {
		return false
	}
	arrays := r.plan.FC.Arrays
	n := r.volumes.fc
	r.volumes.fc++
	a, lun := &arrays[n%len(arrays)], int32(1+n/len(arrays))
	source := &v1.FCVolumeSource{TargetWWNs: a.WWNs, Lun: &lun, FSType: "ext4"}
	if n%3 == 1 {
		source = &v1.FCVolumeSource{WWIDs: []string{plan.FCDiskName(a.WWNs[0], lun)}, FSType: "ext4"}
	}
	switch {
	case *spec.VolumeMode == v1.PersistentVolumeBlock:
		source.FSType = ""
	case isFormatted:
		r.disk.FormatSource(scsi.Node(a.WWNs[0], lun))
	}
	spec.FC = source
	spec.MountOptions = []string{"noatime"}
	return true
}

// fcNameOf returns the name of a fibre channel disk in the status of the Node (GetVolumeName in
// pkg/volume/fc).
func fcNameOf(source *v1.FCVolumeSource) v1.UniqueVolumeName {
	name := fmt.Sprintf("kubernetes.io/fc/%v", source.WWIDs)
	if len(source.TargetWWNs) > 0 {
		name = fmt.Sprintf("kubernetes.io/fc/%v:%d", source.TargetWWNs, *source.Lun)
	}
	return v1.UniqueVolumeName(name)
}
