// Package csi is the CSI port: it calls the node services of CSI drivers by gRPC, over the unix
// sockets of the drivers.
//
// The contract of the port: Do never blocks; every effect is completed by exactly one event, before
// or soon after its deadline. Each call has a connection of its own, which is closed after it, so a
// driver that was restarted is reached at once. What a driver sends is bounded
// (world.CSIAnswerBytesMax, world.CSIErrorBytesMax). No error shows a secret: its value is
// replaced, also in what a driver answers.
//
// The drivers speak version 1 of the specification. The messages are those of v1.13; what v1.13 has
// removed and kubelets of Kubernetes 1.36 still use, the condition of a volume, is in condition.go.
// Start reading at Port; requests.go has the messages, errors.go the kinds of errors. The folders
// below have a driver for tests.
package csi

import (
	"context"
	"fmt"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"

	"seedlet.dev/realworld/clock"
	"seedlet.dev/realworld/inflight"
	"seedlet.dev/realworld/pluginconn"
	"seedlet.dev/world"
)

// Options configure a Port.
type Options struct {
	Clock   clock.Clock
	Deliver func(world.Event) // receives all events; called from many goroutines
	// Intercept returns what counts a call of a driver, by whether it is for a migrated volume
	// (world.IsMigrated). Nil: nothing does.
	Intercept func(driver string, isMigrated bool) grpc.UnaryClientInterceptor
}

// Port is a world.Port for CSI drivers. Close it when done.
type Port struct {
	operations *inflight.Operations
	intercept  func(driver string, isMigrated bool) grpc.UnaryClientInterceptor
}

// New returns a port.
func New(opts Options) *Port {
	return &Port{operations: inflight.New(opts.Clock, opts.Deliver), intercept: opts.Intercept}
}

// Do implements world.Port.
func (p *Port) Do(eff world.Effect) { p.operations.Start(eff, p.carryOut) }

// Close cancels the operations in flight and waits until they have ended. Do must not be called
// after it.
func (p *Port) Close() { p.operations.Close() }

func (p *Port) carryOut(ctx context.Context, request any) (any, *world.Error) {
	call, isCall := request.(world.CSICall)
	if !isCall {
		panic(fmt.Sprintf("csi: cannot carry out %T", request))
	}
	client, closeConn, err := p.connect(call)
	if err == nil {
		defer closeConn()
		var body any
		if body, err = execute(ctx, client, request); err == nil {
			return body, nil
		}
	}
	return nil, toWorldError(ctx, request, err)
}

// connect returns a client of the node service of a driver that is called.
func (p *Port) connect(call world.CSICall) (spec.NodeClient, func(), error) {
	var opts []grpc.DialOption
	driver := call.CalledDriver()
	if p.intercept != nil {
		opts = append(opts, grpc.WithChainUnaryInterceptor(
			p.intercept(driver.Name, world.IsMigrated(call))))
	}
	conn, err := pluginconn.Open(driver.Endpoint, world.CSIAnswerBytesMax, opts...)
	if err != nil {
		return nil, nil, err
	}
	return spec.NewNodeClient(conn), func() { _ = conn.Close() }, nil // nothing is sent any more
}

// execute calls a driver. If it returns an error, its body is meaningless.
func execute(ctx context.Context, client spec.NodeClient, request any) (any, error) {
	switch m := request.(type) {
	case *world.GetCSINodeInfo:
		return getNodeInfo(ctx, client)
	case *world.StageVolume:
		return done(call(ctx, client.NodeStageVolume, stageRequest(m)))
	case *world.UnstageVolume:
		return done(call(ctx, client.NodeUnstageVolume, &spec.NodeUnstageVolumeRequest{
			VolumeId: m.Handle, StagingTargetPath: m.StagingPath}))
	case *world.PublishVolume:
		return done(call(ctx, client.NodePublishVolume, publishRequest(m)))
	case *world.UnpublishVolume:
		return done(call(ctx, client.NodeUnpublishVolume, &spec.NodeUnpublishVolumeRequest{
			VolumeId: m.Handle, TargetPath: m.TargetPath}))
	case *world.ExpandVolume:
		answer, err := call(ctx, client.NodeExpandVolume, expandRequest(m))
		return &world.VolumeExpanded{CapacityBytes: answer.GetCapacityBytes()}, err
	case *world.GetVolumeStats:
		answer, err := call(ctx, client.NodeGetVolumeStats, &spec.NodeGetVolumeStatsRequest{
			VolumeId: m.Handle, VolumePath: m.Path, StagingTargetPath: m.StagingPath})
		return statsOf(answer), err
	default:
		panic(fmt.Sprintf("csi: cannot carry out %T", request))
	}
}

// done returns the completion of a call whose answer is empty.
func done[A any](_ A, err error) (any, error) { return &world.Done{}, err }
