package loopcsi

import (
	"context"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
)

// findMount returns the mount of a volume at a path, or NOT_FOUND. A relative path is found
// nowhere.
func (n *node) findMount(id, path string) (item, mounted, error) {
	if err := checkID("volume", id); err != nil {
		return item{}, mounted{}, err
	}
	if path == "" {
		return item{}, mounted{}, invalid("no volume path")
	}
	volume := n.store.volume(id)
	if _, err := volume.readRecord(); err != nil {
		return volume, mounted{}, err
	}
	m, has, err := mountAt(volume, resolve(path))
	if err != nil || !has {
		err = status.Errorf(codes.NotFound, "volume %s is not at %s", id, path)
	}
	return volume, m, err
}

// NodeGetVolumeStats returns the usage of a file system, or the size of a raw block volume.
func (n *node) NodeGetVolumeStats(_ context.Context, r *csi.NodeGetVolumeStatsRequest) (
	*csi.NodeGetVolumeStatsResponse, error) {
	volume, m, err := n.findMount(r.VolumeId, r.VolumePath)
	if err != nil {
		return nil, err
	}
	answer := &csi.NodeGetVolumeStatsResponse{}
	if m.block {
		_, size, err := volume.read()
		if err != nil {
			return nil, err
		}
		answer.Usage = []*csi.VolumeUsage{{Unit: csi.VolumeUsage_BYTES, Total: size}}
	} else {
		u, err := usageOf(m.path)
		if err != nil {
			return nil, err
		}
		answer.Usage = []*csi.VolumeUsage{
			{Unit: csi.VolumeUsage_BYTES, Total: u.bytes, Available: u.bytesAvailable,
				Used: u.bytes - u.bytesFree},
			{Unit: csi.VolumeUsage_INODES, Total: u.inodes, Available: u.inodesFree,
				Used: u.inodes - u.inodesFree}}
	}
	problems, err := problemsOf(volume)
	if err != nil {
		return nil, err
	}
	answer.ProtoReflect().SetUnknown(encodeCondition(problems))
	return answer, nil
}

// encodeCondition encodes the field volume_condition of a NodeGetVolumeStatsResponse before CSI
// 1.13: field 2, a message with abnormal (1) and message (2). See volumeCondition.
func encodeCondition(problems []*csi.VolumeHealth_VolumeHealthEntry) []byte {
	abnormal, text := uint64(0), "the volume is healthy"
	if len(problems) > 0 {
		abnormal, text = 1, problems[0].Message
	}
	condition := protowire.AppendTag(nil, 1, protowire.VarintType)
	condition = protowire.AppendVarint(condition, abnormal)
	condition = protowire.AppendTag(condition, 2, protowire.BytesType)
	condition = protowire.AppendString(condition, text)
	return protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), condition)
}

// problemsOf returns what is wrong with a volume. Its image may be removed under it, and a file
// system stops when it finds an error of its own.
func problemsOf(volume item) ([]*csi.VolumeHealth_VolumeHealthEntry, error) {
	l, has, err := loopOf(volume)
	if err != nil || !has {
		return nil, err
	}
	var problems []*csi.VolumeHealth_VolumeHealthEntry
	if l.gone {
		problems = append(problems, &csi.VolumeHealth_VolumeHealthEntry{Reason: "ImageRemoved",
			Status: csi.VolumeHealthErrorType_DATA_LOSS, Message: "the image was removed"})
	}
	all, err := mountsOf(l)
	if err != nil {
		return nil, err
	}
	hasStopped := func(m mounted) bool { return !m.block && m.stopped && !m.readOnly }
	if slices.ContainsFunc(all, hasStopped) {
		problems = append(problems, &csi.VolumeHealth_VolumeHealthEntry{Reason: "ReadOnly",
			Status:  csi.VolumeHealthErrorType_INACCESSIBLE,
			Message: "the file system takes no writes any more"})
	}
	return problems, nil
}

func (n *node) NodeGetVolumeHealth(_ context.Context, r *csi.NodeGetVolumeHealthRequest) (
	*csi.NodeGetVolumeHealthResponse, error) {
	if err := checkID("volume", r.VolumeId); err != nil {
		return nil, err
	}
	volume := n.store.volume(r.VolumeId)
	if _, err := volume.readRecord(); err != nil {
		return nil, err
	}
	problems, err := problemsOf(volume)
	if err != nil {
		return nil, err
	}
	return &csi.NodeGetVolumeHealthResponse{VolumeHealth: &csi.VolumeHealth{VolumeId: volume.id,
		HealthStatuses: problems}}, nil
}

// NodeExpandVolume gives the loop device the size of the image, and the file system that of the
// device, while both are in use.
func (n *node) NodeExpandVolume(_ context.Context, r *csi.NodeExpandVolumeRequest) (
	*csi.NodeExpandVolumeResponse, error) {
	if err := checkID("volume", r.VolumeId); err != nil {
		return nil, err
	}
	release, err := n.store.volume(r.VolumeId).lock()
	if err != nil {
		return nil, err
	}
	defer release()
	isBlock := r.VolumeCapability.GetBlock() != nil
	volume, m, err := n.findMount(r.VolumeId, r.VolumePath)
	l := m.of
	if isBlock && status.Code(err) == codes.NotFound {
		// A raw block volume that is only staged has no mount: the agent then gives its staging path.
		var has bool
		if l, has, err = loopOf(volume); err == nil && !has {
			err = status.Errorf(codes.NotFound, "volume %s is not staged", volume.id)
		}
	}
	if err != nil {
		return nil, err
	}
	_, size, err := volume.read()
	if err != nil {
		return nil, err
	}
	if required := r.GetCapacityRange().GetRequiredBytes(); required > size {
		return nil, status.Errorf(codes.OutOfRange, "%d bytes: volume %s has %d", required, volume.id,
			size)
	}
	if err := l.grow(); err != nil {
		return nil, err
	}
	if !isBlock && !m.block {
		if err := n.growFileSystem(l); err != nil {
			return nil, err
		}
	}
	return &csi.NodeExpandVolumeResponse{CapacityBytes: size}, nil
}

// growFileSystem grows a mounted file system, through one of its mounts that is writable.
func (n *node) growFileSystem(l loop) error {
	all, err := mountsOf(l)
	if err != nil {
		return err
	}
	isWritable := func(m mounted) bool { return !m.block && !m.readOnly && !m.stopped }
	i := slices.IndexFunc(all, isWritable)
	if i < 0 {
		return status.Errorf(codes.FailedPrecondition, "%s is mounted read-only", l.device())
	}
	_, err = n.resizer.Resize(l.device(), all[i].path)
	return err
}
