package cri

import (
	"context"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	// listBytesMax bounds a list of sandboxes or containers. Runtimes bound what they send as well:
	// containerd to 16 MiB and CRI-O to 80 MiB, unless they are configured otherwise.
	listBytesMax = 128 << 20
	// listsBytesMax bounds the lists of containers that are requested for each sandbox, together.
	listsBytesMax = 512 << 20
)

// listContainers lists the containers. A list that is too long for a message is requested again for
// each sandbox: every container that existed when the call began is in a sandbox that existed then,
// and the runtime removes a sandbox together with its containers.
func (p *Port) listContainers(ctx context.Context, m *runtimeapi.ListContainersRequest) (
	*runtimeapi.ListContainersResponse, error) {
	whole, err := p.runtime.ListContainers(ctx, m, grpc.MaxCallRecvMsgSize(listBytesMax))
	if !isTooLong(err) || m.Filter != nil {
		return whole, err
	}
	sandboxes, listError := p.listSandboxes(ctx, &runtimeapi.ListPodSandboxRequest{})
	if listError != nil {
		return nil, listError
	}
	all, bytes := &runtimeapi.ListContainersResponse{}, 0
	for _, s := range sandboxes.Items {
		part, err := p.runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{
			Filter: &runtimeapi.ContainerFilter{PodSandboxId: s.Id},
		}, grpc.MaxCallRecvMsgSize(listBytesMax))
		if err != nil {
			return nil, err
		}
		if bytes += proto.Size(part); bytes > listsBytesMax {
			return nil, status.Errorf(codes.Internal, "the containers of %d sandboxes take more than "+
				"%d bytes", len(sandboxes.Items), listsBytesMax)
		}
		all.Containers = append(all.Containers, part.Containers...)
	}
	return all, nil
}

func (p *Port) listSandboxes(ctx context.Context, m *runtimeapi.ListPodSandboxRequest) (
	*runtimeapi.ListPodSandboxResponse, error) {
	return p.runtime.ListPodSandbox(ctx, m, grpc.MaxCallRecvMsgSize(listBytesMax))
}

// isTooLong reports whether a response was too long for a message, on either side of the
// connection.
func isTooLong(err error) bool {
	return status.Code(err) == codes.ResourceExhausted &&
		strings.Contains(status.Convert(err).Message(), messageTooLong)
}

// messageTooLong is in gRPC's errors about messages that are too long.
const messageTooLong = "message larger than max"
