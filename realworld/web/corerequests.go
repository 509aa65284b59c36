package web

import (
	"context"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/world"
)

// Pods returns all pods with their current statuses, as the core has them, for the other servers
// of the agent. It fails if the core does not respond within answerTimeout.
func (p *Port) Pods(ctx context.Context) ([]*v1.Pod, error) {
	answer, err := p.pending.request(ctx, func(id world.RequestID) any {
		return &world.PodsRequest{Request: id}
	})
	if err != nil {
		return nil, err
	}
	return answer.(*world.PodsAnswer).Pods, nil
}

// ResolveContainer returns the container of the runtime that the names of a pod and a container
// stand for now. It fills in the request's number, and fails as Pods does.
func (p *Port) ResolveContainer(ctx context.Context, request world.ContainerRequest) (
	*world.ContainerAnswer, error) {
	answer, err := p.pending.request(ctx, func(id world.RequestID) any {
		request.Request = id
		return &request
	})
	if err != nil {
		return nil, err
	}
	return answer.(*world.ContainerAnswer), nil
}

// VolumeStats returns the usage of the volumes that storage backs. It fails as Pods does.
func (p *Port) VolumeStats(ctx context.Context) ([]world.VolumeUsage, error) {
	answer, err := p.pending.request(ctx, func(id world.RequestID) any {
		return &world.VolumeStatsRequest{Request: id}
	})
	if err != nil {
		return nil, err
	}
	return answer.(*world.VolumeStatsAnswer).Volumes, nil
}
