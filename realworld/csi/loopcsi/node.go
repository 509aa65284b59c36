package loopcsi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	mount "k8s.io/mount-utils"
)

// node is the CSI node service.
type node struct {
	csi.UnimplementedNodeServer
	options Options
	store   *store
	mounter *mount.SafeFormatAndMount
	resizer *mount.ResizeFs
}

// volumeCondition is the wire value of VOLUME_CONDITION, which CSI 1.13 has removed. The kubelet of
// Kubernetes 1.36 speaks CSI 1.9, and knows no other health of volumes.
const volumeCondition csi.NodeServiceCapability_RPC_Type = 4

func (n *node) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (
	*csi.NodeGetCapabilitiesResponse, error) {
	types := []csi.NodeServiceCapability_RPC_Type{
		csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME,
		csi.NodeServiceCapability_RPC_GET_VOLUME_STATS,
		csi.NodeServiceCapability_RPC_EXPAND_VOLUME,
		csi.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
		csi.NodeServiceCapability_RPC_GET_VOLUME_HEALTH,
		volumeCondition,
	}
	if n.options.MountGroup {
		types = append(types, csi.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP)
	}
	answer := &csi.NodeGetCapabilitiesResponse{}
	for _, t := range types {
		answer.Capabilities = append(answer.Capabilities, &csi.NodeServiceCapability{
			Type: &csi.NodeServiceCapability_Rpc{Rpc: &csi.NodeServiceCapability_RPC{Type: t}}})
	}
	return answer, nil
}

func (n *node) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse,
	error) {
	answer := &csi.NodeGetInfoResponse{NodeId: n.options.NodeID,
		MaxVolumesPerNode: n.options.VolumesMax}
	if n.options.Zone != "" {
		answer.AccessibleTopology = &csi.Topology{
			Segments: map[string]string{ZoneKey: n.options.Zone}}
	}
	return answer, nil
}

// NodeStageVolume attaches a volume to a loop device. Unless it is a raw block volume, its file
// system is made if there is none, mounted, and grown to the size of the volume.
func (n *node) NodeStageVolume(_ context.Context, r *csi.NodeStageVolumeRequest) (
	*csi.NodeStageVolumeResponse, error) {
	err := cmp.Or(checkID("volume", r.VolumeId),
		checkPath("staging target path", r.StagingTargetPath), checkCapability(r.VolumeCapability))
	if err != nil {
		return nil, err
	}
	volume := n.store.volume(r.VolumeId)
	release, err := volume.lock()
	if err != nil {
		return nil, err
	}
	defer release()
	readOnly, err := n.checkStageable(volume, r)
	if err != nil {
		return nil, err
	}
	l, err := attachLoop(volume)
	if err != nil {
		return nil, err
	}
	if r.VolumeCapability.GetBlock() != nil {
		return &csi.NodeStageVolumeResponse{}, nil
	}
	err = n.mountFileSystem(volume, l, resolve(r.StagingTargetPath), r.VolumeCapability, readOnly)
	if err != nil {
		return nil, err
	}
	return &csi.NodeStageVolumeResponse{}, nil
}

// checkStageable returns why a volume cannot be staged, or whether it is staged read-only.
func (n *node) checkStageable(volume item, r *csi.NodeStageVolumeRequest) (readOnly bool,
	err error) {
	rec, size, err := volume.read()
	if err != nil {
		return false, err
	}
	unable := func(format string, args ...any) (bool, error) {
		return false, status.Errorf(codes.FailedPrecondition, format, args...)
	}
	switch {
	case rec.Ephemeral:
		return unable("volume %s is ephemeral", volume.id)
	case rec.Zone != n.options.Zone:
		return unable("volume %s is in zone %q", volume.id, rec.Zone)
	case size < sizeMin([]*csi.VolumeCapability{r.VolumeCapability}):
		return unable("volume %s has %d bytes", volume.id, size)
	}
	readOnly = isReadOnly(r.VolumeCapability)
	if !n.options.Attach {
		return readOnly, nil
	}
	all, err := volume.attachments()
	if err != nil {
		return false, err
	}
	attached, has := all[n.options.NodeID]
	switch {
	case !has:
		return unable("volume %s is not published to node %s", volume.id, n.options.NodeID)
	case r.PublishContext[publishedNodeKey] != n.options.NodeID:
		return false, invalid("publish context %v: want %s=%s", r.PublishContext, publishedNodeKey,
			n.options.NodeID)
	case attached.Block != (r.VolumeCapability.GetBlock() != nil):
		return unable("volume %s is published to node %s with another access type", volume.id,
			n.options.NodeID)
	}
	return readOnly || attached.ReadOnly, nil
}

// mountFileSystem mounts the file system of a volume at a path that exists, unless it is mounted
// there.
func (n *node) mountFileSystem(volume item, l loop, path string, c *csi.VolumeCapability,
	readOnly bool) error {
	wanted := fileSystemOf(c)
	at, has, err := mountAt(volume, path)
	switch {
	case err != nil:
		return err
	case has && (at.block || at.readOnly != readOnly || at.fileSystem != wanted):
		return status.Errorf(codes.AlreadyExists, "%s is mounted as %s, read-only %t", path,
			at.fileSystem, at.readOnly)
	}
	if !has {
		err := n.formatAndMount(l, path, wanted, c.GetMount().GetMountFlags(), readOnly)
		if err != nil {
			return err
		}
	}
	if readOnly {
		return nil
	}
	if wanted == "xfs" { // which grows only while it is mounted
		if _, err := n.resizer.Resize(l.device(), path); err != nil {
			return fmt.Errorf("growing volume %s: %w", volume.id, err)
		}
	}
	return n.giveGroup(path, c.GetMount().GetVolumeMountGroup())
}

func (n *node) formatAndMount(l loop, path, fileSystem string, flags []string,
	readOnly bool) error {
	options := slices.Clone(flags)
	switch {
	case readOnly:
		options = append(options, "ro")
	case fileSystem == "ext4":
		if err := growUnmounted(l); err != nil {
			return err
		}
	}
	if fileSystem == "xfs" {
		// A volume from a snapshot has the UUID of its source, which xfs does not mount twice.
		options = append(options, "nouuid")
	}
	err := n.mounter.FormatAndMount(l.device(), path, fileSystem, options)
	var problem mount.MountError
	if errors.As(err, &problem) && (problem.Type == mount.FilesystemMismatch ||
		problem.Type == mount.UnformattedReadOnly) {
		return status.Error(codes.FailedPrecondition, err.Error())
	}
	return err
}

// giveGroup gives the root of a volume to a group, whose files in it stay its own.
func (n *node) giveGroup(path, group string) error {
	if !n.options.MountGroup || group == "" {
		return nil
	}
	id, err := strconv.Atoi(group)
	if err != nil || id < 0 {
		return invalid("volume mount group %q: want a number", group)
	}
	if err := os.Chown(path, -1, id); err != nil {
		return fmt.Errorf("giving the volume to group %d: %w", id, err)
	}
	if err := os.Chmod(path, 0o770|os.ModeSetgid); err != nil {
		return fmt.Errorf("giving the volume to group %d: %w", id, err)
	}
	return nil
}

// NodeUnstageVolume unmounts a volume and detaches it from its loop device. It needs no record of
// the volume, because the volume may have been deleted meanwhile.
func (n *node) NodeUnstageVolume(_ context.Context, r *csi.NodeUnstageVolumeRequest) (
	*csi.NodeUnstageVolumeResponse, error) {
	err := cmp.Or(checkID("volume", r.VolumeId),
		checkPath("staging target path", r.StagingTargetPath))
	if err != nil {
		return nil, err
	}
	volume := n.store.volume(r.VolumeId)
	release, err := volume.lockIfThere()
	if err != nil {
		return nil, err
	}
	defer release()
	path := resolve(r.StagingTargetPath)
	if _, _, err := mountAt(volume, path); err != nil {
		return nil, err
	}
	shared, err := n.isAttachedElsewhere(volume)
	if err != nil {
		return nil, err
	}
	published, err := findOtherMount(volume, path)
	switch {
	case err != nil:
		return nil, err
	case published != "" && !shared:
		return nil, status.Errorf(codes.FailedPrecondition, "volume %s is still published at %s",
			volume.id, published)
	}
	if err := unmountVolume(volume, path); err != nil {
		return nil, err
	}
	if shared {
		return &csi.NodeUnstageVolumeResponse{}, nil
	}
	return &csi.NodeUnstageVolumeResponse{}, detachUnmounted(volume)
}

// isAttachedElsewhere reports whether another node has a volume: the mounts of its loop device may
// be of that node.
func (n *node) isAttachedElsewhere(volume item) (bool, error) {
	all, err := volume.attachments()
	delete(all, n.options.NodeID)
	return len(all) > 0, err
}

// findOtherMount returns a path at which a volume is mounted, other than the given ones, or
// nothing.
func findOtherMount(volume item, paths ...string) (string, error) {
	l, has, err := loopOf(volume)
	if err != nil || !has {
		return "", err
	}
	all, err := mountsOf(l)
	if err != nil {
		return "", err
	}
	for _, m := range all {
		if !slices.Contains(paths, m.path) {
			return m.path, nil
		}
	}
	return "", nil
}

// NodePublishVolume mounts a staged volume, or the node of its loop device, at the target path. An
// ephemeral volume is made before.
func (n *node) NodePublishVolume(_ context.Context, r *csi.NodePublishVolumeRequest) (
	*csi.NodePublishVolumeResponse, error) {
	err := cmp.Or(checkID("volume", r.VolumeId), checkPath("target path", r.TargetPath),
		checkCapability(r.VolumeCapability))
	if err != nil {
		return nil, err
	}
	if r.VolumeContext[ephemeralKey] == "true" {
		return &csi.NodePublishVolumeResponse{}, n.publishEphemeral(r)
	}
	if r.StagingTargetPath == "" {
		return nil, status.Error(codes.FailedPrecondition, "no staging target path")
	}
	if err := checkPath("staging target path", r.StagingTargetPath); err != nil {
		return nil, err
	}
	volume := n.store.volume(r.VolumeId)
	release, err := volume.lock()
	if err != nil {
		return nil, err
	}
	defer release()
	staging := resolve(r.StagingTargetPath)
	l, stagedReadOnly, err := n.findStaged(volume, staging, r.VolumeCapability)
	if err != nil {
		return nil, err
	}
	if err := checkPublishable(volume, r, staging); err != nil {
		return nil, err
	}
	target := resolve(r.TargetPath)
	readOnly := stagedReadOnly || r.Readonly || isReadOnly(r.VolumeCapability)
	if r.VolumeCapability.GetBlock() != nil {
		err = publishBlock(volume, l, target, readOnly)
	} else {
		err = publishFileSystem(volume, staging, target, readOnly)
	}
	return &csi.NodePublishVolumeResponse{}, err
}

// findStaged returns the loop device of a staged volume and whether it was staged read-only, or
// FAILED_PRECONDITION. A raw block volume is staged by its loop device alone; its attachment has
// what the controller allows.
func (n *node) findStaged(volume item, staging string, c *csi.VolumeCapability) (l loop,
	readOnly bool, err error) {
	if _, err := volume.readRecord(); err != nil {
		return loop{}, false, err
	}
	l, has, err := loopOf(volume)
	if err != nil {
		return loop{}, false, err
	}
	if has && c.GetBlock() == nil {
		var at mounted
		at, has, err = mountAt(volume, staging)
		readOnly = at.readOnly
	} else if has {
		var all map[string]attachment
		all, err = volume.attachments()
		readOnly = all[n.options.NodeID].ReadOnly
	}
	if err == nil && !has {
		err = status.Errorf(codes.FailedPrecondition, "volume %s is not staged at %s", volume.id,
			staging)
	}
	return l, readOnly, err
}

// checkPublishable returns FAILED_PRECONDITION if an access mode allows one target and there is
// another.
func checkPublishable(volume item, r *csi.NodePublishVolumeRequest, staging string) error {
	single := csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER
	if r.VolumeCapability.AccessMode.Mode != single {
		return nil
	}
	other, err := findOtherMount(volume, staging, resolve(r.TargetPath))
	if err == nil && other != "" {
		err = status.Errorf(codes.FailedPrecondition, "volume %s is published at %s", volume.id, other)
	}
	return err
}

// publishFileSystem mounts a staged volume at a target, unless it is mounted there.
func publishFileSystem(volume item, staging, target string, readOnly bool) error {
	at, has, err := mountAt(volume, target)
	switch {
	case err != nil:
		return err
	case has && (at.block || at.readOnly != readOnly):
		return status.Errorf(codes.AlreadyExists, "%s is mounted, read-only %t", target, at.readOnly)
	case has:
		return nil
	}
	if err := os.Mkdir(target, 0o750); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("making the target: %w", err)
	}
	return bind(staging, target, readOnly)
}

// NodeUnpublishVolume unmounts and removes the target, and an ephemeral volume with it.
func (n *node) NodeUnpublishVolume(_ context.Context, r *csi.NodeUnpublishVolumeRequest) (
	*csi.NodeUnpublishVolumeResponse, error) {
	err := cmp.Or(checkID("volume", r.VolumeId), checkPath("target path", r.TargetPath))
	if err != nil {
		return nil, err
	}
	volume := n.store.volume(r.VolumeId)
	release, err := volume.lockIfThere()
	if err != nil {
		return nil, err
	}
	defer release()
	target := resolve(r.TargetPath)
	if err := unmountVolume(volume, target); err != nil {
		return nil, err
	}
	if err := removeTarget(target); err != nil {
		return nil, err
	}
	return &csi.NodeUnpublishVolumeResponse{}, removeEphemeral(volume)
}
