package loopcsi

import (
	"context"
	"errors"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// controller is the CSI controller service.
type controller struct {
	csi.UnimplementedControllerServer
	options Options
	store   *store
}

func (c *controller) ControllerGetCapabilities(context.Context,
	*csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	types := []csi.ControllerServiceCapability_RPC_Type{
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME,
		csi.ControllerServiceCapability_RPC_LIST_VOLUMES,
		csi.ControllerServiceCapability_RPC_GET_VOLUME,
		csi.ControllerServiceCapability_RPC_GET_CAPACITY,
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_SNAPSHOT,
		csi.ControllerServiceCapability_RPC_LIST_SNAPSHOTS,
		csi.ControllerServiceCapability_RPC_GET_SNAPSHOT,
		csi.ControllerServiceCapability_RPC_EXPAND_VOLUME,
		csi.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
	}
	if c.options.Attach {
		types = append(types, csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME,
			csi.ControllerServiceCapability_RPC_PUBLISH_READONLY,
			csi.ControllerServiceCapability_RPC_LIST_VOLUMES_PUBLISHED_NODES)
	}
	answer := &csi.ControllerGetCapabilitiesResponse{}
	for _, t := range types {
		answer.Capabilities = append(answer.Capabilities, &csi.ControllerServiceCapability{
			Type: &csi.ControllerServiceCapability_Rpc{
				Rpc: &csi.ControllerServiceCapability_RPC{Type: t}}})
	}
	return answer, nil
}

func (c *controller) CreateVolume(_ context.Context, r *csi.CreateVolumeRequest) (
	*csi.CreateVolumeResponse, error) {
	if err := checkCreation(r); err != nil {
		return nil, err
	}
	zone, err := c.zoneFor(r.GetAccessibilityRequirements())
	if err != nil {
		return nil, err
	}
	source := r.GetVolumeContentSource().GetSnapshot().GetSnapshotId()
	volume := c.store.volume(idOf("vol-", r.Name))
	release, err := volume.lockNew()
	if err != nil {
		return nil, err
	}
	defer release()
	rec, size, err := volume.read()
	switch {
	case err == nil:
		if err := checkCompatible(r, rec, size); err != nil {
			return nil, err
		}
		return &csi.CreateVolumeResponse{Volume: describe(volume, rec, size)}, nil
	case status.Code(err) != codes.NotFound:
		return nil, err
	}
	rec = record{Name: r.Name, SnapshotID: source, Zone: zone}
	if size, err = c.fill(volume, r, source); err == nil {
		err = volume.write(rec)
	}
	if err != nil {
		return nil, errors.Join(err, volume.remove())
	}
	return &csi.CreateVolumeResponse{Volume: describe(volume, rec, size)}, nil
}

// fill makes the image of a volume: empty, or with the content of a snapshot.
func (c *controller) fill(volume item, r *csi.CreateVolumeRequest, source string) (int64, error) {
	least := sizeMin(r.VolumeCapabilities)
	snapshot := c.store.snapshot(source)
	if source != "" {
		release, err := snapshot.lock()
		if err != nil {
			return 0, err
		}
		defer release()
		_, size, err := snapshot.read()
		if err != nil {
			return 0, err
		}
		least = max(least, size)
	}
	size, err := sizeFor(r.GetCapacityRange(), least, c.store.capacity)
	if err != nil {
		return 0, err
	}
	if err := c.store.allocate(volume, size); err != nil {
		return 0, err
	}
	if source == "" {
		return size, nil
	}
	if err := copyImage(snapshot, volume); err != nil {
		return 0, err
	}
	return size, os.Truncate(volume.image(), size)
}

func checkCreation(r *csi.CreateVolumeRequest) error {
	if err := checkName(r.Name); err != nil {
		return err
	}
	if err := checkCapabilities(r.VolumeCapabilities); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(r.Parameters)) {
		if !strings.HasPrefix(name, "csi.storage.k8s.io/") {
			return invalid("parameter %q: the driver has none", name)
		}
	}
	if len(r.MutableParameters) > 0 {
		return invalid("the driver has no mutable parameters")
	}
	if source := r.VolumeContentSource; source != nil {
		if source.GetSnapshot() == nil {
			return invalid("a content source that is not a snapshot")
		}
		return checkID("snapshot", source.GetSnapshot().SnapshotId)
	}
	return nil
}

// checkCompatible returns ALREADY_EXISTS unless a volume is what a repeated creation asks for.
func checkCompatible(r *csi.CreateVolumeRequest, rec record, size int64) error {
	limit := r.GetCapacityRange().GetLimitBytes()
	switch {
	case size < r.GetCapacityRange().GetRequiredBytes(), limit > 0 && size > limit,
		size < sizeMin(r.VolumeCapabilities):
		return status.Errorf(codes.AlreadyExists, "volume %q has %d bytes", r.Name, size)
	case rec.SnapshotID != r.GetVolumeContentSource().GetSnapshot().GetSnapshotId():
		return status.Errorf(codes.AlreadyExists, "volume %q was made from snapshot %q", r.Name,
			rec.SnapshotID)
	}
	return nil
}

// zoneFor returns the zone of a new volume: the first that the caller prefers and a node has.
func (c *controller) zoneFor(r *csi.TopologyRequirement) (string, error) {
	wanted := slices.Concat(r.GetPreferred(), r.GetRequisite())
	if len(wanted) == 0 || c.options.Zone == "" {
		return c.options.Zone, nil
	}
	zones, err := c.store.zones()
	if err != nil {
		return "", err
	}
	for _, t := range wanted {
		if zone := t.GetSegments()[ZoneKey]; zones[zone] {
			return zone, nil
		}
	}
	return "", status.Errorf(codes.ResourceExhausted, "no node is in the topologies %v", wanted)
}

// describe returns a volume as CSI has it.
func describe(volume item, rec record, size int64) *csi.Volume {
	v := &csi.Volume{VolumeId: volume.id, CapacityBytes: size}
	if rec.SnapshotID != "" {
		v.ContentSource = &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{
			Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: rec.SnapshotID}}}
	}
	if rec.Zone != "" {
		v.AccessibleTopology = []*csi.Topology{{Segments: map[string]string{ZoneKey: rec.Zone}}}
	}
	return v
}

func (c *controller) DeleteVolume(_ context.Context, r *csi.DeleteVolumeRequest) (
	*csi.DeleteVolumeResponse, error) {
	if err := checkID("volume", r.VolumeId); err != nil {
		return nil, err
	}
	volume := c.store.volume(r.VolumeId)
	release, err := volume.lock()
	if status.Code(err) == codes.NotFound {
		return &csi.DeleteVolumeResponse{}, nil
	}
	if err != nil {
		return nil, err
	}
	defer release()
	attached, err := volume.attachments()
	if err != nil {
		return nil, err
	}
	if len(attached) > 0 {
		return nil, status.Errorf(codes.FailedPrecondition, "volume %s is published to %v", volume.id,
			slices.Sorted(maps.Keys(attached)))
	}
	return &csi.DeleteVolumeResponse{}, removeUnmounted(volume, "mounted")
}

func (c *controller) ValidateVolumeCapabilities(_ context.Context,
	r *csi.ValidateVolumeCapabilitiesRequest) (*csi.ValidateVolumeCapabilitiesResponse, error) {
	if err := checkID("volume", r.VolumeId); err != nil {
		return nil, err
	}
	if len(r.VolumeCapabilities) == 0 {
		return nil, invalid("no volume capabilities")
	}
	_, size, err := c.store.volume(r.VolumeId).read()
	if err != nil {
		return nil, err
	}
	problem := checkCapabilities(r.VolumeCapabilities)
	if problem == nil && size < sizeMin(r.VolumeCapabilities) {
		problem = invalid("volume %s has %d bytes", r.VolumeId, size)
	}
	if problem != nil {
		return &csi.ValidateVolumeCapabilitiesResponse{Message: status.Convert(problem).Message()}, nil
	}
	return &csi.ValidateVolumeCapabilitiesResponse{
		Confirmed: &csi.ValidateVolumeCapabilitiesResponse_Confirmed{
			VolumeContext: r.VolumeContext, VolumeCapabilities: r.VolumeCapabilities,
			Parameters: r.Parameters}}, nil
}

// afterPrefix begins the token of a page, before the last ID of the page before. So a token stays
// valid whatever is removed.
const afterPrefix = "after="

// page returns a page of a list that is sorted by ID, and the token of the next page.
func page(all []item, token string, entriesMax int32) ([]item, string, error) {
	if entriesMax < 0 {
		return nil, "", invalid("at most %d entries", entriesMax)
	}
	if token != "" {
		after, is := strings.CutPrefix(token, afterPrefix)
		if !is || !validID.MatchString(after) {
			return nil, "", status.Errorf(codes.Aborted, "token %q: want %sID", token, afterPrefix)
		}
		all = slices.DeleteFunc(all, func(i item) bool { return i.id <= after })
	}
	if entriesMax == 0 || len(all) <= int(entriesMax) {
		return all, "", nil
	}
	return all[:entriesMax], afterPrefix + all[entriesMax-1].id, nil
}

func (c *controller) ListVolumes(_ context.Context, r *csi.ListVolumesRequest) (
	*csi.ListVolumesResponse, error) {
	all, err := c.store.items(c.store.volume)
	if err != nil {
		return nil, err
	}
	isEphemeral := func(i item) bool {
		rec, _, err := i.read()
		return err != nil || rec.Ephemeral // or removed meanwhile
	}
	all, next, err := page(slices.DeleteFunc(all, isEphemeral), r.StartingToken, r.MaxEntries)
	if err != nil {
		return nil, err
	}
	answer := &csi.ListVolumesResponse{NextToken: next}
	for _, volume := range all {
		rec, size, err := volume.read()
		if err != nil {
			continue // removed meanwhile
		}
		nodes, err := volume.attachments()
		if err != nil {
			return nil, err
		}
		answer.Entries = append(answer.Entries, &csi.ListVolumesResponse_Entry{
			Volume: describe(volume, rec, size),
			Status: &csi.ListVolumesResponse_VolumeStatus{
				PublishedNodeIds: slices.Sorted(maps.Keys(nodes))}})
	}
	return answer, nil
}

func (c *controller) ControllerGetVolume(_ context.Context, r *csi.ControllerGetVolumeRequest) (
	*csi.ControllerGetVolumeResponse, error) {
	if err := checkID("volume", r.VolumeId); err != nil {
		return nil, err
	}
	volume := c.store.volume(r.VolumeId)
	rec, size, err := volume.read()
	if err != nil {
		return nil, err
	}
	nodes, err := volume.attachments()
	if err != nil {
		return nil, err
	}
	return &csi.ControllerGetVolumeResponse{Volume: describe(volume, rec, size),
		Status: &csi.ControllerGetVolumeResponse_VolumeStatus{
			PublishedNodeIds: slices.Sorted(maps.Keys(nodes))}}, nil
}

func (c *controller) GetCapacity(_ context.Context, r *csi.GetCapacityRequest) (
	*csi.GetCapacityResponse, error) {
	least := sizeMin(r.VolumeCapabilities)
	if len(r.VolumeCapabilities) > 0 && checkCapabilities(r.VolumeCapabilities) != nil {
		return &csi.GetCapacityResponse{}, nil
	}
	if t := r.GetAccessibleTopology(); t != nil {
		if zones, err := c.store.zones(); err != nil || !zones[t.Segments[ZoneKey]] {
			return &csi.GetCapacityResponse{}, err
		}
	}
	free, err := c.store.free()
	if err != nil {
		return nil, err
	}
	return &csi.GetCapacityResponse{AvailableCapacity: free,
		MinimumVolumeSize: wrapperspb.Int64(least), MaximumVolumeSize: wrapperspb.Int64(free)}, nil
}

// ControllerExpandVolume makes the image larger. A loop device keeps its size until the node
// expands it, with a file system or without.
func (c *controller) ControllerExpandVolume(_ context.Context,
	r *csi.ControllerExpandVolumeRequest) (*csi.ControllerExpandVolumeResponse, error) {
	if err := checkID("volume", r.VolumeId); err != nil {
		return nil, err
	}
	if r.CapacityRange == nil {
		return nil, invalid("no capacity range")
	}
	if r.VolumeCapability != nil {
		if err := checkCapability(r.VolumeCapability); err != nil {
			return nil, err
		}
	}
	volume := c.store.volume(r.VolumeId)
	release, err := volume.lock()
	if err != nil {
		return nil, err
	}
	defer release()
	rec, size, err := volume.read()
	if err != nil {
		return nil, err
	}
	if rec.Ephemeral {
		return nil, status.Errorf(codes.FailedPrecondition, "volume %s is ephemeral", volume.id)
	}
	// A volume never shrinks: its size is the least that it can have.
	size, err = sizeFor(r.CapacityRange, size, c.store.capacity)
	if err != nil {
		return nil, err
	}
	if err := c.store.allocate(volume, size); err != nil {
		return nil, err
	}
	return &csi.ControllerExpandVolumeResponse{CapacityBytes: size, NodeExpansionRequired: true}, nil
}
