package sim

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"seedlet.dev/sim/plan"
	"seedlet.dev/sim/wire"
	"seedlet.dev/world"
)

// The controllers of the cluster that act on claims and volumes: the persistent volume controller,
// a provisioner for each class, the controller of ephemeral volumes, those of the protection, and
// the garbage collector. Each claim gets a volume of its own, whose source has the claim's UID.

const (
	volumePeriod        = 200 * time.Millisecond
	protectionFinalizer = "kubernetes.io/pvc-protection"
)

// volumeControllers is the state of these controllers.
type volumeControllers struct {
	rng *rand.Rand
	// dueAt is when the next step towards the volume of a claim is taken, by the claim's UID.
	dueAt map[string]time.Time
	// resizeAt is when the next step of the expansion of a claim is taken, by the claim's UID.
	resizeAt map[string]time.Time
	iscsi    int // volumes of the kind iscsi, so far
	fc       int // the same of fc
}

// startVolumeControllers starts the controllers, if a plan has claims.
func (r *run) startVolumeControllers() {
	if !r.plan.HasClaims() {
		return
	}
	r.volumes = volumeControllers{rng: wire.Stream(r.plan.Seed, "volume controllers"),
		dueAt: map[string]time.Time{}, resizeAt: map[string]time.Time{}}
	r.startGrowth()
	var reconcile func()
	reconcile = func() {
		r.makeEphemeralClaims()
		r.collectClaims()
		r.bindClaims()
		r.resizeClaims()
		r.removeReleasedVolumes()
		r.agenda.After(volumePeriod, reconcile)
	}
	r.agenda.After(volumePeriod, reconcile)
}

// makeEphemeralClaims creates the claims of the generic ephemeral volumes of the node's pods.
func (r *run) makeEphemeralClaims() {
	yes := true
	for _, o := range r.server.Objects(world.ResourcePods) {
		if o.Pod.Spec.NodeName != plan.NodeName || o.Pod.DeletionTimestamp != nil {
			continue
		}
		for i := range o.Pod.Spec.Volumes {
			v := &o.Pod.Spec.Volumes[i]
			if v.Ephemeral == nil || v.Ephemeral.VolumeClaimTemplate == nil ||
				r.server.Object(world.ResourceClaims, o.Pod.Namespace, o.Pod.Name+"-"+v.Name).Claim != nil {
				continue
			}
			r.adminWrite("ephemeral volumes", &world.CreateObject{Object: world.Object{
				Claim: &v1.PersistentVolumeClaim{
					ObjectMeta: metav1.ObjectMeta{Namespace: o.Pod.Namespace, Name: o.Pod.Name + "-" + v.Name,
						OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod",
							Name: o.Pod.Name, UID: o.Pod.UID, Controller: &yes}}},
					Spec: *v.Ephemeral.VolumeClaimTemplate.Spec.DeepCopy()}}})
		}
	}
}

// collectClaims protects claims that pods use, lets go of those that none uses any more, and
// deletes those whose pod has gone.
func (r *run) collectClaims() {
	for _, o := range r.server.Objects(world.ResourceClaims) {
		claim := o.Claim
		isProtected := slices.Contains(claim.Finalizers, protectionFinalizer)
		switch {
		case claim.DeletionTimestamp == nil && !isProtected:
			r.patchClaim(claim, false, `{"metadata":{"finalizers":["`+protectionFinalizer+`"]}}`)
		case claim.DeletionTimestamp != nil && isProtected && !r.isClaimUsed(claim):
			r.patchClaim(claim, false, `{"metadata":{"finalizers":null}}`)
		case claim.DeletionTimestamp == nil && r.isOwnerGone(claim):
			r.adminWrite("garbage collector", &world.DeleteObject{Resource: world.ResourceClaims,
				Namespace: claim.Namespace, Name: claim.Name, UID: string(claim.UID)})
		}
	}
}

// isClaimUsed reports whether a pod that was bound to a node names the claim.
func (r *run) isClaimUsed(claim *v1.PersistentVolumeClaim) bool {
	for _, o := range r.server.Objects(world.ResourcePods) {
		if o.Pod.Namespace != claim.Namespace || o.Pod.Spec.NodeName == "" {
			continue
		}
		for _, v := range o.Pod.Spec.Volumes {
			if v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == claim.Name ||
				v.Ephemeral != nil && o.Pod.Name+"-"+v.Name == claim.Name &&
					metav1.IsControlledBy(claim, o.Pod) {
				return true
			}
		}
	}
	return false
}

// isOwnerGone reports whether the pod that a claim belongs to does not exist any more.
func (r *run) isOwnerGone(claim *v1.PersistentVolumeClaim) bool {
	for _, owner := range claim.OwnerReferences {
		pod := r.server.Object(world.ResourcePods, claim.Namespace, owner.Name).Pod
		if owner.Kind == "Pod" && (pod == nil || pod.UID != owner.UID) {
			return true
		}
	}
	return false
}

// bindClaims takes the next step for each claim that is not bound: its volume is provisioned, then
// the claim names it, then the claim is bound.
func (r *run) bindClaims() {
	for _, o := range r.server.Objects(world.ResourceClaims) {
		claim := o.Claim
		if claim.Status.Phase == v1.ClaimBound {
			continue
		}
		now, uid := r.agenda.Now(), string(claim.UID)
		if _, known := r.volumes.dueAt[uid]; !known {
			r.volumes.dueAt[uid] = now.Add(r.drawVolumeDelay())
		}
		if now.Before(r.volumes.dueAt[uid]) {
			continue
		}
		name := volumeName(claim)
		volume := r.server.Object(world.ResourceVolumes, "", name).Volume
		switch {
		case volume == nil:
			r.provision(claim, name)
		case claim.Spec.VolumeName == "":
			r.patchClaim(claim, false, fmt.Sprintf(`{"spec":{"volumeName":%q}}`, name))
		default:
			r.patchClaim(claim, true, `{"status":{"phase":"Bound","capacity":{"storage":"1Gi"}}}`)
		}
		// The agent may see each of these states, which are usually a moment apart.
		r.volumes.dueAt[uid] = now.Add(time.Duration(r.volumes.rng.Int64N(int64(time.Second))))
	}
}

// drawVolumeDelay draws how long a claim waits for its volume.
func (r *run) drawVolumeDelay() time.Duration {
	most := time.Duration(r.plan.BindsWithin)
	if r.healed || most <= 0 {
		return 0
	}
	return time.Duration(r.volumes.rng.Int64N(int64(most)))
}

// volumeName returns the name of the volume that is provisioned for a claim.
func volumeName(claim *v1.PersistentVolumeClaim) string { return "pvc-" + string(claim.UID) }

// The classes of claims, by the kind of the volumes that are provisioned for them.
const (
	classLocal    = "local"
	classDevice   = "device" // a local volume of a block device
	classHostPath = "host-path"
	classNFS      = "nfs"
)

// provision creates the volume of a claim, and what it is on the node.
func (r *run) provision(claim *v1.PersistentVolumeClaim, name string) {
	mode := v1.PersistentVolumeFilesystem
	if claim.Spec.VolumeMode != nil {
		mode = *claim.Spec.VolumeMode
	}
	spec := v1.PersistentVolumeSpec{VolumeMode: &mode, AccessModes: claim.Spec.AccessModes,
		Capacity: v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi")},
		ClaimRef: &v1.ObjectReference{Kind: "PersistentVolumeClaim", Namespace: claim.Namespace,
			Name: claim.Name, UID: claim.UID},
		PersistentVolumeReclaimPolicy: v1.PersistentVolumeReclaimDelete}
	if claim.Spec.StorageClassName != nil {
		spec.StorageClassName = *claim.Spec.StorageClassName
	}
	kind := v1.HostPathDirectoryOrCreate
	switch spec.StorageClassName {
	case classLocal:
		spec.Local = &v1.LocalVolumeSource{Path: plan.LocalVolumesDir + "/" + name}
		r.disk.CreateSpecial(spec.Local.Path, world.PathDirectory)
	case classDevice:
		spec.Local = &v1.LocalVolumeSource{Path: "/dev/" + name}
		r.disk.CreateSpecial(spec.Local.Path, world.PathBlockDevice)
	case classHostPath:
		spec.HostPath = &v1.HostPathVolumeSource{Path: plan.HostVolumesDir + "/" + name, Type: &kind}
	case classNFS:
		spec.NFS = &v1.NFSVolumeSource{Server: plan.NFSServer, Path: "/" + claim.Name}
		spec.MountOptions = []string{"hard", "vers=4.2"}
	case plan.FCClass:
		if !r.provisionFC(&spec, len(claim.OwnerReferences) == 0) {
			return
		}
	case plan.ISCSIClass:
		if !r.provisionISCSI(&spec, len(claim.OwnerReferences) == 0) {
			return
		}
	default:
		if !r.plan.HasCSIDriver(spec.StorageClassName) {
			return // no provisioner has the class
		}
		fsType := ""
		if mode == v1.PersistentVolumeFilesystem {
			fsType = "ext4"
		}
		if spec.StorageClassName == plan.CinderDriver { // as before the plugin was replaced
			spec.Cinder = &v1.CinderPersistentVolumeSource{VolumeID: "vol-" + name, FSType: fsType}
			break
		}
		spec.CSI = &v1.CSIPersistentVolumeSource{Driver: spec.StorageClassName, FSType: fsType,
			VolumeHandle: "vol-" + name, VolumeAttributes: map[string]string{"claim": claim.Name}}
		r.addSecrets(spec.CSI)
	}
	r.disk.Sync() // a provisioner answers for what it has made
	volume := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
	if spec.NFS != nil { // an old provisioner of shares
		volume.Annotations = map[string]string{"pv.beta.kubernetes.io/gid": "3000"}
	}
	r.adminWrite("provisioner", &world.CreateObject{Object: world.Object{Volume: volume}})
}

// addSecrets has a volume name the Secrets with which its driver stages and publishes it.
func (r *run) addSecrets(source *v1.CSIPersistentVolumeSource) {
	is := r.plan.CSIDriverNamed(source.Driver)
	if is.StageSecret {
		source.NodeStageSecretRef = &v1.SecretReference{Namespace: metav1.NamespaceDefault,
			Name: plan.StageSecretName}
	}
	if is.PublishSecret {
		source.NodePublishSecretRef = &v1.SecretReference{Namespace: metav1.NamespaceDefault,
			Name: plan.PublishSecretName}
	}
}

// removeReleasedVolumes deletes the volumes whose claim does not exist any more. One that is
// attached stays until it is not (canDeleteVolume of the external-provisioner).
func (r *run) removeReleasedVolumes() {
	for _, o := range r.server.Objects(world.ResourceVolumes) {
		ref := o.Volume.Spec.ClaimRef
		if ref == nil || r.volumes.dueAt[string(ref.UID)].IsZero() {
			continue // made by an administrator
		}
		claim := r.server.Object(world.ResourceClaims, ref.Namespace, ref.Name).Claim
		if (claim == nil || claim.UID != ref.UID) && !r.hasAttachment(o.Volume.Name) {
			r.adminWrite("provisioner", &world.DeleteObject{Resource: world.ResourceVolumes,
				Name: o.Volume.Name})
		}
	}
}

// hasAttachment reports whether a persistent volume is attached, or about to be.
func (r *run) hasAttachment(pv string) bool {
	return slices.ContainsFunc(r.server.Objects(world.ResourceAttachments), func(o world.Object) bool {
		name := o.Attachment.Spec.Source.PersistentVolumeName
		return name != nil && *name == pv
	})
}

func (r *run) patchClaim(claim *v1.PersistentVolumeClaim, status bool, patch string) {
	r.adminWrite("volume controller", &world.PatchObject{Resource: world.ResourceClaims,
		Namespace: claim.Namespace, Name: claim.Name, Status: status, Patch: json.RawMessage(patch)})
}
