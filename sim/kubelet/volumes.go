package kubelet

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"seedlet.dev/world"
)

// Volumes that claims or CSI drivers back. What pods share of a volume is made before the first of
// them gets it, and undone after the last one; a volume has one operation at a time (pendingOps of
// pkg/volume/util/nestedpendingoperations).

// usedVolume is a volume of a pod that a claim or a driver backs, as it was found when the pod
// first needed it.
type usedVolume struct {
	pv        *v1.PersistentVolume // nil: the volume is written in the pod
	name      string               // of its directory: of the PersistentVolume or of the volume
	uid       string               // of the pod
	readOnly  bool
	isBlock   bool
	csi       *v1.CSIPersistentVolumeSource // nil: of another kind
	ephemeral bool                          // a CSI volume that is written in the pod
	pod       *v1.Pod
}

// sharedVolume is what the pods of the node share of a volume.
type sharedVolume struct {
	busy  bool            // a step of it is under way
	ends  bool            // what the pods have shared is being undone
	done  map[string]bool // steps that have succeeded, by key
	users map[string]bool // the UIDs of the pods that have it, or are about to
	inUse v1.UniqueVolumeName
}

// idle is the step of a pod that has to wait.
var idle = &step{}

func isBacked(v *v1.Volume) bool {
	return v.PersistentVolumeClaim != nil || v.Ephemeral != nil || v.CSI != nil
}

// key names a volume among those of the node. Only its pod has one that is written in it.
func (u *usedVolume) key() string {
	if u.csi != nil {
		return u.csi.Driver + "^" + u.csi.VolumeHandle
	}
	return u.name
}

// usedBy returns a volume of a pod; nil while it is not known what backs it.
func (k *Kubelet) usedBy(p *pod, v *v1.Volume) *usedVolume {
	if u := p.used[v.Name]; u != nil {
		return u
	}
	u := &usedVolume{name: v.Name, uid: string(p.object.UID), pod: p.object}
	claim := p.object.Name + "-" + v.Name
	switch {
	case v.CSI != nil:
		u.csi, u.ephemeral = inlineSource(u.uid, v), true
		u.readOnly = v.CSI.ReadOnly != nil && *v.CSI.ReadOnly
	case v.PersistentVolumeClaim != nil:
		claim, u.readOnly = v.PersistentVolumeClaim.ClaimName, v.PersistentVolumeClaim.ReadOnly
	}
	if v.CSI == nil {
		c := k.opts.Server.Object(world.ResourceClaims, p.object.Namespace, claim).Claim
		if c == nil || c.Status.Phase != v1.ClaimBound {
			return nil
		}
		u.pv = k.opts.Server.Object(world.ResourceVolumes, "", c.Spec.VolumeName).Volume
		if u.pv == nil {
			return nil
		}
		u.name, u.csi = u.pv.Name, u.pv.Spec.CSI
		u.isBlock = u.pv.Spec.VolumeMode != nil && *u.pv.Spec.VolumeMode == v1.PersistentVolumeBlock
	}
	p.used[v.Name] = u
	return u
}

// setUpStep returns the next step that gives a pod a volume; idle while there is none, and nil if
// the pod has it.
func (k *Kubelet) setUpStep(p *pod, v *v1.Volume) *step {
	u := k.usedBy(p, v)
	if u == nil {
		return idle
	}
	s := k.shared[u.key()]
	if s == nil {
		s = &sharedVolume{done: map[string]bool{}, users: map[string]bool{}}
		k.shared[u.key()] = s
	}
	if s.busy || s.ends {
		return idle
	}
	s.users[u.uid] = true
	var steps []*step
	switch {
	case u.csi != nil:
		if steps = k.csiSteps(u, s); steps == nil {
			return idle
		}
	default:
		steps = k.nodeSteps(u)
	}
	return p.firstOf(s, steps)
}

// firstOf returns the first step of a volume that has not been done; nil if all have been.
func (p *pod) firstOf(s *sharedVolume, steps []*step) *step {
	i := slices.IndexFunc(steps, func(w *step) bool { return !s.done[w.key] })
	if i < 0 {
		return nil
	}
	p.using = s
	return steps[i]
}

// releaseStep returns the next step that takes the volumes from a pod that has ended; idle while
// another pod's step is under way.
func (k *Kubelet) releaseStep(p *pod) *step {
	for _, name := range sortedKeys(p.used) {
		u := p.used[name]
		s := k.shared[u.key()]
		if s == nil || !s.users[u.uid] {
			continue
		}
		isUnknown := u.csi != nil && k.drivers[u.csi.Driver] == nil
		if s.busy || isUnknown && s.done[recalled] {
			return idle
		}
		tearDown := k.nodeTearDown
		if u.csi != nil {
			tearDown = k.csiTearDown
		}
		steps, last := tearDown(u)
		if w := p.firstOf(s, steps); w != nil {
			return w
		}
		if len(s.users) == 1 {
			s.ends = true
			if w := p.firstOf(s, last); w != nil {
				return w
			}
			delete(k.shared, u.key())
		}
		delete(s.users, u.uid)
		for key := range s.done { //ordered: each by itself
			if isOfPod(key, u.uid) {
				delete(s.done, key)
			}
		}
	}
	return nil
}

// ofPod returns the key of a step for a pod.
func ofPod(key, uid string) string { return key + " of " + uid }

func isOfPod(key, uid string) bool {
	n := len(key) - len(uid)
	return n > 0 && key[n:] == uid
}

// reportInUse writes to the Node which attachable volumes are in use (GetVolumesInUse in
// pkg/kubelet/volumemanager).
func (k *Kubelet) reportInUse() {
	inUse := []v1.UniqueVolumeName{}
	for _, key := range sortedKeys(k.shared) {
		if name := k.shared[key].inUse; name != "" {
			inUse = append(inUse, name)
		}
	}
	if node := k.opts.Server.Object(world.ResourceNodes, "", k.opts.Name).Node; node != nil &&
		!slices.Equal(node.Status.VolumesInUse, inUse) {
		k.admin(&world.PatchObject{Resource: world.ResourceNodes, Name: k.opts.Name, Status: true,
			Patch: []byte(encode(map[string]any{"status": map[string]any{"volumesInUse": inUse}}))})
	}
}

// lifecycleMode returns how long a CSI volume lives.
func (u *usedVolume) lifecycleMode() storagev1.VolumeLifecycleMode {
	if u.ephemeral {
		return storagev1.VolumeLifecycleEphemeral
	}
	return storagev1.VolumeLifecyclePersistent
}
