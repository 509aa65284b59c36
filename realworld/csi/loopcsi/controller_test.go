package loopcsi

import (
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"seedlet.dev/realworld/porttest"
)

// TestSnapshot takes a snapshot of a volume in use, and mounts a larger volume made from it beside
// the source.
func TestSnapshot(t *testing.T) {
	for _, name := range fileSystems {
		t.Run(name, func(t *testing.T) {
			dir := newDir(t)
			_, c := start(t, optionsOf(dir))
			capability := fileSystem(name)
			source := c.create("source", capability)
			mustAll(t, c.stage(source, capability), c.publish(source, capability, false))
			write(t, filepath.Join(c.target, "file"), "of the snapshot")
			snapshot, err := c.CreateSnapshot(c.within(), &csi.CreateSnapshotRequest{
				Name: "snapshot", SourceVolumeId: source})
			if err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(c.target, "file"), "of the source")
			size := snapshot.Snapshot.SizeBytes
			request := &csi.CreateVolumeRequest{Name: "restored",
				CapacityRange:      &csi.CapacityRange{RequiredBytes: 2 * size},
				VolumeCapabilities: []*csi.VolumeCapability{capability},
				VolumeContentSource: &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{
					Snapshot: &csi.VolumeContentSource_SnapshotSource{
						SnapshotId: snapshot.Snapshot.SnapshotId}}}}
			restored, err := c.CreateVolume(c.within(), request)
			if err != nil {
				t.Fatal(err)
			}
			second := connect(t, Options{NodeID: "beside", Endpoint: filepath.Join(dir, "csi.sock")})
			id := restored.Volume.VolumeId
			mustAll(t, second.stage(id, capability), second.publish(id, capability, false))
			wantFile(t, filepath.Join(second.target, "file"), "of the snapshot")
			wantFile(t, filepath.Join(c.target, "file"), "of the source")
			if got := second.total(id); got < size*3/2 {
				t.Errorf("the restored volume has %d bytes, its source %d", got, size)
			}
			request.VolumeContentSource = nil
			_, err = c.CreateVolume(c.within(), request)
			wantCode(t, err, codes.AlreadyExists)
			mustAll(t, second.unpublish(id), second.unstage(id), second.remove(id))
			mustAll(t, c.unpublish(source), c.unstage(source), c.remove(source))
			wantNothingLeft(t, dir)
		})
	}
}

// TestFrozenFileSystem: a driver that was killed during a snapshot leaves a file system frozen, and
// the next one thaws it.
func TestFrozenFileSystem(t *testing.T) {
	dir := newDir(t)
	d, c := start(t, optionsOf(dir))
	id := c.create("frozen", fileSystem(""))
	mustAll(t, c.stage(id, fileSystem("")), freeze(c.staging))
	d.Stop()
	_, c = start(t, optionsOf(dir))
	write(t, filepath.Join(c.staging, "file"), "content")
	mustAll(t, c.unstage(id))
}

// TestLock: a second call on a volume is aborted while the first works.
func TestLock(t *testing.T) {
	dir := newDir(t)
	_, c := start(t, optionsOf(dir))
	capability := fileSystem("")
	id := c.create("locked", capability)
	release, err := (&store{dir: c.dir}).volume(id).lock()
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{c.stage(id, capability), c.publish(id, capability, false),
		c.unpublish(id), c.unstage(id), c.remove(id)} {
		wantCode(t, err, codes.Aborted)
	}
	release()
	mustAll(t, c.remove(id))
}

// TestCapacity: images have the sum that the driver has room for, and a failed creation has none.
func TestCapacity(t *testing.T) {
	dir := newDir(t)
	o := optionsOf(dir)
	o.Capacity = 64 * mebibyte
	_, c := start(t, o)
	request := &csi.CreateVolumeRequest{Name: "first",
		VolumeCapabilities: []*csi.VolumeCapability{fileSystem("")},
		CapacityRange:      &csi.CapacityRange{RequiredBytes: 40 * mebibyte}}
	if _, err := c.CreateVolume(c.within(), request); err != nil {
		t.Fatal(err)
	}
	request.Name = "second"
	_, err := c.CreateVolume(c.within(), request)
	wantCode(t, err, codes.ResourceExhausted)
	request.CapacityRange.RequiredBytes = 65 * mebibyte
	_, err = c.CreateVolume(c.within(), request)
	wantCode(t, err, codes.OutOfRange)
	got, err := c.GetCapacity(c.within(), &csi.GetCapacityRequest{})
	if err != nil || got.AvailableCapacity != 24*mebibyte {
		t.Errorf("capacity %v, %v", got, err)
	}
	if left, err := os.ReadDir(filepath.Join(c.dir, "volumes")); err != nil || len(left) != 1 {
		t.Errorf("volumes: %v, %v", left, err)
	}
}

// attach publishes a volume to a node.
func (c *client) attach(id, node string, capability *csi.VolumeCapability) error {
	_, err := c.ControllerPublishVolume(c.within(), &csi.ControllerPublishVolumeRequest{
		VolumeId: id, NodeId: node, VolumeCapability: capability})
	return err
}

// TestTwoNodes: two drivers on one directory share volumes, as far as the access mode allows.
func TestTwoNodes(t *testing.T) {
	dir := newDir(t)
	o := optionsOf(dir)
	o.Attach, o.VolumesMax = true, 2
	_, c := start(t, o)
	o.NodeID, o.Endpoint = "node-2", filepath.Join(dir, "csi-2.sock")
	_, c2 := start(t, o)
	one := fileSystem("")
	many := withMode(fileSystem(""), csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER)
	id, shared, third := c.create("one", one), c.create("many", many), c.create("third", one)
	wantCode(t, c.stage(id, one), codes.FailedPrecondition)
	mustAll(t, c.attach(id, "node-1", one), c.attach(id, "node-1", one))
	wantCode(t, c.attach(id, "node-1", many), codes.AlreadyExists)
	wantCode(t, c.attach(id, "node-2", one), codes.FailedPrecondition)
	wantCode(t, c.attach(id, "node-3", one), codes.NotFound)
	wantCode(t, c.remove(id), codes.FailedPrecondition)
	mustAll(t, c.attach(shared, "node-1", many), c2.attach(shared, "node-2", many))
	wantCode(t, c.attach(third, "node-1", one), codes.ResourceExhausted)
	mustAll(t, c.stage(shared, many), c.publish(shared, many, false))
	_, err := c2.NodeStageVolume(c2.within(), &csi.NodeStageVolumeRequest{VolumeId: shared,
		StagingTargetPath: c2.staging, VolumeCapability: many})
	wantCode(t, err, codes.InvalidArgument) // without the publish context
	_, err = c2.NodeStageVolume(c2.within(), &csi.NodeStageVolumeRequest{VolumeId: shared,
		StagingTargetPath: c2.staging, VolumeCapability: many,
		PublishContext: map[string]string{publishedNodeKey: "node-2"}})
	mustAll(t, err, c2.publish(shared, many, false))
	write(t, filepath.Join(c.target, "file"), "content")
	wantFile(t, filepath.Join(c2.target, "file"), "content")
	mustAll(t, c.unpublish(shared), c.unstage(shared))
	wantFile(t, filepath.Join(c2.target, "file"), "content")
	_, err = c.ControllerUnpublishVolume(c.within(), &csi.ControllerUnpublishVolumeRequest{
		VolumeId: shared, NodeId: "node-1"})
	mustAll(t, err, c2.unpublish(shared), c2.unstage(shared))
	_, err = c.ControllerUnpublishVolume(c.within(), &csi.ControllerUnpublishVolumeRequest{
		VolumeId: shared})
	mustAll(t, err, c.remove(shared))
	wantNothingLeft(t, dir)
}

// TestAttachedReadOnly: a volume that the controller publishes read-only takes no writes, whatever
// the node is asked for.
func TestAttachedReadOnly(t *testing.T) {
	dir := newDir(t)
	o := optionsOf(dir)
	o.Attach = true
	_, c := start(t, o)
	for _, capability := range []*csi.VolumeCapability{fileSystem(""), rawBlock()} {
		id := c.create("volume"+fileSystemOf(capability), capability)
		setReadOnly := func(readOnly bool) {
			_, err := c.ControllerUnpublishVolume(c.within(), &csi.ControllerUnpublishVolumeRequest{
				VolumeId: id, NodeId: "node-1"})
			mustAll(t, err)
			_, err = c.ControllerPublishVolume(c.within(), &csi.ControllerPublishVolumeRequest{
				VolumeId: id, NodeId: "node-1", VolumeCapability: capability, Readonly: readOnly})
			mustAll(t, err)
		}
		setReadOnly(false)
		mustAll(t, c.stage(id, capability), c.unstage(id)) // with a file system from now on
		setReadOnly(true)
		mustAll(t, c.stage(id, capability), c.stage(id, capability))
		mustAll(t, c.publish(id, capability, false), c.publish(id, capability, false))
		path := c.target
		if fileSystemOf(capability) != "" {
			path = filepath.Join(c.target, "file")
		}
		if err := os.WriteFile(path, []byte("x"), 0o644); err == nil {
			t.Errorf("%v takes writes", capability)
		}
		mustAll(t, c.unpublish(id), c.unstage(id))
	}
	wantNothingLeft(t, dir)
}

// TestConcurrentCalls has many callers at once: none gets an error that is not of the CSI
// specification, and what is left afterwards can be removed.
func TestConcurrentCalls(t *testing.T) {
	dir := newDir(t)
	_, c := start(t, optionsOf(dir))
	capability := fileSystem("")
	ids := []string{c.create("a", capability), c.create("b", capability)}
	of := map[string]*client{}
	for _, id := range ids {
		of[id] = connect(t, Options{NodeID: id, Endpoint: filepath.Join(dir, "csi.sock")})
	}
	var callers sync.WaitGroup
	for caller := range 4 {
		random := rand.New(rand.NewPCG(1, uint64(caller)))
		callers.Go(func() {
			for range 30 {
				id := ids[random.IntN(len(ids))]
				c := of[id]
				call := []func() error{
					func() error { return c.stage(id, capability) },
					func() error { return c.publish(id, capability, false) },
					func() error { return c.unpublish(id) },
					func() error { return c.unstage(id) },
				}[random.IntN(4)]
				switch err := call(); status.Code(err) {
				case codes.OK, codes.Aborted, codes.FailedPrecondition:
				default:
					t.Error(err)
				}
			}
		})
	}
	callers.Wait()
	for id, c := range of {
		mustAll(t, c.unpublish(id), c.unstage(id), c.remove(id))
	}
	wantNothingLeft(t, dir)
}

// TestZones: a volume is made in a zone that the request names, and is for nodes of it.
func TestZones(t *testing.T) {
	dir := newDir(t)
	o := optionsOf(dir)
	o.Zone, o.Attach = "east", true
	_, c := start(t, o)
	o.NodeID, o.Endpoint, o.Zone = "node-2", filepath.Join(dir, "csi-2.sock"), "west"
	_, _ = start(t, o)
	create := func(name, zone string) (*csi.CreateVolumeResponse, error) {
		return c.CreateVolume(c.within(), &csi.CreateVolumeRequest{Name: name,
			VolumeCapabilities: []*csi.VolumeCapability{fileSystem("")},
			AccessibilityRequirements: &csi.TopologyRequirement{Requisite: []*csi.Topology{
				{Segments: map[string]string{ZoneKey: zone}}}}})
	}
	made, err := create("west", "west")
	if err != nil || made.Volume.AccessibleTopology[0].Segments[ZoneKey] != "west" {
		t.Fatalf("got %v, %v", made, err)
	}
	wantCode(t, c.attach(made.Volume.VolumeId, "node-1", fileSystem("")), codes.FailedPrecondition)
	mustAll(t, c.attach(made.Volume.VolumeId, "node-2", fileSystem("")))
	_, err = create("south", "south")
	wantCode(t, err, codes.ResourceExhausted)
}

// TestFaults: a call fails before or after its effect, or is late for a caller that has given up.
func TestFaults(t *testing.T) {
	dir := newDir(t)
	d, c := start(t, optionsOf(dir))
	capability := fileSystem("")
	id := c.create("faulty", capability)
	isMounted := func() bool {
		_, has, err := mountAt((&store{dir: c.dir}).volume(id), c.staging)
		return has && err == nil
	}
	if err := d.Inject("NodeStage", Fault{}); err == nil {
		t.Error("a fault of no call is accepted")
	}
	mustAll(t, d.Inject("NodeStageVolume", Fault{Before: codes.Unavailable, Times: 1}))
	wantCode(t, c.stage(id, capability), codes.Unavailable)
	if isMounted() {
		t.Error("mounted in spite of an error before the effect")
	}
	mustAll(t, d.Inject("NodeStageVolume", Fault{After: codes.DeadlineExceeded, Times: 2}))
	wantCode(t, c.stage(id, capability), codes.DeadlineExceeded)
	wantCode(t, c.stage(id, capability), codes.DeadlineExceeded)
	if !isMounted() {
		t.Error("not mounted in spite of an error after the effect")
	}
	mustAll(t, c.stage(id, capability), c.unstage(id))

	mustAll(t, d.Inject("NodeStageVolume", Fault{Delay: 2 * moment, Times: 1}))
	ctx, cancel := context.WithTimeout(t.Context(), moment)
	defer cancel()
	_, err := c.NodeStageVolume(ctx, &csi.NodeStageVolumeRequest{VolumeId: id,
		StagingTargetPath: c.staging, VolumeCapability: capability})
	wantCode(t, err, codes.DeadlineExceeded)
	porttest.Eventually(t, "the late call has its effect", isMounted)
	mustAll(t, d.Inject("NodeUnstageVolume", Fault{Delay: porttest.BeyondPatience}))
	go func() { _ = c.unstage(id) }() // fails when the driver ends
	time.Sleep(moment)
	d.Stop()
	_, c = start(t, optionsOf(dir))
	mustAll(t, c.unstage(id))
}

// TestRegistration: an agent learns the driver's name and socket from the second socket.
func TestRegistration(t *testing.T) {
	dir := newDir(t)
	o := optionsOf(dir)
	o.RegistrationEndpoint = filepath.Join(dir, "plugins_registry", "loop-reg.sock")
	statuses := make(chan *registerapi.RegistrationStatus, 1)
	o.Registered = func(got *registerapi.RegistrationStatus) { statuses <- got }
	start(t, o)
	c := registerapi.NewRegistrationClient(connect(t, Options{NodeID: "agent",
		Endpoint: o.RegistrationEndpoint}).conn)
	info, err := c.GetInfo(t.Context(), &registerapi.InfoRequest{})
	if err != nil || info.Type != registerapi.CSIPlugin || info.Name != Name ||
		info.Endpoint != o.Endpoint || len(info.SupportedVersions) == 0 {
		t.Errorf("got %v, %v", info, err)
	}
	_, err = c.NotifyRegistrationStatus(t.Context(),
		&registerapi.RegistrationStatus{PluginRegistered: true})
	if got := <-statuses; err != nil || !got.PluginRegistered {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestStartRefusesBadOptions(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	write(t, file, "not a socket")
	good := optionsOf(dir)
	for _, o := range []Options{
		{}, {Dir: dir, Endpoint: good.Endpoint}, {Dir: "dir", Endpoint: good.Endpoint, NodeID: "n"},
		{Dir: dir, Endpoint: "csi.sock", NodeID: "n"}, {Dir: dir, Endpoint: file, NodeID: "n"},
		{Dir: dir, Endpoint: good.Endpoint, NodeID: "../n"},
		{Dir: dir, Endpoint: good.Endpoint, NodeID: "n", Capacity: -1},
	} {
		if d, err := Start(o); err == nil {
			d.Stop()
			t.Errorf("%+v: no error", o)
		}
	}
	wantFile(t, file, "not a socket")
}
