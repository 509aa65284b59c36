// Package cri carries out the effects of the CRI port on a real container runtime, over gRPC.
//
// It uses the gRPC connection directly, and of k8s.io/cri-client only the address and the dialer of
// an endpoint. The service wrappers there call the runtime in their constructor and fail when it is
// down, have one timeout for all calls although each effect has its own deadline, and return parts
// of responses although the port's bodies are the messages themselves.
//
// The contract: Do never blocks; every effect is completed by exactly one event, before or soon
// after its deadline; while the runtime is down a call fails with KindUnavailable at once, and the
// port reconnects within about a second of each return of the runtime. The stream of container
// events is the only call that delivers events before its completion; see stream.go. Start reading
// at Port and call.
package cri

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-client/pkg/util"

	"seedlet.dev/realworld/clock"
	"seedlet.dev/realworld/inflight"
	"seedlet.dev/world"
)

const (
	// messageBytesMax bounds a response other than a list of listClient: a list of images may exceed
	// gRPC's 4 MiB. The value is the kubelet's.
	messageBytesMax = 16 << 20
	// The reconnect delay is short, because connecting to a local socket is cheap and pods wait for
	// it.
	reconnectDelayMin = 100 * time.Millisecond
	reconnectDelayMax = time.Second
	// connectTimeout is for a runtime that accepts connections and then does not respond.
	connectTimeout = 5 * time.Second
)

// Options configure a Port.
type Options struct {
	RuntimeEndpoint string            // as in "unix:///run/containerd/containerd.sock"
	ImageEndpoint   string            // empty if it is RuntimeEndpoint
	Dial            []grpc.DialOption // in addition to the port's own, such as interceptors
	// Trace adds the trace of an operation to its context; nil without tracing.
	Trace   func(context.Context, world.OpID) context.Context
	Clock   clock.Clock
	Deliver func(world.Event) // receives the completions; called from many goroutines
	// Offer accepts an event of a stream if there is room for it, and reports whether there was.
	Offer func(world.Event) bool
}

// Port is a world.Port for a container runtime. Close it when done.
type Port struct {
	opts       Options
	conns      []*grpc.ClientConn
	runtime    runtimeapi.RuntimeServiceClient
	images     runtimeapi.ImageServiceClient
	operations *inflight.Operations
}

// New returns a port. It fails for an endpoint that can never work, and succeeds for one where no
// runtime listens yet.
func New(opts Options) (*Port, error) {
	p := &Port{opts: opts, operations: inflight.New(opts.Clock, opts.Deliver)}
	runtimeConn, err := connect(opts.RuntimeEndpoint, opts.Dial)
	if err != nil {
		return nil, err
	}
	p.conns = append(p.conns, runtimeConn)
	imageConn := runtimeConn
	if opts.ImageEndpoint != "" && opts.ImageEndpoint != opts.RuntimeEndpoint {
		if imageConn, err = connect(opts.ImageEndpoint, opts.Dial); err != nil {
			return nil, fmt.Errorf("image service: %w (and %w)", err, runtimeConn.Close())
		}
		p.conns = append(p.conns, imageConn)
	}
	p.runtime = newListClient(runtimeapi.NewRuntimeServiceClient(runtimeConn))
	p.images = runtimeapi.NewImageServiceClient(imageConn)
	return p, nil
}

// connect returns a connection that is dialed on first use and again whenever it is lost.
func connect(endpoint string, extra []grpc.DialOption) (*grpc.ClientConn, error) {
	address, dial, err := util.GetAddressAndDialer(endpoint)
	if err != nil {
		return nil, fmt.Errorf("container runtime endpoint %q: %w", endpoint, err)
	}
	if address == "" {
		return nil, fmt.Errorf("container runtime endpoint %q: names no socket", endpoint)
	}
	conn, err := grpc.NewClient("passthrough:///"+address, append([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithAuthority("localhost"), // a socket's path is no valid authority
		grpc.WithContextDialer(dial),
		grpc.WithDisableServiceConfig(),
		grpc.WithIdleTimeout(0),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(messageBytesMax)),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{
				BaseDelay: reconnectDelayMin, Multiplier: 1.6, Jitter: 0.2, MaxDelay: reconnectDelayMax,
			},
			MinConnectTimeout: connectTimeout,
		}),
	}, extra...)...)
	if err != nil {
		return nil, fmt.Errorf("container runtime endpoint %q: %w", endpoint, err)
	}
	return conn, nil
}

// Do implements world.Port.
func (p *Port) Do(eff world.Effect) {
	if p.opts.Trace == nil {
		p.operations.Start(eff, p.carryOut)
		return
	}
	id := eff.Op
	p.operations.Start(eff, func(ctx context.Context, request any) (any, *world.Error) {
		return p.carryOut(p.opts.Trace(ctx, id), request)
	})
}

// Cancel implements world.Canceler.
func (p *Port) Cancel(id world.OpID) { p.operations.Cancel(id) }

func (p *Port) carryOut(ctx context.Context, request any) (any, *world.Error) {
	body, err := p.call(ctx, request)
	if err == nil {
		err = checkComplete(body)
	}
	if err == nil {
		err = checkSubject(request, body)
	}
	if err != nil {
		return nil, toWorldError(world.CallName(request), err)
	}
	return body, nil
}

// call maps each request to its method. If it returns an error, its body is meaningless.
func (p *Port) call(ctx context.Context, request any) (any, error) {
	switch m := request.(type) {
	case *runtimeapi.VersionRequest:
		return p.runtime.Version(ctx, m)
	case *runtimeapi.StatusRequest:
		return p.runtime.Status(ctx, m)
	case *runtimeapi.RuntimeConfigRequest:
		return p.runtime.RuntimeConfig(ctx, m)
	case *runtimeapi.UpdateRuntimeConfigRequest:
		return p.runtime.UpdateRuntimeConfig(ctx, m)
	case *runtimeapi.RunPodSandboxRequest:
		return p.runtime.RunPodSandbox(ctx, m)
	case *runtimeapi.StopPodSandboxRequest:
		return p.runtime.StopPodSandbox(ctx, m)
	case *runtimeapi.RemovePodSandboxRequest:
		return p.runtime.RemovePodSandbox(ctx, m)
	case *runtimeapi.PodSandboxStatusRequest:
		return p.runtime.PodSandboxStatus(ctx, m)
	case *runtimeapi.ListPodSandboxRequest:
		return p.runtime.ListPodSandbox(ctx, m)
	case *runtimeapi.CreateContainerRequest:
		return p.runtime.CreateContainer(ctx, m)
	case *runtimeapi.StartContainerRequest:
		return p.runtime.StartContainer(ctx, m)
	case *runtimeapi.StopContainerRequest:
		return p.runtime.StopContainer(ctx, m)
	case *runtimeapi.RemoveContainerRequest:
		return p.runtime.RemoveContainer(ctx, m)
	case *runtimeapi.ListContainersRequest:
		return p.runtime.ListContainers(ctx, m)
	case *runtimeapi.ContainerStatusRequest:
		return p.runtime.ContainerStatus(ctx, m)
	case *runtimeapi.UpdateContainerResourcesRequest:
		return p.runtime.UpdateContainerResources(ctx, m)
	case *runtimeapi.UpdatePodSandboxResourcesRequest:
		return p.runtime.UpdatePodSandboxResources(ctx, m)
	case *runtimeapi.ContainerStatsRequest:
		return p.runtime.ContainerStats(ctx, m)
	case *runtimeapi.ListPodSandboxStatsRequest:
		return p.runtime.ListPodSandboxStats(ctx, m)
	case *runtimeapi.ExecSyncRequest:
		return p.execSync(ctx, m)
	case *runtimeapi.ReopenContainerLogRequest:
		return p.runtime.ReopenContainerLog(ctx, m)
	case *runtimeapi.GetEventsRequest:
		return nil, p.streamEvents(ctx, m)
	case *runtimeapi.ImageStatusRequest:
		return p.images.ImageStatus(ctx, m)
	case *runtimeapi.ListImagesRequest:
		return p.images.ListImages(ctx, m)
	case *runtimeapi.RemoveImageRequest:
		return p.images.RemoveImage(ctx, m)
	case *runtimeapi.ImageFsInfoRequest:
		return p.images.ImageFsInfo(ctx, m)
	case *runtimeapi.PullImageRequest:
		return p.images.PullImage(ctx, m)
	default:
		panic(fmt.Sprintf("cri: no method for %T", request))
	}
}

// Close cancels the calls in flight, waits for their goroutines and closes the connections. Do must
// not be called after it. A second Close does nothing.
func (p *Port) Close() error {
	p.operations.Close()
	conns := p.conns
	p.conns = nil
	for _, conn := range conns {
		if err := conn.Close(); err != nil {
			return fmt.Errorf("closing the connection to the runtime: %w", err)
		}
	}
	return nil
}
