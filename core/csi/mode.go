package csi

import (
	"maps"
	"slices"
)

// A volume is used in one mode at a time, as a file system or as a device of one name. Pods that
// need it in another one wait until it is let go, but for this: a volume that the authors of pods
// alone have named, and that none of these pods has, is no obstacle for a pod with a claim. (A
// kubelet keeps the mode of each pod, and the first mount decides.)

// isYielding reports whether a volume can be used in another mode for a claim: only authors of pods
// have named it, and nothing of it is, or may be, on the node. All that may be in flight then is a
// read of its attachment, which is the same for each mode.
func (n *Node) isYielding(v *Volume) bool {
	s := &v.Staging
	if v.Ephemeral || s.State != "" || s.Dir || len(v.Publications) > 0 || n.hides(v.Driver, v) {
		return false
	}
	for _, u := range v.Uses { //ordered: whether there is one
		if !u.Inline {
			return false
		}
	}
	return true
}

// changeMode has a volume used in the mode of a use with a claim, and takes it from the pods that
// wait for it in another mode. They are planned, and refused until it is let go.
func (n *Node) changeMode(v *Volume, u *Use) {
	for _, target := range slices.Sorted(maps.Keys(v.Uses)) {
		v.Displaced = append(v.Displaced, v.Uses[target].UID)
	}
	v.Uses = nil
	v.Displaced = slices.Compact(v.Displaced)
	for _, uid := range v.Displaced {
		n.dropOwner(v, uid)
	}
	v.Device, v.Staging, v.Refused = u.device(), Staging{}, true
}

// planMode has the pods planned that a change of the mode concerns: those from which the volume was
// taken, and one that was refused before it could change.
func (n *Node) planMode(v *Volume, env *Env) {
	for _, uid := range v.Displaced {
		env.EnqueuePod(uid)
	}
	v.Displaced = nil
	if v.Refused && len(v.Uses) > 0 && n.isYielding(v) {
		v.Refused = false
		env.EnqueuePods()
	}
}
