package sim

import (
	"fmt"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/plan"
	"seedlet.dev/sim/scsi"
	"seedlet.dev/sim/wire"
)

// provisionFC gives a claim a disk, of the arrays in turns, and reports whether there are any.
// Every fourth claim has the disk of an earlier one, which may be of another mode. The ways to name
// a disk are drawn: by all ports of its array, by one, by the name that the kernel has, or by that
// of udev.
func (r *run) provisionFC(spec *v1.PersistentVolumeSpec, isFormatted bool) bool {
	if !r.plan.HasFC() {
		return false
	}
	arrays := r.plan.FC.Arrays
	n := r.volumes.fc
	r.volumes.fc++
	draws := wire.Stream(r.plan.Seed, fmt.Sprint("fc volume ", n))
	of := n
	if n%4 == 3 {
		of = draws.IntN(n)
	}
	a, lun := &arrays[of%len(arrays)], int32(1+of/len(arrays))
	source := &v1.FCVolumeSource{FSType: "ext4"}
	switch first, last := a.WWNs[:1], a.WWNs[len(a.WWNs)-1:]; draws.IntN(8) {
	case 0, 1:
		source.WWIDs = []string{plan.FCDiskName(a.WWNs[0], lun)}
	case 2:
		source.WWIDs = []string{plan.FCSerialName(a.WWNs[0], lun)}
	case 3:
		source.TargetWWNs, source.Lun = first, &lun
	case 4:
		source.TargetWWNs, source.Lun = last, &lun
	default:
		source.TargetWWNs, source.Lun = a.WWNs, &lun
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
