package csi

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"seedlet.dev/realworld/clock"
	"seedlet.dev/realworld/pluginconn"
	"seedlet.dev/realworld/porttest"
	"seedlet.dev/world"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeDriver answers every call with what a test has set, and keeps the last request.
type fakeDriver struct {
	spec.UnimplementedNodeServer
	answer  proto.Message // nil: an empty one
	err     error
	hangs   bool
	node    *spec.NodeGetInfoResponse
	can     []spec.NodeServiceCapability_RPC_Type
	request any
}

func (d *fakeDriver) intercept(ctx context.Context, request any, info *grpc.UnaryServerInfo,
	handle grpc.UnaryHandler) (any, error) {
	d.request = request
	switch {
	case d.hangs:
		<-ctx.Done()
		return nil, status.FromContextError(ctx.Err()).Err()
	case d.err != nil:
		return nil, d.err
	case d.answer != nil:
		return d.answer, nil
	}
	switch info.FullMethod {
	case spec.Node_NodeGetInfo_FullMethodName:
		return d.node, nil
	case spec.Node_NodeGetCapabilities_FullMethodName:
		answer := &spec.NodeGetCapabilitiesResponse{}
		for _, t := range d.can {
			answer.Capabilities = append(answer.Capabilities, &spec.NodeServiceCapability{
				Type: &spec.NodeServiceCapability_Rpc{Rpc: &spec.NodeServiceCapability_RPC{Type: t}}})
		}
		return answer, nil
	}
	return &spec.NodeStageVolumeResponse{}, nil // as empty as all others
}

// harness is a port with a driver.
type harness struct {
	t      *testing.T
	driver world.CSIDriver
	port   *Port
	events chan world.Event
}

func newHarness(t *testing.T, d *fakeDriver) *harness {
	t.Helper()
	dir, err := os.MkdirTemp("", "csi") // the path of a socket has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	h := &harness{t: t, events: make(chan world.Event, 16),
		driver: world.CSIDriver{Name: "a.test", Endpoint: filepath.Join(dir, "csi.sock")}}
	h.port = New(Options{Clock: clock.New(), Deliver: func(ev world.Event) { h.events <- ev }})
	t.Cleanup(h.port.Close)
	if d == nil {
		return h
	}
	listener, err := net.Listen("unix", h.driver.Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.UnaryInterceptor(d.intercept))
	spec.RegisterNodeServer(server, d)
	var served sync.WaitGroup
	served.Go(func() { _ = server.Serve(listener) }) // until the end
	t.Cleanup(func() {
		server.Stop()
		served.Wait()
	})
	return h
}

func (h *harness) call(body any, timeout time.Duration) (any, *world.Error) {
	h.port.Do(world.Effect{Op: 7, Body: body, Deadline: clock.New().Now().Add(timeout)})
	select {
	case ev := <-h.events:
		if ev.Op != 7 {
			h.t.Fatalf("completed %d", ev.Op)
		}
		return ev.Body, ev.Err
	case <-time.After(porttest.Patience):
		h.t.Fatalf("%s was not completed", world.CallName(body))
		return nil, nil
	}
}

// calls are all calls of the port.
func (h *harness) calls() []any {
	return []any{&world.GetCSINodeInfo{Driver: h.driver}, h.stage(nil),
		&world.UnstageVolume{Driver: h.driver, Handle: "v", StagingPath: "/s"}, h.publish(nil),
		&world.UnpublishVolume{Driver: h.driver, Handle: "v", TargetPath: "/t"},
		&world.ExpandVolume{Driver: h.driver, Handle: "v", Path: "/t"},
		&world.GetVolumeStats{Driver: h.driver, Handle: "v", Path: "/t"}}
}

func (h *harness) volume(secrets map[string]string) world.CSIVolume {
	return world.CSIVolume{Driver: h.driver, Handle: "v", Secrets: secrets,
		PublishContext: map[string]string{"p": "1"}, VolumeContext: map[string]string{"c": "2"},
		Capability: world.CSICapability{FSType: "xfs", MountFlags: []string{"noatime"},
			MountGroup: "7", Access: world.CSISingleNodeMultiWriter}}
}

func (h *harness) stage(secrets map[string]string) *world.StageVolume {
	return &world.StageVolume{CSIVolume: h.volume(secrets), StagingPath: "/s"}
}

func (h *harness) publish(secrets map[string]string) *world.PublishVolume {
	return &world.PublishVolume{CSIVolume: h.volume(secrets), StagingPath: "/s", TargetPath: "/t",
		ReadOnly: true}
}

func TestRequests(t *testing.T) {
	d := &fakeDriver{}
	h := newHarness(t, d)
	secrets := map[string]string{"user": "anna"}
	mount := &spec.VolumeCapability{
		AccessMode: &spec.VolumeCapability_AccessMode{
			Mode: spec.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER},
		AccessType: &spec.VolumeCapability_Mount{Mount: &spec.VolumeCapability_MountVolume{
			FsType: "xfs", MountFlags: []string{"noatime"}, VolumeMountGroup: "7"}}}
	block := &spec.VolumeCapability{
		AccessMode: &spec.VolumeCapability_AccessMode{},
		AccessType: &spec.VolumeCapability_Block{Block: &spec.VolumeCapability_BlockVolume{}}}
	one, two := map[string]string{"p": "1"}, map[string]string{"c": "2"}
	for _, c := range []struct {
		body any
		want proto.Message
	}{
		{h.stage(secrets), &spec.NodeStageVolumeRequest{VolumeId: "v", StagingTargetPath: "/s",
			PublishContext: one, VolumeContext: two, Secrets: secrets, VolumeCapability: mount}},
		{&world.UnstageVolume{Driver: h.driver, Handle: "v", StagingPath: "/s"},
			&spec.NodeUnstageVolumeRequest{VolumeId: "v", StagingTargetPath: "/s"}},
		{h.publish(secrets), &spec.NodePublishVolumeRequest{VolumeId: "v", StagingTargetPath: "/s",
			TargetPath: "/t", Readonly: true, PublishContext: one, VolumeContext: two, Secrets: secrets,
			VolumeCapability: mount}},
		{&world.UnpublishVolume{Driver: h.driver, Handle: "v", TargetPath: "/t"},
			&spec.NodeUnpublishVolumeRequest{VolumeId: "v", TargetPath: "/t"}},
		{&world.ExpandVolume{Driver: h.driver, Handle: "v", Path: "/t", StagingPath: "/s",
			RequiredBytes: 5, Secrets: secrets,
			Capability: world.CSICapability{Block: true, Access: "NONSENSE"}},
			&spec.NodeExpandVolumeRequest{VolumeId: "v", VolumePath: "/t", StagingTargetPath: "/s",
				CapacityRange: &spec.CapacityRange{RequiredBytes: 5}, Secrets: secrets,
				VolumeCapability: block}},
		{&world.GetVolumeStats{Driver: h.driver, Handle: "v", Path: "/t", StagingPath: "/s"},
			&spec.NodeGetVolumeStatsRequest{VolumeId: "v", VolumePath: "/t", StagingTargetPath: "/s"}},
	} {
		if _, err := h.call(c.body, porttest.Patience); err != nil {
			t.Errorf("%s: %v", world.CallName(c.body), err)
		}
		if got, is := d.request.(proto.Message); !is || !proto.Equal(got, c.want) {
			t.Errorf("%s: requested %v, want %v", world.CallName(c.body), d.request, c.want)
		}
	}
}

func TestNodeInfo(t *testing.T) {
	segments := map[string]string{"zone": "a"}
	d := &fakeDriver{node: &spec.NodeGetInfoResponse{NodeId: "n", MaxVolumesPerNode: 9,
		AccessibleTopology: &spec.Topology{Segments: segments}}}
	h := newHarness(t, d)
	for value, want := range map[spec.NodeServiceCapability_RPC_Type]world.CSICapabilities{
		1: {StageUnstage: true}, 2: {Stats: true}, 3: {Expand: true}, 4: {Condition: true},
		5: {SingleNodeMultiWriter: true}, 6: {VolumeMountGroup: true}, 0: {}, 77: {},
	} {
		d.can = []spec.NodeServiceCapability_RPC_Type{value}
		body, err := h.call(&world.GetCSINodeInfo{Driver: h.driver}, porttest.Patience)
		if wanted := (&world.CSINodeInfo{NodeID: "n", VolumesMax: 9, Topology: segments,
			Capabilities: want}); !reflect.DeepEqual(body, wanted) {
			t.Errorf("capability %d: %+v, %v, want %+v", value, body, err, wanted)
		}
	}
}

func TestStats(t *testing.T) {
	answer := &spec.NodeGetVolumeStatsResponse{Usage: []*spec.VolumeUsage{
		{Unit: spec.VolumeUsage_BYTES, Total: 10, Available: 4, Used: 6},
		{Unit: spec.VolumeUsage_INODES, Total: 20, Available: 15, Used: 5}, {Total: 77}}}
	condition := protowire.AppendTag(nil, abnormalField, protowire.VarintType)
	condition = protowire.AppendVarint(condition, 1)
	condition = protowire.AppendTag(condition, messageField, protowire.BytesType)
	condition = protowire.AppendString(condition, "broken")
	unknown := protowire.AppendTag(nil, 99, protowire.VarintType)
	unknown = protowire.AppendVarint(unknown, 1)
	unknown = protowire.AppendTag(unknown, conditionField, protowire.BytesType)
	answer.ProtoReflect().SetUnknown(protowire.AppendBytes(unknown, condition))
	h := newHarness(t, &fakeDriver{answer: answer})
	body, err := h.call(&world.GetVolumeStats{Driver: h.driver}, porttest.Patience)
	want := &world.CSIVolumeStats{CapacityBytes: 10, AvailableBytes: 4, UsedBytes: 6, Inodes: 20,
		InodesFree: 15, InodesUsed: 5, Condition: &world.CSIVolumeCondition{Abnormal: true,
			Message: "broken"}}
	if !reflect.DeepEqual(body, want) {
		t.Errorf("%+v, %v, want %+v", body, err, want)
	}
	for _, fields := range [][]byte{condition[:1], {0xff}, nil} {
		if c := decodeCondition(fields); len(fields) > 0 && c != nil || len(fields) == 0 && c == nil {
			t.Errorf("% x is condition %+v", fields, c)
		}
	}
}

// Every code of gRPC is of one kind, whatever call has failed.
func TestKinds(t *testing.T) {
	kinds := map[codes.Code]world.ErrorKind{
		codes.Canceled: world.KindTimeout, codes.DeadlineExceeded: world.KindTimeout,
		codes.Unavailable: world.KindUnavailable, codes.Aborted: world.KindUnavailable,
		codes.ResourceExhausted: world.KindUnavailable, codes.NotFound: world.KindNotFound,
		codes.AlreadyExists: world.KindExists, codes.FailedPrecondition: world.KindConflict,
		codes.InvalidArgument: world.KindInvalid, codes.OutOfRange: world.KindInvalid,
		codes.PermissionDenied: world.KindRefused, codes.Unauthenticated: world.KindRefused,
		codes.Unimplemented: world.KindUnimplemented, codes.Internal: world.KindInternal,
		codes.Unknown: world.KindInternal, codes.DataLoss: world.KindInternal,
	}
	d := &fakeDriver{}
	h := newHarness(t, d)
	for code, kind := range kinds {
		d.err = status.Error(code, "no")
		for _, body := range h.calls() {
			if _, err := h.call(body, porttest.Patience); !err.Has(kind) ||
				err.Op != world.CallName(body) || !strings.Contains(err.Message, "no") {
				t.Errorf("%s: %v of %v, want %s", world.CallName(body), err, code, kind)
			}
		}
	}
	d.err = errors.New("no status")
	if _, err := h.call(h.stage(nil), porttest.Patience); !err.Has(world.KindInternal) {
		t.Errorf("an error without a code: %v", err)
	}
}

// What a driver sends is bounded, and it cannot keep a call for longer than until its deadline.
func TestHostileDriver(t *testing.T) {
	d := &fakeDriver{err: status.Error(codes.NotFound, strings.Repeat("ä", world.CSIErrorBytesMax/2))}
	h := newHarness(t, d)
	if _, err := h.call(h.stage(nil), porttest.Patience); !err.Has(world.KindNotFound) ||
		len(err.Message) > world.CSIErrorBytesMax || len(err.Message) < world.CSIErrorBytesMax/2 {
		t.Errorf("a long error has %d bytes", len(err.Error()))
	}
	d.err = status.Error(codes.NotFound, strings.Repeat("x", 2*pluginconn.HeadersMax))
	if _, err := h.call(h.stage(nil), porttest.Patience); !err.Has(world.KindInternal) ||
		len(err.Message) > world.CSIErrorBytesMax {
		t.Errorf("an endless error: %v", err)
	}
	d.err = nil
	d.node = &spec.NodeGetInfoResponse{NodeId: strings.Repeat("x", world.CSIAnswerBytesMax)}
	if _, err := h.call(&world.GetCSINodeInfo{Driver: h.driver},
		porttest.Patience); !err.Has(world.KindUnavailable) {
		t.Errorf("a long answer: %v", err)
	}
	d.hangs = true
	for _, body := range h.calls() {
		if _, err := h.call(body, 50*time.Millisecond); !err.Has(world.KindTimeout) {
			t.Errorf("%s of a driver that hangs: %v", world.CallName(body), err)
		}
	}
}

func TestNoDriver(t *testing.T) {
	h := newHarness(t, nil)
	for _, body := range h.calls() {
		if _, err := h.call(body, porttest.Patience); !err.Has(world.KindUnavailable) {
			t.Errorf("%s without a driver: %v", world.CallName(body), err)
		}
	}
}

// No error shows a secret, and a request that is no text is not sent.
func TestSecrets(t *testing.T) {
	const user, password, token = "operator", "operator-password", `{"aud":{"token":"T0KEN"}}`
	d := &fakeDriver{err: status.Errorf(codes.Internal, "no %s, %s: %s of 7", password, user, token)}
	h := newHarness(t, d)
	secrets := map[string]string{"user": user, "password": password, "retries": "7", "none": ""}
	stage, publish := h.stage(secrets), h.publish(secrets)
	expand := &world.ExpandVolume{Driver: h.driver, Secrets: secrets}
	stage.VolumeContext = map[string]string{world.CSITokensKey: token}
	publish.VolumeContext = stage.VolumeContext
	for _, body := range []any{stage, publish} {
		_, err := h.call(body, porttest.Patience)
		if want := "no [redacted], [redacted]: [redacted] of 7"; !strings.HasSuffix(err.Message, want) {
			t.Errorf("%s: %s, want %s", world.CallName(body), err.Message, want)
		}
	}
	if _, err := h.call(expand, porttest.Patience); strings.Contains(err.Message, user) {
		t.Errorf("the error shows a secret: %s", err.Message)
	}
	d.err = status.Error(codes.Internal, "T0KEN was rejected")
	inSecrets := h.publish(map[string]string{world.CSITokensKey: token})
	for _, body := range []any{publish, inSecrets} {
		if _, err := h.call(body, porttest.Patience); strings.Contains(err.Message, "T0KEN") {
			t.Errorf("the error shows a token that the driver has decoded: %s", err.Message)
		}
	}
	d.request = nil
	_, err := h.call(h.stage(map[string]string{"key": "\xff\xfe\xfd\xfc"}), porttest.Patience)
	if !err.Has(world.KindInvalid) || d.request != nil || strings.Contains(err.Message, "\xff") {
		t.Errorf("a secret that is no text: %v, sent %v", err, d.request)
	}
}
