package loopcsi

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// CreateSnapshot copies the image of a volume. The file system of a mounted one is frozen
// meanwhile, so the copy is complete.
func (c *controller) CreateSnapshot(_ context.Context, r *csi.CreateSnapshotRequest) (
	*csi.CreateSnapshotResponse, error) {
	if err := checkName(r.Name); err != nil {
		return nil, err
	}
	if err := checkID("volume", r.SourceVolumeId); err != nil {
		return nil, err
	}
	volume := c.store.volume(r.SourceVolumeId)
	releaseVolume, err := volume.lock()
	if err != nil {
		return nil, err
	}
	defer releaseVolume()
	source, size, err := volume.read()
	if err != nil {
		return nil, err
	}
	if source.Ephemeral {
		return nil, status.Errorf(codes.FailedPrecondition, "volume %s is ephemeral", volume.id)
	}
	snapshot := c.store.snapshot(idOf("snap-", r.Name))
	release, err := snapshot.lockNew()
	if err != nil {
		return nil, err
	}
	defer release()
	rec, had, err := snapshot.read()
	switch {
	case err == nil && rec.VolumeID != volume.id:
		return nil, status.Errorf(codes.AlreadyExists, "snapshot %q is of volume %s", r.Name,
			rec.VolumeID)
	case err == nil:
		return &csi.CreateSnapshotResponse{Snapshot: describeSnapshot(snapshot, rec, had)}, nil
	case status.Code(err) != codes.NotFound:
		return nil, err
	}
	rec = record{Name: r.Name, VolumeID: volume.id, Created: time.Now()}
	if err = c.store.allocate(snapshot, size); err == nil {
		err = copyVolume(volume, snapshot)
	}
	if err == nil {
		err = snapshot.write(rec)
	}
	if err != nil {
		return nil, errors.Join(err, snapshot.remove())
	}
	return &csi.CreateSnapshotResponse{Snapshot: describeSnapshot(snapshot, rec, size)}, nil
}

// copyVolume copies the image of a volume that may be in use.
func copyVolume(volume, to item) (err error) {
	l, has, err := loopOf(volume)
	if err != nil {
		return err
	}
	if has {
		mounts, err := mountsOf(l)
		if err != nil {
			return err
		}
		isWritable := func(m mounted) bool { return !m.block && !m.stopped }
		if n := slices.IndexFunc(mounts, isWritable); n >= 0 {
			path := mounts[n].path
			if err := freeze(path); err != nil {
				return err
			}
			defer func() { err = errors.Join(err, thaw(path)) }()
		} else if err := flush(l.device()); err != nil {
			return err
		}
	}
	return copyImage(volume, to)
}

// copyImage copies an image with its holes.
func copyImage(from, to item) error {
	_, err := run("cp", "--sparse=always", "--reflink=auto", from.image(), to.image())
	return err
}

func describeSnapshot(snapshot item, rec record, size int64) *csi.Snapshot {
	return &csi.Snapshot{SnapshotId: snapshot.id, SourceVolumeId: rec.VolumeID, SizeBytes: size,
		CreationTime: timestamppb.New(rec.Created), ReadyToUse: true}
}

func (c *controller) DeleteSnapshot(_ context.Context, r *csi.DeleteSnapshotRequest) (
	*csi.DeleteSnapshotResponse, error) {
	if err := checkID("snapshot", r.SnapshotId); err != nil {
		return nil, err
	}
	snapshot := c.store.snapshot(r.SnapshotId)
	release, err := snapshot.lock()
	if status.Code(err) == codes.NotFound {
		return &csi.DeleteSnapshotResponse{}, nil
	}
	if err != nil {
		return nil, err
	}
	defer release()
	return &csi.DeleteSnapshotResponse{}, snapshot.remove()
}

func (c *controller) GetSnapshot(_ context.Context, r *csi.GetSnapshotRequest) (
	*csi.GetSnapshotResponse, error) {
	if err := checkID("snapshot", r.SnapshotId); err != nil {
		return nil, err
	}
	snapshot := c.store.snapshot(r.SnapshotId)
	rec, size, err := snapshot.read()
	if err != nil {
		return nil, err
	}
	return &csi.GetSnapshotResponse{Snapshot: describeSnapshot(snapshot, rec, size)}, nil
}

func (c *controller) ListSnapshots(_ context.Context, r *csi.ListSnapshotsRequest) (
	*csi.ListSnapshotsResponse, error) {
	all, err := c.store.items(c.store.snapshot)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(i item) bool {
		rec, _, err := i.read()
		return err != nil || // removed meanwhile
			r.SnapshotId != "" && i.id != r.SnapshotId ||
			r.SourceVolumeId != "" && rec.VolumeID != r.SourceVolumeId
	})
	all, next, err := page(all, r.StartingToken, r.MaxEntries)
	if err != nil {
		return nil, err
	}
	answer := &csi.ListSnapshotsResponse{NextToken: next}
	for _, snapshot := range all {
		rec, size, err := snapshot.read()
		if err != nil {
			continue // removed meanwhile
		}
		answer.Entries = append(answer.Entries, &csi.ListSnapshotsResponse_Entry{
			Snapshot: describeSnapshot(snapshot, rec, size)})
	}
	return answer, nil
}
