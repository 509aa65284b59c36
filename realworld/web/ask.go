package web

import (
	"context"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/world"
)

// Pods asks the core for all pods with their live statuses, for the other servers of the agent. It
// fails if the core does not answer in time.
func (p *Port) Pods(ctx context.Context) ([]*v1.Pod, error) {
	answer, err := p.pending.ask(ctx, func(id world.RequestID) any {
		return &world.PodsRequest{Request: id}
	})
	if err != nil {
		return nil, err
	}
	return answer.(*world.PodsAnswer).Pods, nil
}

// Ask asks the core whom the names of a pod and a container mean, likewise. The request's number
// is filled in.
func (p *Port) Ask(ctx context.Context, m world.ContainerRequest) (*world.ContainerAnswer, error) {
	answer, err := p.pending.ask(ctx, func(id world.RequestID) any {
		m.Request = id
		return &m
	})
	if err != nil {
		return nil, err
	}
	return answer.(*world.ContainerAnswer), nil
}
