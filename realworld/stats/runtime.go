package stats

import (
	"context"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// runtimeStats are the runtime's stats of sandboxes and containers. Cgroups supply what is missing.
type runtimeStats struct {
	sandboxes  map[string]*runtimeapi.PodSandboxStats // by the pod's UID
	containers map[string]*runtimeapi.ContainerStats  // by id
	err        error
}

// requestRuntimeStats requests the stats of all sandboxes with their containers. If the runtime
// does not implement that, or fails because of one sandbox, it requests those of containers alone.
func (s *Source) requestRuntimeStats(ctx context.Context) runtimeStats {
	ctx, cancel := context.WithTimeout(ctx, s.opts.RuntimeTimeout)
	defer cancel()
	found := runtimeStats{sandboxes: map[string]*runtimeapi.PodSandboxStats{},
		containers: map[string]*runtimeapi.ContainerStats{}}
	sandboxes, err := s.opts.Runtime.ListPodSandboxStats(ctx,
		&runtimeapi.ListPodSandboxStatsRequest{})
	if err == nil {
		for _, sandbox := range sandboxes.GetStats() {
			found.addSandbox(sandbox)
		}
		return found
	}
	if code := status.Code(err); code == codes.Unavailable || ctx.Err() != nil {
		found.err = fmt.Errorf("asking the runtime for stats of sandboxes: %w", err)
		return found
	}
	containers, err := s.opts.Runtime.ListContainerStats(ctx,
		&runtimeapi.ListContainerStatsRequest{})
	if err != nil {
		found.err = fmt.Errorf("asking the runtime for stats of containers: %w", err)
		return found
	}
	for _, c := range containers.GetStats() {
		found.containers[c.GetAttributes().GetId()] = c
	}
	return found
}

// addSandbox adds the stats of a sandbox. Of several sandboxes of one pod the newest counts.
func (r *runtimeStats) addSandbox(sandbox *runtimeapi.PodSandboxStats) {
	metadata := sandbox.GetAttributes().GetMetadata()
	if metadata.GetUid() == "" {
		return
	}
	before := r.sandboxes[metadata.Uid].GetAttributes().GetMetadata()
	if before == nil || before.Attempt <= metadata.Attempt {
		r.sandboxes[metadata.Uid] = sandbox
	}
	for _, c := range sandbox.GetLinux().GetContainers() {
		r.containers[c.GetAttributes().GetId()] = c
	}
}
