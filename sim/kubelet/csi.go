package kubelet

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"seedlet.dev/world"
)

// Volumes of CSI drivers, as pkg/volume/csi of a kubelet has them: MountDevice in csi_attacher.go,
// SetUpAt in csi_mounter.go, and csi_block.go.

const csiPlugin = "kubernetes.io~csi"

// driver is a driver that has registered.
type driver struct {
	world.CSIDriver
	can world.CSICapabilities
}

// registerDrivers asks each driver that has appeared what it can do.
func (k *Kubelet) registerDrivers() {
	for _, d := range k.opts.Drivers() {
		if k.drivers[d.Name] == nil && !k.asked[d.Name] {
			k.asked[d.Name] = true
			k.do(call{driver: d}, world.PortCSI, &world.GetCSINodeInfo{Driver: d})
		}
	}
}

// registered writes what a driver has answered to the CSINode and the Node (InstallCSIDriver in
// pkg/volume/csi/nodeinfomanager).
func (k *Kubelet) registered(d world.CSIDriver, ev *world.Event) {
	info, answered := ev.Body.(*world.CSINodeInfo)
	if delete(k.asked, d.Name); !answered || ev.Err != nil {
		return
	}
	k.drivers[d.Name] = &driver{d, info.Capabilities}
	entry := storagev1.CSINodeDriver{Name: d.Name, NodeID: info.NodeID,
		TopologyKeys: slices.Sorted(maps.Keys(info.Topology))}
	if info.VolumesMax > 0 {
		entry.Allocatable = &storagev1.VolumeNodeResources{Count: new(int32(info.VolumesMax))}
	}
	k.nodeIDs[d.Name] = info.NodeID
	k.admin(&world.PatchObject{Resource: world.ResourceNodes, Name: k.opts.Name,
		Patch: []byte(encode(map[string]any{"metadata": map[string]any{"annotations": map[string]string{
			nodeIDs: encode(k.nodeIDs)}}}))})
	object := k.opts.Server.Object(world.ResourceCSINodes, "", k.opts.Name).CSINode.DeepCopy()
	isThis := func(d storagev1.CSINodeDriver) bool { return d.Name == entry.Name }
	if i := slices.IndexFunc(object.Spec.Drivers, isThis); i >= 0 &&
		equality.Semantic.DeepEqual(object.Spec.Drivers[i], entry) {
		return
	}
	object.Spec.Drivers = append(slices.DeleteFunc(object.Spec.Drivers, isThis), entry)
	k.admin(&world.UpdateObject{Object: world.Object{CSINode: object}})
}

// inlineSource returns the source of a volume that is written in a pod (makeVolumeHandle in
// csi_plugin.go).
func inlineSource(uid string, v *v1.Volume) *v1.CSIPersistentVolumeSource {
	source := &v1.CSIPersistentVolumeSource{Driver: v.CSI.Driver,
		VolumeAttributes: v.CSI.VolumeAttributes,
		VolumeHandle:     fmt.Sprintf("csi-%x", sha256.Sum256([]byte(uid+v.Name)))}
	if v.CSI.FSType != nil {
		source.FSType = *v.CSI.FSType
	}
	return source
}

// stagingDir returns the directory with what is staged, and with its data (makeDeviceMountPath).
func (n *Node) stagingDir(source *v1.CSIPersistentVolumeSource) string {
	return fmt.Sprintf("%s/plugins/kubernetes.io/csi/%s/%x", n.RootDir, source.Driver,
		sha256.Sum256([]byte(source.VolumeHandle)))
}

// blocks returns the directory of block volumes.
func (n *Node) blocks() string { return n.RootDir + "/plugins/kubernetes.io/csi/volumeDevices" }

// stagingPath returns where a driver stages a volume.
func (k *Kubelet) stagingPath(u *usedVolume) string {
	if u.isBlock {
		return k.opts.blocks() + "/staging/" + u.name
	}
	return k.opts.stagingDir(u.csi) + "/globalmount"
}

// csiPath returns what a container gets of a volume.
func (k *Kubelet) csiPath(u *usedVolume) string {
	dir := k.opts.RootDir + "/pods/" + u.uid
	if u.isBlock {
		return dir + "/volumeDevices/" + csiPlugin + "/" + u.name
	}
	return dir + "/volumes/" + csiPlugin + "/" + u.name + "/mount"
}

// publishPath returns where a driver publishes a volume for a pod.
func (k *Kubelet) publishPath(u *usedVolume) string {
	if u.isBlock {
		return k.opts.blocks() + "/publish/" + u.name + "/" + u.uid
	}
	return k.csiPath(u)
}

// attachmentName returns the name of the VolumeAttachment of a volume (getAttachmentName).
func (n *Node) attachmentName(source *v1.CSIPersistentVolumeSource) string {
	return fmt.Sprintf("csi-%x", sha256.Sum256([]byte(source.VolumeHandle+source.Driver+n.Name)))
}

// podData returns the data of a volume for one pod, or of a block volume for all.
func (k *Kubelet) podData(u *usedVolume) map[string]string {
	data := map[string]string{"specVolID": u.name, "volumeHandle": u.csi.VolumeHandle,
		"driverName": u.csi.Driver, "nodeName": k.opts.Name,
		"attachmentID": k.opts.attachmentName(u.csi)}
	if !u.isBlock {
		data["volumeLifecycleMode"] = string(u.lifecycleMode())
	}
	return data
}

// dataStep writes vol_data.json, as os.Create and an encoder do (saveVolumeData in csi_util.go).
func dataStep(key, dir string, data map[string]string) *step {
	return &step{key, world.PortFS, &world.WriteFile{Path: dir + "/vol_data.json",
		Data: []byte(encode(data) + "\n"), Mode: 0o644, Volatile: true}}
}

// csiSteps returns what gives a volume to a pod; nil while it cannot be given.
func (k *Kubelet) csiSteps(u *usedVolume, s *sharedVolume) []*step {
	d := k.drivers[u.csi.Driver]
	if d == nil {
		return nil
	}
	volume := world.CSIVolume{Driver: d.CSIDriver, Handle: u.csi.VolumeHandle,
		VolumeContext: u.csi.VolumeAttributes, Secrets: map[string]string{},
		Capability: world.CSICapability{Block: u.isBlock, Access: accessMode(u, d)}}
	if !u.isBlock {
		volume.Capability.FSType = u.csi.FSType
	}
	if !u.ephemeral && k.mustBeAttached(u) {
		s.inUse = v1.UniqueVolumeName("kubernetes.io/csi/" + u.key())
		context, attached := k.attachment(u, s)
		if !attached {
			return nil
		}
		volume.PublishContext = context
	}
	var steps []*step
	if !u.ephemeral {
		steps = k.stageSteps(u, d, volume)
	}
	return append(steps, k.publishSteps(u, d, volume)...)
}

func (k *Kubelet) csiDriver(name string) *storagev1.CSIDriver {
	return k.opts.Server.Object(world.ResourceCSIDrivers, "", name).CSIDriver
}

func (k *Kubelet) mustBeAttached(u *usedVolume) bool {
	d := k.csiDriver(u.csi.Driver)
	return d == nil || d.Spec.AttachRequired == nil || *d.Spec.AttachRequired
}

// attachment returns what the attachment of a volume says, and whether the Node has the volume.
func (k *Kubelet) attachment(u *usedVolume, s *sharedVolume) (map[string]string, bool) {
	node := k.opts.Server.Object(world.ResourceNodes, "", k.opts.Name).Node
	isListed := slices.ContainsFunc(node.Status.VolumesAttached, func(a v1.AttachedVolume) bool {
		return a.Name == s.inUse
	})
	a := k.opts.Server.Object(world.ResourceAttachments, "", k.opts.attachmentName(u.csi)).Attachment
	if !isListed || a == nil || !a.Status.Attached {
		return nil, false
	}
	return a.Status.AttachmentMetadata, true
}

// accessMode returns the mode of a volume (asCSIAccessModeV1 in csi_client.go).
func accessMode(u *usedVolume, d *driver) world.CSIAccessMode {
	mode := v1.ReadWriteOnce
	if u.pv != nil && len(u.pv.Spec.AccessModes) > 0 {
		mode = u.pv.Spec.AccessModes[0]
	}
	switch {
	case mode == v1.ReadOnlyMany:
		return world.CSIMultiNodeReaderOnly
	case mode == v1.ReadWriteMany:
		return world.CSIMultiNodeMultiWriter
	case d.can.SingleNodeMultiWriter:
		return world.CSISingleNodeMultiWriter
	}
	return world.CSISingleNodeWriter
}

// stageSteps returns what pods share of a volume. A kubelet writes no data beside the directory of
// a driver that does not stage, and leaves that directory for ever (MountDevice, UnmountDevice).
func (k *Kubelet) stageSteps(u *usedVolume, d *driver, volume world.CSIVolume) []*step {
	at := k.stagingPath(u)
	var steps []*step
	if u.isBlock {
		data := k.opts.blocks() + "/" + u.name + "/data"
		steps = append(steps, mkdir(data, 0o750), dataStep("data", data, k.podData(u)))
	}
	if u.isBlock && !d.can.StageUnstage {
		return steps
	}
	steps = append(steps, mkdir(at, 0o750))
	if !d.can.StageUnstage {
		return steps
	}
	if !u.isBlock {
		steps = append(steps, dataStep("data", k.opts.stagingDir(u.csi), map[string]string{
			"volumeHandle": u.csi.VolumeHandle, "driverName": u.csi.Driver}))
	}
	return append(steps, &step{"stage", world.PortCSI,
		&world.StageVolume{CSIVolume: volume, StagingPath: at}})
}

// publishSteps returns what a pod has of a volume for itself.
func (k *Kubelet) publishSteps(u *usedVolume, d *driver, volume world.CSIVolume) []*step {
	at := k.publishPath(u)
	if o := k.csiDriver(u.csi.Driver); o != nil && o.Spec.PodInfoOnMount != nil &&
		*o.Spec.PodInfoOnMount {
		volume.VolumeContext = maps.Clone(volume.VolumeContext)
		if volume.VolumeContext == nil {
			volume.VolumeContext = map[string]string{}
		}
		const prefix = "csi.storage.k8s.io/"
		maps.Copy(volume.VolumeContext, map[string]string{prefix + "pod.name": u.pod.Name,
			prefix + "pod.namespace": u.pod.Namespace, prefix + "pod.uid": u.uid,
			prefix + "serviceAccount.name": u.pod.Spec.ServiceAccountName,
			prefix + "ephemeral":           fmt.Sprint(u.ephemeral)})
	}
	request := &world.PublishVolume{CSIVolume: volume, TargetPath: at, ReadOnly: u.readOnly}
	if !u.ephemeral && (d.can.StageUnstage || u.isBlock) {
		request.StagingPath = k.stagingPath(u)
	}
	publish := &step{ofPod("publish", u.uid), world.PortCSI, request}
	if !u.isBlock {
		dir := k.opts.RootDir + "/pods/" + u.uid + "/volumes/" + csiPlugin + "/" + u.name
		return []*step{mkdir(dir, 0o750), dataStep(ofPod("data", u.uid), dir, k.podData(u)), publish}
	}
	steps := []*step{mkdir(k.opts.blocks()+"/publish/"+u.name, 0o750), publish}
	return append(steps, k.mapSteps(u, at, k.opts.blocks()+"/"+u.name+"/dev", k.csiPath(u))...)
}

// csiTearDown returns what takes a volume from a pod, and what then undoes the rest if no other pod
// has it.
func (k *Kubelet) csiTearDown(u *usedVolume) (ofThis, last []*step) {
	d := k.drivers[u.csi.Driver]
	if d == nil { // the volume was not given to the pod
		return nil, nil
	}
	unpublish := &step{ofPod("unpublish", u.uid), world.PortCSI, &world.UnpublishVolume{
		Driver: d.CSIDriver, Handle: u.csi.VolumeHandle, TargetPath: k.publishPath(u)}}
	unstage := &step{"unstage", world.PortCSI, &world.UnstageVolume{Driver: d.CSIDriver,
		Handle: u.csi.VolumeHandle, StagingPath: k.stagingPath(u)}}
	remove := func(key, path string) *step {
		return &step{key, world.PortFS, &world.RemoveTree{Path: path}}
	}
	stages := d.can.StageUnstage && !u.ephemeral
	if stages {
		last = append(last, unstage)
	}
	if !u.isBlock {
		ofThis = []*step{unpublish, remove(ofPod("removed", u.uid), k.opts.RootDir+"/pods/"+u.uid+
			"/volumes/"+csiPlugin+"/"+u.name)}
		if stages {
			last = append(last, remove("staging removed", k.opts.stagingDir(u.csi)))
		}
		return ofThis, last
	}
	ofThis = append(k.unmapSteps(u, k.opts.blocks()+"/"+u.name+"/dev", k.csiPath(u)), unpublish)
	return ofThis, append(last, remove("staging removed", k.stagingPath(u)),
		remove("publish removed", k.opts.blocks()+"/publish/"+u.name),
		remove("map removed", k.opts.blocks()+"/"+u.name))
}
