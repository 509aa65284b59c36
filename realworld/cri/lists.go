package cri

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	// listBytesMax bounds a list of sandboxes or containers, of their stats or metrics. Runtimes bound
	// what they send as well: containerd to 16 MiB and CRI-O to 80 MiB, unless they are configured
	// otherwise.
	listBytesMax = 128 << 20
	// listsBytesMax bounds the lists that are requested for each sandbox, together.
	listsBytesMax = 512 << 20
	// statsTimeout bounds a request for the stats of one sandbox, which takes milliseconds.
	statsTimeout = time.Second
	// statsMargin is how long before their deadline no more stats of single sandboxes are waited for.
	statsMargin = 200 * time.Millisecond
	// sandboxListsMax is for how many sandboxes lists are requested at the same time. For stats it is
	// sandboxStatsMax, because each sandbox that hangs occupies its request for statsTimeout.
	sandboxListsMax = 4
	sandboxStatsMax = 32
)

// listClient is a client whose lists may be longer than a message, and whose stats of sandboxes are
// those that the runtime can read. A list that is too long is requested again for each sandbox:
// every container that existed when the call began is in a sandbox that existed then, and the
// runtime removes a sandbox together with its containers.
type listClient struct {
	runtimeapi.RuntimeServiceClient
	sandboxes, containers grpc.CallOption // decode lists of all of them
}

func newListClient(client runtimeapi.RuntimeServiceClient) listClient {
	return listClient{client, grpc.ForceCodecV2(newSandboxCodec()),
		grpc.ForceCodecV2(newContainerCodec())}
}

// ListPodSandbox implements runtimeapi.RuntimeServiceClient.
func (c listClient) ListPodSandbox(ctx context.Context, m *runtimeapi.ListPodSandboxRequest,
	opts ...grpc.CallOption) (*runtimeapi.ListPodSandboxResponse, error) {
	opts = longList(opts)
	if m.Filter == nil {
		opts = append(opts, c.sandboxes)
	}
	return c.RuntimeServiceClient.ListPodSandbox(ctx, m, opts...)
}

// ListContainers implements runtimeapi.RuntimeServiceClient.
func (c listClient) ListContainers(ctx context.Context, m *runtimeapi.ListContainersRequest,
	opts ...grpc.CallOption) (*runtimeapi.ListContainersResponse, error) {
	list, opts := c.RuntimeServiceClient.ListContainers, longList(opts)
	if m.Filter != nil {
		return list(ctx, m, opts...)
	}
	whole, err := list(ctx, m, append(slices.Clip(opts), c.containers)...)
	if !isTooLong(err) {
		return whole, err
	}
	all := &runtimeapi.ListContainersResponse{}
	parts, err := listEachSandbox(ctx, c, sandboxListsMax,
		func(ctx context.Context, id string) (*runtimeapi.ListContainersResponse, error) {
			return list(ctx, &runtimeapi.ListContainersRequest{
				Filter: &runtimeapi.ContainerFilter{PodSandboxId: id}}, opts...)
		})
	for _, part := range parts {
		all.Containers = append(all.Containers, part.GetContainers()...)
	}
	return all, err
}

// ListPodSandboxStats implements runtimeapi.RuntimeServiceClient. The list as a whole fails if the
// stats of one sandbox cannot be read (containerd joins the errors), which the author of a pod can
// bring about. So after a failure the stats of each sandbox are requested, and those that fail, or
// that there is no time for, are left out. The code of an error does not tell whether it is of the
// runtime or of the shim of one sandbox.
func (c listClient) ListPodSandboxStats(ctx context.Context,
	m *runtimeapi.ListPodSandboxStatsRequest, opts ...grpc.CallOption) (
	*runtimeapi.ListPodSandboxStatsResponse, error) {
	list := c.RuntimeServiceClient.ListPodSandboxStats
	whole, err := listWhole(ctx, list, m, longList(opts)...)
	if err == nil || m.Filter != nil || ctx.Err() != nil {
		return whole, err
	}
	var mayBeAway atomic.Bool // the shim of a sandbox is unavailable, or the runtime itself
	parts, failure := listEachSandbox(ctx, c, sandboxStatsMax,
		func(ctx context.Context, id string) (*runtimeapi.ListPodSandboxStatsResponse, error) {
			within, cancel := context.WithDeadline(ctx, statsDeadline(ctx))
			defer cancel()
			part, err := list(within, &runtimeapi.ListPodSandboxStatsRequest{
				Filter: &runtimeapi.PodSandboxStatsFilter{Id: id}}, longList(opts)...)
			if err != nil && ctx.Err() == nil {
				if status.Code(err) == codes.Unavailable {
					mayBeAway.Store(true)
				}
				return nil, nil // the other pods have stats
			}
			return part, err
		})
	if failure == nil && mayBeAway.Load() { // a runtime that is away answers for no pod any more
		_, failure = c.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	}
	isAnswer := func(part *runtimeapi.ListPodSandboxStatsResponse) bool { return part != nil }
	if failure == nil && !slices.ContainsFunc(parts, isAnswer) {
		failure = err
	}
	all := &runtimeapi.ListPodSandboxStatsResponse{}
	for _, part := range parts {
		all.Stats = append(all.Stats, part.GetStats()...)
	}
	return all, failure
}

// statsDeadline returns until when the stats of one sandbox are waited for: for statsTimeout, and
// not so long that there is no time to return those of the others.
func statsDeadline(ctx context.Context) time.Time {
	until := time.Now().Add(statsTimeout)
	if deadline, ok := ctx.Deadline(); ok && deadline.Add(-statsMargin).Before(until) {
		return deadline.Add(-statsMargin)
	}
	return until
}

// listWhole requests a list within half of the time that its caller has, which leaves the other
// half to the requests for each sandbox.
func listWhole[Request, Response any](ctx context.Context,
	list func(context.Context, Request, ...grpc.CallOption) (Response, error), m Request,
	opts ...grpc.CallOption) (Response, error) {
	if deadline, ok := ctx.Deadline(); ok {
		within, cancel := context.WithTimeout(ctx, time.Until(deadline)/2)
		defer cancel()
		ctx = within
	}
	return list(ctx, m, opts...)
}

// ListPodSandboxMetrics implements runtimeapi.RuntimeServiceClient. Its request has no filter, so a
// list that is too long for a message of listBytesMax fails: with a thousand pods, one may have
// 131 KiB.
func (c listClient) ListPodSandboxMetrics(ctx context.Context,
	m *runtimeapi.ListPodSandboxMetricsRequest, opts ...grpc.CallOption) (
	*runtimeapi.ListPodSandboxMetricsResponse, error) {
	return c.RuntimeServiceClient.ListPodSandboxMetrics(ctx, m, longList(opts)...)
}

// ListContainerStats implements runtimeapi.RuntimeServiceClient.
func (c listClient) ListContainerStats(ctx context.Context,
	m *runtimeapi.ListContainerStatsRequest, opts ...grpc.CallOption) (
	*runtimeapi.ListContainerStatsResponse, error) {
	list := c.RuntimeServiceClient.ListContainerStats
	whole, err := list(ctx, m, longList(opts)...)
	if !isTooLong(err) || m.Filter != nil {
		return whole, err
	}
	parts, err := listEachSandbox(ctx, c, sandboxListsMax,
		func(ctx context.Context, id string) (*runtimeapi.ListContainerStatsResponse, error) {
			return list(ctx, &runtimeapi.ListContainerStatsRequest{
				Filter: &runtimeapi.ContainerStatsFilter{PodSandboxId: id}}, longList(opts)...)
		})
	all := &runtimeapi.ListContainerStatsResponse{}
	for _, part := range parts {
		all.Stats = append(all.Stats, part.GetStats()...)
	}
	return all, err
}

// listEachSandbox requests a list for each sandbox, atOnce at a time, until one fails or all
// together are too long, and returns them in the order of the sandboxes. As many are requested as
// the runtime has; the deadline of the context bounds the time.
func listEachSandbox[Part proto.Message](ctx context.Context, c listClient, atOnce int,
	request func(ctx context.Context, sandboxID string) (Part, error)) ([]Part, error) {
	sandboxes, err := c.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return nil, err
	}
	parts := make([]Part, len(sandboxes.Items))
	group, within := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	var bytes atomic.Int64
	for i, s := range sandboxes.Items {
		group.Go(func() error {
			part, err := request(within, s.Id)
			if err != nil {
				return status.Errorf(status.Code(err), "the list of sandbox %s: %v", s.Id, err)
			}
			if bytes.Add(int64(proto.Size(part))) > listsBytesMax {
				return status.Errorf(codes.Internal, "the lists of %d sandboxes take more than %d bytes",
					len(sandboxes.Items), listsBytesMax)
			}
			parts[i] = part
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	return parts, nil
}

func longList(opts []grpc.CallOption) []grpc.CallOption {
	return append(slices.Clip(opts), grpc.MaxCallRecvMsgSize(listBytesMax))
}

// isTooLong reports whether a response was too long for a message, on either side of the
// connection.
func isTooLong(err error) bool {
	return status.Code(err) == codes.ResourceExhausted &&
		strings.Contains(status.Convert(err).Message(), messageTooLong)
}

// messageTooLong is in gRPC's errors about messages that are too long.
const messageTooLong = "message larger than max"
