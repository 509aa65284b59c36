package pod

import (
	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/csi"
	"seedlet.dev/core/volume"
)

// The pod's volumes of CSI drivers. Package csi has their facts, as pods share them; the pod
// declares which it needs, and takes that back when it has ended.

// CSI is where a pod finds the volumes of CSI drivers.
type CSI struct {
	Node *csi.Node
	// Enqueue plans a volume, by its unique name.
	Enqueue func(name string)
}

// csiUse returns how the pod uses a volume of a CSI driver, and false for other volumes.
func (p *Pod) csiUse(v *v1.Volume) (csi.Use, bool) {
	if v.CSI == nil {
		return csi.Use{}, false
	}
	u := csi.InlineUse(p.Spec, v)
	u.HasRun = len(p.Containers) > 0
	return u, true
}

// sharedVolume returns how far a volume is that package csi has; false for other volumes. A pod
// that ends declares no volume again.
func (p *Pod) sharedVolume(v *v1.Volume, env *Env) (volume.Shared, bool) {
	u, isCSI := p.csiUse(v)
	switch {
	case !isCSI:
		return volume.Shared{}, false
	case env.Objects == nil:
		return volume.Shared{Failures: 1, Problem: "MountVolume.NewMounter initialization failed for " +
			"volume \"" + v.Name + "\" : failed to get a kubernetes client"}, true
	case p.Stage != Syncing:
		return volume.Shared(env.CSI.Node.UseStateOf(&u)), true
	}
	state, changed := env.CSI.Node.Use(u, env.Effects.Now())
	if changed {
		env.CSI.Enqueue(csi.UniqueName(u.Driver, u.Handle))
	}
	return volume.Shared(state), true
}

// releaseShared takes back what the pod needs of CSI volumes, and reports whether the pod has to
// wait because something is, or may be, published in its directory.
func (p *Pod) releaseShared(env *Env) (waits bool) {
	if env.CSI.Node == nil {
		return false
	}
	changed, held := env.CSI.Node.Release(p.UID)
	for _, name := range changed {
		env.CSI.Enqueue(name)
	}
	return held
}
