package pod

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/csi"
	"seedlet.dev/core/volume"
)

// HasBackedVolumes reports whether the pod has volumes that storage backs.
func (p *Pod) HasBackedVolumes() bool {
	return p.Spec != nil &&
		slices.ContainsFunc(p.Spec.Spec.Volumes, func(v v1.Volume) bool { return volume.IsBacked(&v) })
}

// MeasuredVolume returns how the usage of a volume is measured while it is set up: by an operation,
// or by its driver. Neither: it is not measured.
func (p *Pod) MeasuredVolume(v *v1.Volume, node *Node) (request any, use *csi.Use) {
	if p.Storage.Unmounted || !volume.IsBacked(v) {
		return nil, nil
	}
	return p.Storage.Volumes.Measured(v.Name, p.volumeDirs(node))
}
