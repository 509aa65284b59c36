// Package claim resolves the volumes of a pod that are backed by a persistent volume: those with a
// claim, and generic ephemeral ones, whose claim belongs to the pod.
//
// It keeps no facts: the result is a function of the pod and of the objects that package
// objectcache has read. Checks, their order and their messages are the kubelet's
// (pkg/kubelet/volumemanager/populator). Start reading at Resolve.
package claim

import (
	"errors"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"seedlet.dev/core/objectcache"
	"seedlet.dev/world"
)

// Resolved is what backs a volume of a pod.
type Resolved struct {
	Claim  *v1.PersistentVolumeClaim
	Volume *v1.PersistentVolume
	// ReadOnly is set if the pod asks for a volume that is read-only. Single mounts of containers may
	// be read-only beside it.
	ReadOnly bool
	// Mode is the volumeMode of the persistent volume, which containers use accordingly.
	Mode v1.PersistentVolumeMode
}

// protectionFinalizer keeps a claim that is being deleted while pods use it
// (pkg/volume/util/finalizer.go).
const protectionFinalizer = "kubernetes.io/pvc-protection"

// Name returns the name of the claim of a volume, in the namespace of the pod; empty for a volume
// without one. The claim of a generic ephemeral volume is named after the pod and the volume
// (KEP-1698).
func Name(pod *v1.Pod, v *v1.Volume) string {
	switch {
	case v.PersistentVolumeClaim != nil:
		return v.PersistentVolumeClaim.ClaimName
	case v.Ephemeral != nil:
		return pod.Name + "-" + v.Name
	}
	return ""
}

// Target returns the claim of a volume as a target of package objectcache.
func Target(pod *v1.Pod, v *v1.Volume) world.WatchTarget {
	return world.WatchTarget{Resource: world.ResourceClaims, Namespace: pod.Namespace,
		Name: Name(pod, v)}
}

// VolumeTarget returns a persistent volume as a target of package objectcache.
func VolumeTarget(name string) world.WatchTarget {
	return world.WatchTarget{Resource: world.ResourceVolumes, Name: name}
}

// VolumeName returns the persistent volume that a claim is bound to. A node may read it once the
// volume is bound to the claim, which comes first (the node authorizer); what a claim names before
// that is the choice of its author. The name is empty while the claim is not known or not bound.
func VolumeName(pod *v1.Pod, v *v1.Volume, objects *objectcache.Store) string {
	found := lookup(objects, Target(pod, v))
	if found.object != nil && found.object.Claim.Status.Phase == v1.ClaimBound {
		return found.object.Claim.Spec.VolumeName
	}
	return ""
}

// Resolve returns what backs a volume that has a claim. use is how the pod's containers use it.
//
// Without an error, not known means that an object is still being read. With an error there is no
// result: either the objects are known and not usable (yet), or, not known, they cannot be read at
// present. Both may change, and the volume is resolved again then.
func Resolve(pod *v1.Pod, v *v1.Volume, use Use,
	objects *objectcache.Store) (r Resolved, known bool, err error) {
	name := Name(pod, v)
	if name == "" {
		return r, true, fmt.Errorf("volume %s has no claim", v.Name)
	}
	found := lookup(objects, Target(pod, v))
	if found.object == nil {
		if found.err != nil {
			err = processing(pod, name, fmt.Errorf("failed to fetch PVC from API server: %w", found.err))
		}
		return r, found.known, err
	}
	claim := found.object.Claim
	if err := checkClaim(claim); err != nil {
		return r, true, processing(pod, name, err)
	}
	// Anybody may have created a claim of that name.
	if v.PersistentVolumeClaim == nil &&
		(claim.Namespace != pod.Namespace || !metav1.IsControlledBy(claim, pod)) {
		return r, true, fmt.Errorf("PVC %s/%s was not created for pod %s/%s (pod is not owner)",
			claim.Namespace, claim.Name, pod.Namespace, pod.Name)
	}
	found = lookup(objects, VolumeTarget(claim.Spec.VolumeName))
	if found.object == nil {
		if found.err != nil {
			err = processing(pod, name, fmt.Errorf("failed to fetch PV %s from API server: %w",
				claim.Spec.VolumeName, found.err))
		}
		return r, found.known, err
	}
	volume := found.object.Volume
	if err := checkVolume(volume, claim); err != nil {
		return r, true, processing(pod, name, err)
	}
	if err := checkMode(use, v.Name, volume); err != nil {
		return r, true, err
	}
	readOnly := v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ReadOnly
	return Resolved{claim, volume, readOnly, *volume.Spec.VolumeMode}, true, nil
}

// Unusable returns the objects that the pod cannot use as they are, although the claim of a volume
// is bound: the claim, and the persistent volume if that is not the claim's.
func Unusable(pod *v1.Pod, v *v1.Volume, objects *objectcache.Store) []world.WatchTarget {
	if VolumeName(pod, v, objects) == "" {
		return nil
	}
	found := lookup(objects, Target(pod, v))
	claim := found.object.Claim
	if checkClaim(claim) != nil ||
		v.PersistentVolumeClaim == nil && !metav1.IsControlledBy(claim, pod) {
		return []world.WatchTarget{Target(pod, v)}
	}
	target := VolumeTarget(claim.Spec.VolumeName)
	switch found = lookup(objects, target); {
	case found.object == nil && found.known: // a claim that is created again may name another volume
		return []world.WatchTarget{Target(pod, v)}
	case found.object == nil || checkVolume(found.object.Volume, claim) == nil:
		return nil
	}
	return []world.WatchTarget{Target(pod, v), target}
}

func processing(pod *v1.Pod, claim string, err error) error {
	return fmt.Errorf("error processing PVC %s/%s: %w", pod.Namespace, claim, err)
}

// checkClaim returns why a pod cannot use a claim.
func checkClaim(claim *v1.PersistentVolumeClaim) error {
	switch {
	case claim.DeletionTimestamp != nil && !slices.Contains(claim.Finalizers, protectionFinalizer):
		// With the finalizer the claim stays until no pod uses it: a pod that runs keeps it after a
		// restart of the agent.
		return errors.New("PVC is being deleted")
	case claim.Status.Phase != v1.ClaimBound:
		return errors.New("PVC is not bound")
	case claim.Spec.VolumeName == "":
		return errors.New("PVC has empty pvc.Spec.VolumeName")
	}
	return nil
}

// checkVolume returns why a persistent volume is not the one of a claim that names it.
func checkVolume(volume *v1.PersistentVolume, claim *v1.PersistentVolumeClaim) error {
	switch ref := volume.Spec.ClaimRef; {
	case ref == nil:
		return fmt.Errorf("found PV object %s but it has a nil pv.Spec.ClaimRef indicating it is not "+
			"yet bound to the claim", volume.Name)
	case ref.UID != claim.UID:
		return fmt.Errorf("found PV object %s but its pv.Spec.ClaimRef.UID %s does not point to "+
			"claim.UID %s", volume.Name, ref.UID, claim.UID)
	}
	return nil
}

// checkMode returns an error if containers mount a block volume, or use a file system as a device.
func checkMode(use Use, name string, volume *v1.PersistentVolume) error {
	mode := volume.Spec.VolumeMode
	if mode == nil {
		return fmt.Errorf("cannot get volumeMode for volume: %v", volume.Name)
	}
	switch {
	case use.Mounted && *mode != v1.PersistentVolumeFilesystem:
		return fmt.Errorf("volume %s has volumeMode %s, but is specified in volumeMounts", name, *mode)
	case use.Device && *mode != v1.PersistentVolumeBlock:
		return fmt.Errorf("volume %s has volumeMode %s, but is specified in volumeDevices", name, *mode)
	}
	return nil
}

// found is the result of looking up one object.
type found struct {
	object *world.Object
	known  bool
	err    error // why there is no object
}

// lookup looks up an object. The message for an absent one is the API server's.
func lookup(objects *objectcache.Store, target world.WatchTarget) found {
	if objects == nil {
		return found{known: true, err: errors.New("there is no API server")}
	}
	object, known := objects.Get(target.Resource, target.Namespace, target.Name)
	if object != nil {
		return found{object: object, known: true}
	}
	if known {
		return found{known: true, err: fmt.Errorf("%s %q not found", target.Resource, target.Name)}
	}
	if w := objects.Watch(target); w != nil && w.Failing != nil {
		return found{err: errors.New(w.Failing.Message)}
	}
	return found{}
}
