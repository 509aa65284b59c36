package loopcsi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// publishedNodeKey is the key of the node in a publish context. The node refuses a request without
// it, so tests see whether an agent passes the context on.
const publishedNodeKey = Name + "/node"

// ControllerPublishVolume records that a node has a volume attached. All nodes are on this machine,
// so there is nothing else to do.
func (c *controller) ControllerPublishVolume(_ context.Context,
	r *csi.ControllerPublishVolumeRequest) (*csi.ControllerPublishVolumeResponse, error) {
	if !c.options.Attach {
		return nil, status.Error(codes.Unimplemented, "volumes of this driver are not attached")
	}
	err := cmp.Or(checkID("volume", r.VolumeId), checkID("node", r.NodeId),
		checkCapability(r.VolumeCapability))
	if err != nil {
		return nil, err
	}
	volume := c.store.volume(r.VolumeId)
	release, err := volume.lock()
	if err != nil {
		return nil, err
	}
	defer release()
	rec, _, err := volume.read()
	if err != nil {
		return nil, err
	}
	node, err := c.store.readNode(r.NodeId)
	if err != nil {
		return nil, err
	}
	wanted := attachment{ReadOnly: r.Readonly, Block: r.VolumeCapability.GetBlock() != nil,
		Mode: r.VolumeCapability.AccessMode.Mode}
	all, err := volume.attachments()
	if err != nil {
		return nil, err
	}
	had, has := all[r.NodeId]
	switch {
	case has && had != wanted:
		return nil, status.Errorf(codes.AlreadyExists, "volume %s is published to %s as %+v",
			volume.id, r.NodeId, had)
	case !has:
		if err := checkAttachable(volume, rec, node, r.NodeId, wanted, all); err != nil {
			return nil, err
		}
		if err := c.checkVolumesMax(r.NodeId, node.VolumesMax); err != nil {
			return nil, err
		}
		if err := writeJSON(volume.attachedFile(r.NodeId), wanted); err != nil {
			return nil, err
		}
	}
	return &csi.ControllerPublishVolumeResponse{
		PublishContext: map[string]string{publishedNodeKey: r.NodeId}}, nil
}

// checkAttachable returns why a volume cannot be published to one more node.
func checkAttachable(volume item, rec record, node nodeRecord, nodeID string, wanted attachment,
	all map[string]attachment) error {
	if rec.Ephemeral {
		return status.Errorf(codes.FailedPrecondition, "volume %s is ephemeral", volume.id)
	}
	if rec.Zone != node.Zone {
		return status.Errorf(codes.FailedPrecondition, "volume %s is in zone %q, node %s in %q",
			volume.id, rec.Zone, nodeID, node.Zone)
	}
	for _, other := range all {
		if isForOneNode(wanted.Mode) || isForOneNode(other.Mode) {
			return status.Errorf(codes.FailedPrecondition, "volume %s is published to another node",
				volume.id)
		}
	}
	return nil
}

// checkVolumesMax returns RESOURCE_EXHAUSTED if a node has as many volumes as it may have.
func (c *controller) checkVolumesMax(node string, most int64) error {
	if most == 0 {
		return nil
	}
	all, err := c.store.items(c.store.volume)
	if err != nil {
		return err
	}
	var count int64
	for _, volume := range all {
		if _, err := os.Stat(volume.attachedFile(node)); err == nil {
			count++
		}
	}
	if count >= most {
		return status.Errorf(codes.ResourceExhausted, "node %s has %d volumes of %d", node, count, most)
	}
	return nil
}

// ControllerUnpublishVolume removes the record of a node, or of all nodes if none is given.
func (c *controller) ControllerUnpublishVolume(_ context.Context,
	r *csi.ControllerUnpublishVolumeRequest) (*csi.ControllerUnpublishVolumeResponse, error) {
	if !c.options.Attach {
		return nil, status.Error(codes.Unimplemented, "volumes of this driver are not attached")
	}
	if err := checkID("volume", r.VolumeId); err != nil {
		return nil, err
	}
	nodes := map[string]attachment{r.NodeId: {}}
	volume := c.store.volume(r.VolumeId)
	release, err := volume.lockIfThere()
	if err != nil {
		return nil, err
	}
	defer release()
	if r.NodeId == "" {
		nodes, err = volume.attachments()
	} else {
		err = checkID("node", r.NodeId)
	}
	if err != nil {
		return nil, err
	}
	for node := range nodes {
		err := os.Remove(volume.attachedFile(node))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("unpublishing %s: %w", volume.id, err)
		}
	}
	return &csi.ControllerUnpublishVolumeResponse{}, nil
}
