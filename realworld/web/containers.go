package web

import (
	"context"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/world"
)

// Ask asks the core whom the names of a pod and a container mean, and waits for the answer for
// answerTimeout at most. The request's number is filled in.
func (p *Port) Ask(ctx context.Context, m world.ContainerRequest) (*world.ContainerAnswer, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	answer, err := p.pending.ask(ctx, func(id world.RequestID) any {
		m.Request = id
		return &m
	})
	if err != nil {
		return nil, err
	}
	return answer.(*world.ContainerAnswer), nil
}

// Pods asks the core for all pods, as Ask does.
func (p *Port) Pods(ctx context.Context) ([]*v1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	answer, err := p.pending.ask(ctx, func(id world.RequestID) any {
		return &world.PodsRequest{Request: id}
	})
	if err != nil {
		return nil, err
	}
	return answer.(*world.PodsAnswer).Pods, nil
}
