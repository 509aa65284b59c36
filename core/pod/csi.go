package pod

import (
	"slices"

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

// sharedVolume declares that the pod uses a volume, and returns how far that is. A pod that ends
// declares none again.
func (p *Pod) sharedVolume(u csi.Use, env *Env) volume.Shared {
	if p.Stage != Syncing {
		return volume.Shared(env.CSI.Node.UseStateOf(&u))
	}
	u.HasRun = p.hasContainerInSandbox()
	state, changed := env.CSI.Node.Use(u, env.Effects.Now())
	if changed {
		env.CSI.Enqueue(csi.UniqueName(u.Driver, u.Handle))
	}
	return volume.Shared(state)
}

// hasContainerInSandbox reports whether a container was created in the current sandbox, so that the
// volumes were ready in it. The containers of earlier sandboxes may be of before a reboot, since
// when an earlier agent may have started to publish the volumes again.
func (p *Pod) hasContainerInSandbox() bool {
	s := p.CurrentSandbox()
	return s != nil && slices.ContainsFunc(p.Containers, func(c Container) bool {
		return c.SandboxID == s.ID
	})
}

// planSharedVolumes has the volumes of the pod planned, when other objects are watched for the pod.
func (p *Pod) planSharedVolumes(env *Env) {
	if env.CSI.Node == nil {
		return
	}
	for _, name := range env.CSI.Node.Owners[p.UID] {
		env.CSI.Enqueue(name)
	}
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
