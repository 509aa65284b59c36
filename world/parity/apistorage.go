package parity

import (
	"encoding/json"
	"fmt"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"seedlet.dev/world"
)

// storageCases are rules for the objects of storage.
var storageCases = []apiCase{
	{"a node can read the claims of its pods and the volumes that are bound to them", readClaims},
	{"a node can read the claim of an ephemeral volume of its pods", readEphemeralClaim},
	{"a node can report the capacity of the claims of its pods, and nothing else", claimStatus},
	{"a node can read its own volume attachments", readAttachments},
	{"a node has its own CSINode only, and cannot change a driver in it", ownCSINode},
	{"a node can watch all CSIDrivers and change none", csiDriversAreReadOnlyForNodes},
}

const storageDriver = "csi.parity.test"

func storageOf(size string) v1.ResourceList {
	return v1.ResourceList{v1.ResourceStorage: resource.MustParse(size)}
}

// createBound creates a claim of a name, and a volume of the case's name that is bound to it.
func (c *cluster) createBound(name string) *v1.PersistentVolume {
	c.Cleanup(func() {
		for _, o := range []world.DeleteObject{
			{Resource: world.ResourcePods, Namespace: c.w.Namespace(), Name: c.name,
				GracePeriodSeconds: new(int64(0))},
			{Resource: world.ResourceClaims, Namespace: c.w.Namespace(), Name: name},
			{Resource: world.ResourceVolumes, Name: c.name},
		} {
			_, _ = c.w.Admin(&o)
			_, _ = c.w.Admin(&world.PatchObject{Resource: o.Resource, Namespace: o.Namespace, Name: o.Name,
				Patch: json.RawMessage(`{"metadata":{"finalizers":null}}`)})
		}
	})
	meta := c.meta()
	meta.Name = name
	none := ""
	access := []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}
	claim := c.asAdmin(&world.CreateObject{Object: world.Object{Claim: &v1.PersistentVolumeClaim{
		ObjectMeta: meta,
		Spec: v1.PersistentVolumeClaimSpec{AccessModes: access, StorageClassName: &none,
			VolumeName: c.name,
			Resources:  v1.VolumeResourceRequirements{Requests: storageOf("1Gi")}}}}}).Claim
	c.check(claim.Status.Phase == v1.ClaimPending, "a new claim is %s", claim.Status.Phase)
	return c.asAdmin(&world.CreateObject{Object: world.Object{Volume: &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: c.name},
		Spec: v1.PersistentVolumeSpec{AccessModes: access, Capacity: storageOf("1Gi"),
			PersistentVolumeReclaimPolicy: v1.PersistentVolumeReclaimRetain,
			PersistentVolumeSource: v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{
				Driver: storageDriver, VolumeHandle: c.name}},
			ClaimRef: &v1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1",
				Namespace: c.w.Namespace(), Name: name, UID: claim.UID}}}}}).Volume
}

// withVolume gives a pod a volume.
func withVolume(source v1.VolumeSource) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Spec.Volumes = []v1.Volume{{Name: "data", VolumeSource: source}} }
}

func (c *cluster) withClaim(name string) func(*v1.Pod) {
	return withVolume(v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{
		ClaimName: name}})
}

// mayRead waits until the node may read an object.
func (c *cluster) mayRead(request *world.GetObject) world.Object {
	c.Helper()
	var o world.Object
	c.eventually(fmt.Sprintf("the node may read %s %s", request.Resource, request.Name), func() bool {
		result, _ := c.w.Call(request)
		read, ok := result.(*world.ObjectRead)
		if ok {
			o = read.Object
		}
		return ok
	})
	return o
}

func readClaims(c *cluster) {
	volume := c.createBound(c.name)
	claimRead := c.get(world.ResourceClaims, c.name)
	volumeRead := &world.GetObject{Resource: world.ResourceVolumes, Name: c.name}
	c.nodeMustFail(world.KindRefused, claimRead)
	c.nodeMustFail(world.KindRefused, volumeRead)
	c.asAdmin(c.newPod(c.withClaim(c.name)))
	claim := c.mayRead(claimRead).Claim
	c.check(claim.Spec.VolumeName == c.name, "the claim is bound to %q", claim.Spec.VolumeName)
	read := c.mayRead(volumeRead).Volume
	c.check(read.UID == volume.UID && read.Spec.ClaimRef.UID == claim.UID &&
		read.Spec.CSI.VolumeHandle == c.name, "the volume is %v", read.Spec)
	watch := c.watch(world.ResourceClaims, c.w.Namespace(), c.name)
	watch.expect("failing Refused") // it can be read, and not watched
	c.w.Send(&world.UnwatchObjects{Watch: watch.id})
	c.nodeMustFail(world.KindRefused,
		c.patch(world.ResourceClaims, `{"metadata":{"labels":{"a":"b"}}}`))
	c.nodeMustFail(world.KindRefused, c.deleteObject(world.ResourceClaims, c.name, nil))
}

func readEphemeralClaim(c *cluster) {
	c.createBound(c.name + "-data")
	c.asAdmin(c.newPod(withVolume(v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{
		VolumeClaimTemplate: &v1.PersistentVolumeClaimTemplate{Spec: v1.PersistentVolumeClaimSpec{
			AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
			Resources:   v1.VolumeResourceRequirements{Requests: storageOf("1Gi")}}}}})))
	c.mayRead(c.get(world.ResourceClaims, c.name+"-data"))
}

func claimStatus(c *cluster) {
	c.createBound(c.name)
	status := func(patch string) *world.PatchObject {
		p := c.patch(world.ResourceClaims, "%s", patch)
		p.Status = true
		return p
	}
	grown := status(`{"status":{"capacity":{"storage":"2Gi"}}}`)
	c.nodeMustFail(world.KindRefused, grown)
	c.asAdmin(c.newPod(c.withClaim(c.name)))
	c.mayRead(c.get(world.ResourceClaims, c.name))
	claim := c.asNode(grown).Claim
	c.check(claim.Status.Capacity.Storage().String() == "2Gi", "capacity %v", claim.Status.Capacity)
	c.nodeMustFail(world.KindRefused, status(`{"status":{"phase":"Lost"}}`))
	c.nodeMustFail(world.KindRefused, status(`{"metadata":{"labels":{"a":"b"}}}`))
}

func readAttachments(c *cluster) {
	c.createBound(c.name)
	attachment := func(name, node string) *world.GetObject {
		c.Cleanup(func() {
			_, _ = c.w.Admin(&world.DeleteObject{Resource: world.ResourceAttachments, Name: name})
		})
		made := c.asAdmin(&world.CreateObject{Object: world.Object{
			Attachment: &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: name},
				Spec: storagev1.VolumeAttachmentSpec{Attacher: storageDriver, NodeName: node,
					Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &c.name}},
				Status: storagev1.VolumeAttachmentStatus{Attached: true}}}}).Attachment
		c.check(!made.Status.Attached, "a new attachment is attached")
		return &world.GetObject{Resource: world.ResourceAttachments, Name: name}
	}
	own := c.mayRead(attachment(c.name, c.w.Node())).Attachment
	c.check(own.Spec.NodeName == c.w.Node(), "%v", own.Spec)
	c.nodeMustFail(world.KindRefused, attachment(c.name+"-b", "elsewhere"))
	attached := &world.PatchObject{Resource: world.ResourceAttachments, Name: c.name, Status: true,
		Patch: json.RawMessage(`{"status":{"attached":true}}`)}
	c.nodeMustFail(world.KindRefused, attached)
	c.check(c.asAdmin(attached).Attachment.Status.Attached, "not attached")
}

func ownCSINode(c *cluster) {
	node := func(name, id string, count int32) world.Object {
		return world.Object{CSINode: &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: storageDriver,
				NodeID: id, Allocatable: &storagev1.VolumeNodeResources{Count: &count}}}}}}
	}
	own := c.w.Node()
	remove := &world.DeleteObject{Resource: world.ResourceCSINodes, Name: own}
	_, _ = c.w.Call(remove)
	c.nodeMustFail(world.KindRefused, &world.CreateObject{Object: node(c.name, "n1", 1)})
	c.nodeMustFail(world.KindRefused, &world.GetObject{Resource: world.ResourceCSINodes, Name: c.name})
	made := c.asNode(&world.CreateObject{Object: node(own, "n1", 1)}).CSINode
	change := func(id string, count int32, version string) *world.UpdateObject {
		o := node(own, id, count)
		o.CSINode.ResourceVersion = version
		return &world.UpdateObject{Object: o}
	}
	c.nodeMustFail(world.KindInvalid, change("n1", 2, ""))
	c.nodeMustFail(world.KindInvalid, change("n2", 1, made.ResourceVersion))
	more := c.asNode(change("n1", 2, made.ResourceVersion)).CSINode // MutableCSINodeAllocatableCount
	c.check(*more.Spec.Drivers[0].Allocatable.Count == 2, "%v", more.Spec)
	c.nodeMustFail(world.KindConflict, change("n1", 3, made.ResourceVersion))
	twice := more.DeepCopy()
	twice.Spec.Drivers = append(twice.Spec.Drivers, twice.Spec.Drivers[0])
	c.nodeMustFail(world.KindInvalid, &world.UpdateObject{Object: world.Object{CSINode: twice}})
	c.asNode(remove)
}

func csiDriversAreReadOnlyForNodes(c *cluster) {
	remove := &world.DeleteObject{Resource: world.ResourceCSIDrivers, Name: c.name}
	c.Cleanup(func() { _, _ = c.w.Admin(remove) })
	driver := &world.CreateObject{Object: world.Object{CSIDriver: &storagev1.CSIDriver{
		ObjectMeta: metav1.ObjectMeta{Name: c.name},
		Spec:       storagev1.CSIDriverSpec{PodInfoOnMount: new(true)}}}}
	w := c.watch(world.ResourceCSIDrivers, "", "")
	w.expect("listed")
	c.nodeMustFail(world.KindRefused, driver)
	c.asAdmin(driver)
	w.expect("listed", "changed "+c.name)
	c.asAdmin(remove)
	w.expect("listed", "changed "+c.name, "gone "+c.name)
	c.w.Send(&world.UnwatchObjects{Watch: w.id})
}
