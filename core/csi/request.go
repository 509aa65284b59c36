package csi

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"seedlet.dev/core/selinux"
	"seedlet.dev/world"
)

// The modes of directories and of vol_data.json, as a kubelet makes them.
const (
	dirMode  = 0o750
	dataMode = 0o644
	// deviceMode is that of the file to which a device is bound.
	deviceMode = 0o640
)

func lifecycleMode(v *Volume) storagev1.VolumeLifecycleMode {
	if v.Ephemeral {
		return storagev1.VolumeLifecycleEphemeral
	}
	return storagev1.VolumeLifecyclePersistent
}

// stagingData returns the content of vol_data.json beside the global path of a volume.
func (n *Node) stagingData(v *Volume) []byte {
	if v.Device != "" {
		return encodeData(map[string]string{"specVolID": v.Device, "volumeHandle": v.Handle,
			"driverName": v.Driver, "nodeName": n.Name, "attachmentID": n.attachmentName(v)})
	}
	return encodeWithLabel(map[string]string{"volumeHandle": v.Handle, "driverName": v.Driver},
		v.Staging.Label)
}

// encodeWithLabel encodes the data of a volume with its label, by which a later agent knows how it
// is mounted.
func encodeWithLabel(data map[string]string, label string) []byte {
	if label != "" {
		data["seLinuxMountContext"] = label
	}
	return encodeData(data)
}

// publicationData returns the content of vol_data.json beside the published path of a volume.
func (n *Node) publicationData(v *Volume, p *Publication) []byte {
	return encodeWithLabel(map[string]string{
		"specVolID": p.SpecName, "volumeHandle": v.Handle, "driverName": v.Driver, "nodeName": n.Name,
		"volumeLifecycleMode": string(lifecycleMode(v)), "attachmentID": n.attachmentName(v)}, p.Label)
}

func encodeData(data map[string]string) []byte {
	text, err := json.Marshal(data)
	if err != nil {
		panic("csi: encoding the data of a volume: " + err.Error())
	}
	return append(text, '\n')
}

// stageRequest returns the request that stages a volume; known is false while it waits for a
// secret.
func (n *Node) stageRequest(v *Volume, session *Session,
	env *Env) (r *world.StageVolume, known bool, err error) {
	u := v.stagingUse()
	secrets, known, err := secretOf(u.StageSecret, "NodeStageSecretRef", env)
	if !known || err != nil {
		return nil, false, err
	}
	return &world.StageVolume{StagingPath: n.stagingPath(v), CSIVolume: world.CSIVolume{
		Driver: session.driver(v.Driver), Handle: v.Handle, PublishContext: v.Attachment.Context,
		VolumeContext: u.Attributes, Secrets: secrets, Migrated: u.Migrated,
		Capability: mountCapabilityOf(v, u, session, v.Staging.Label),
	}}, true, nil
}

// publishRequest returns the request that publishes a volume for a pod; nil while it waits for a
// secret or a token. The time is when to plan again for the tokens.
func (n *Node) publishRequest(v *Volume, u *Use, p *Publication,
	env *Env) (*world.PublishVolume, time.Time, error) {
	session := n.session(v.Driver)
	secrets, known, err := secretOf(u.PublishSecret, "NodePublishSecretRef", env)
	if !known || err != nil {
		return nil, time.Time{}, err
	}
	d, _ := env.driverObject(v.Driver)
	tokens, wake, err := n.tokensFor(v, u, d, env)
	if tokens == nil || err != nil {
		return nil, wake, err
	}
	volumeContext := map[string]string{}
	maps.Copy(volumeContext, u.Attributes)
	if d != nil && d.Spec.PodInfoOnMount != nil && *d.Spec.PodInfoOnMount {
		maps.Copy(volumeContext, podInfo(v, u))
	}
	if d != nil && d.Spec.ServiceAccountTokenInSecrets != nil && *d.Spec.ServiceAccountTokenInSecrets {
		secrets = mergeMaps(secrets, tokens)
	} else {
		maps.Copy(volumeContext, tokens)
	}
	r := &world.PublishVolume{TargetPath: n.publishedPath(p), ReadOnly: u.ReadOnly,
		CSIVolume: world.CSIVolume{Driver: session.driver(v.Driver), Handle: v.Handle,
			PublishContext: v.Attachment.Context, VolumeContext: volumeContext, Secrets: secrets,
			Capability: mountCapabilityOf(v, u, session, p.Label), Migrated: u.Migrated}}
	if !v.Ephemeral && session.Info.Capabilities.StageUnstage {
		r.StagingPath = n.stagingPath(v)
	}
	return r, time.Time{}, nil
}

func mergeMaps(x, y map[string]string) map[string]string {
	merged := map[string]string{}
	maps.Copy(merged, x)
	maps.Copy(merged, y)
	return merged
}

// podInfo returns what a driver with podInfoOnMount learns of a pod.
func podInfo(v *Volume, u *Use) map[string]string {
	const prefix = "csi.storage.k8s.io/"
	return map[string]string{
		prefix + "pod.name": u.PodName, prefix + "pod.namespace": u.Namespace,
		prefix + "pod.uid": u.UID, prefix + "serviceAccount.name": u.ServiceAccount,
		prefix + "ephemeral": strconv.FormatBool(v.Ephemeral),
	}
}

// mountCapabilityOf returns how a volume is mounted: as it is used, and with a label.
func mountCapabilityOf(v *Volume, u *Use, session *Session, label string) world.CSICapability {
	c := capabilityOf(v, u, session)
	if label != "" && !c.Block {
		c.MountFlags = append(c.MountFlags, selinux.MountOption(label))
	}
	return c
}

// capabilityOf returns how a volume is used. A driver that applies the group itself is given it.
func capabilityOf(v *Volume, u *Use, session *Session) world.CSICapability {
	access := accessMode(v, u, session.Info.Capabilities.SingleNodeMultiWriter)
	if u.Block {
		return world.CSICapability{Block: true, Access: access}
	}
	c := world.CSICapability{FSType: u.FSType, MountFlags: slices.Clone(u.MountOptions),
		Access: access}
	if session.Info.Capabilities.VolumeMountGroup && u.FSGroup != nil {
		c.MountGroup = strconv.FormatInt(*u.FSGroup, 10)
	}
	return c
}

// accessMode returns the access mode of a volume: by its first one, as upstream. A driver that does
// not know single writers gets the mode of one node instead (asCSIAccessModeV1 in csi_client.go).
func accessMode(v *Volume, u *Use, multiWriter bool) world.CSIAccessMode {
	mode := v1.ReadWriteOnce
	if len(u.AccessModes) > 0 && !v.Ephemeral {
		mode = u.AccessModes[0]
	}
	switch {
	case mode == v1.ReadOnlyMany:
		return world.CSIMultiNodeReaderOnly
	case mode == v1.ReadWriteMany:
		return world.CSIMultiNodeMultiWriter
	case !multiWriter:
		return world.CSISingleNodeWriter
	case mode == v1.ReadWriteOncePod:
		return world.CSISingleNodeSingleWriter
	}
	return world.CSISingleNodeMultiWriter
}

// mustSetGroup reports whether the agent gives the files of a volume to the group of its pod
// (supportsFSGroup in csi_mounter.go).
func mustSetGroup(v *Volume, u *Use, session *Session, env *Env) bool {
	if u.FSGroup == nil || u.Block || u.ReadOnly || session.Info.Capabilities.VolumeMountGroup {
		return false
	}
	policy := storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy
	if d, _ := env.driverObject(v.Driver); d != nil && d.Spec.FSGroupPolicy != nil {
		policy = *d.Spec.FSGroupPolicy
	}
	switch {
	case policy == storagev1.NoneFSGroupPolicy:
		return false
	case policy == storagev1.FileFSGroupPolicy:
		return true
	case u.FSType == "":
		return false
	}
	return v.Ephemeral || slices.Contains(u.AccessModes, v1.ReadWriteOnce) ||
		slices.Contains(u.AccessModes, v1.ReadWriteOncePod)
}

// secretOf returns the content of a secret; nil without a reference. Known is false while it is
// being read.
func secretOf(ref *v1.SecretReference, field string, env *Env) (data map[string]string, known bool,
	err error) {
	if ref == nil {
		return nil, true, nil
	}
	if env.Objects.Watch(secretTarget(ref)) == nil {
		return nil, false, fmt.Errorf("fetching %s %s/%s failed: the secret is not read, as the pod, or "+
			"all pods of the node, refer to more than they may", field, ref.Namespace, ref.Name)
	}
	found := env.Objects.Lookup(world.ResourceSecrets, ref.Namespace, ref.Name)
	if found.Known && found.Err != nil { // a kubelet asks the server, which names the resource
		found.Err = fmt.Errorf("%s %q not found", world.ResourceSecrets, ref.Name)
	}
	if found.Err != nil {
		return nil, false, fmt.Errorf("fetching %s %s/%s failed: kubernetes.io/csi: failed to find the "+
			"secret %s in the namespace %s with error: %w", field, ref.Namespace, ref.Name, ref.Name,
			ref.Namespace, found.Err)
	}
	if !found.Known {
		return nil, false, nil
	}
	data = make(map[string]string, len(found.Object.Secret.Data))
	for key, value := range found.Object.Secret.Data { //ordered: into a map
		data[key] = string(value)
	}
	return data, true, nil
}

func secretTarget(ref *v1.SecretReference) world.WatchTarget {
	return world.WatchTarget{Resource: world.ResourceSecrets, Namespace: ref.Namespace, Name: ref.Name}
}

// watchSecrets watches the secrets that the uses of a volume name, and no others. A volume without
// uses has none. The secrets of persistent volumes are named by administrators. The secret of an
// inline volume is named by the author of its pod, and counts for the pod: it is watched as long as
// the pod watches it.
func (n *Node) watchSecrets(v *Volume, env *Env) {
	needed := map[world.WatchTarget]bool{}
	for _, u := range v.Uses { //ordered: into a set
		for _, ref := range []*v1.SecretReference{u.StageSecret, u.PublishSecret, u.ExpandSecret} {
			if ref != nil && (!u.Inline || env.Objects.HasUser(secretTarget(ref), u.UID)) {
				needed[secretTarget(ref)] = true
			}
		}
	}
	v.Secrets = env.Objects.ReplaceReferences(watchUser(v.name()), v.Secrets, needed, env.Enqueue,
		env.Effects)
}
