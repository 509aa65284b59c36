package csi

import (
	"context"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"seedlet.dev/world"
)

// call calls a driver. A request that cannot be encoded is not sent: gRPC reports that with a code
// that a driver may also answer with.
func call[R proto.Message, A any](ctx context.Context,
	do func(context.Context, R, ...grpc.CallOption) (A, error), request R) (A, error) {
	if _, err := proto.Marshal(request); err != nil {
		var none A
		return none, &unencodable{err}
	}
	return do(ctx, request)
}

// unencodable is the error of a request that cannot be encoded.
type unencodable struct{ cause error }

// Error implements the error interface.
func (e *unencodable) Error() string { return "encoding the request: " + e.cause.Error() }

// getNodeInfo asks a driver for its node and what its node service can do.
func getNodeInfo(ctx context.Context, client spec.NodeClient) (any, error) {
	node, err := client.NodeGetInfo(ctx, &spec.NodeGetInfoRequest{})
	if err != nil {
		return nil, err
	}
	answer, err := client.NodeGetCapabilities(ctx, &spec.NodeGetCapabilitiesRequest{})
	if err != nil {
		return nil, err
	}
	info := &world.CSINodeInfo{NodeID: node.NodeId, VolumesMax: node.MaxVolumesPerNode,
		Topology: node.GetAccessibleTopology().GetSegments()}
	can := &info.Capabilities
	fields := map[spec.NodeServiceCapability_RPC_Type]*bool{
		spec.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME:     &can.StageUnstage,
		spec.NodeServiceCapability_RPC_GET_VOLUME_STATS:         &can.Stats,
		spec.NodeServiceCapability_RPC_EXPAND_VOLUME:            &can.Expand,
		spec.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER: &can.SingleNodeMultiWriter,
		spec.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP:       &can.VolumeMountGroup,
		volumeCondition: &can.Condition,
	}
	for _, c := range answer.Capabilities {
		if field := fields[c.GetRpc().GetType()]; field != nil {
			*field = true
		}
	}
	return info, nil
}

func stageRequest(m *world.StageVolume) *spec.NodeStageVolumeRequest {
	return &spec.NodeStageVolumeRequest{VolumeId: m.Handle, StagingTargetPath: m.StagingPath,
		PublishContext: m.PublishContext, VolumeContext: m.VolumeContext, Secrets: m.Secrets,
		VolumeCapability: capability(&m.Capability)}
}

func publishRequest(m *world.PublishVolume) *spec.NodePublishVolumeRequest {
	return &spec.NodePublishVolumeRequest{VolumeId: m.Handle, StagingTargetPath: m.StagingPath,
		TargetPath: m.TargetPath, Readonly: m.ReadOnly, PublishContext: m.PublishContext,
		VolumeContext: m.VolumeContext, Secrets: m.Secrets, VolumeCapability: capability(&m.Capability)}
}

func expandRequest(m *world.ExpandVolume) *spec.NodeExpandVolumeRequest {
	return &spec.NodeExpandVolumeRequest{VolumeId: m.Handle, VolumePath: m.Path,
		StagingTargetPath: m.StagingPath, Secrets: m.Secrets, VolumeCapability: capability(&m.Capability),
		CapacityRange: &spec.CapacityRange{RequiredBytes: m.RequiredBytes}}
}

// capability returns how a volume is used. An access mode that the specification does not have is
// UNKNOWN, which drivers refuse.
func capability(c *world.CSICapability) *spec.VolumeCapability {
	mode := spec.VolumeCapability_AccessMode_Mode(
		spec.VolumeCapability_AccessMode_Mode_value[string(c.Access)])
	capability := &spec.VolumeCapability{AccessMode: &spec.VolumeCapability_AccessMode{Mode: mode}}
	if c.Block {
		capability.AccessType = &spec.VolumeCapability_Block{
			Block: &spec.VolumeCapability_BlockVolume{}}
		return capability
	}
	capability.AccessType = &spec.VolumeCapability_Mount{Mount: &spec.VolumeCapability_MountVolume{
		FsType: c.FSType, MountFlags: c.MountFlags, VolumeMountGroup: c.MountGroup}}
	return capability
}

// statsOf returns what a driver says of a volume. Of two usages of one unit the last one counts, as
// for a kubelet.
func statsOf(answer *spec.NodeGetVolumeStatsResponse) *world.CSIVolumeStats {
	stats := &world.CSIVolumeStats{Condition: conditionOf(answer)}
	for _, u := range answer.GetUsage() {
		switch u.GetUnit() {
		case spec.VolumeUsage_BYTES:
			stats.CapacityBytes, stats.AvailableBytes, stats.UsedBytes = u.Total, u.Available, u.Used
		case spec.VolumeUsage_INODES:
			stats.Inodes, stats.InodesFree, stats.InodesUsed = u.Total, u.Available, u.Used
		}
	}
	return stats
}
