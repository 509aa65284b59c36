package web

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"seedlet.dev/world"
)

// pendingMax bounds the requests that wait for the core's answer: as many as clients may begin to
// follow logs at once.
const pendingMax = 512

// What keeps a request from being answered; each is a 503.
var (
	errBusy    = fmt.Errorf("%d requests are waiting already", pendingMax)
	errRefused = errors.New("the agent has no room for another event")
	errSilent  = errors.New("the agent does not answer")
)

// pending is the table of requests that wait for the core's answer. Requests are made on the
// goroutines of the HTTP server, answers come on the loop's.
type pending struct {
	offer func(world.Event) bool

	mu      sync.Mutex
	last    world.RequestID
	waiting map[world.RequestID]chan any // each with room for its one answer
	refused uint64
}

// ask puts a request to the core and waits for the answer, until the context is done or for
// answerTimeout. body makes the request of the number that it is given.
func (p *pending) ask(ctx context.Context, body func(world.RequestID) any) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	id, answered, err := p.begin()
	if err != nil {
		return nil, err
	}
	defer p.forget(id)
	if !p.offer(world.Event{Body: body(id)}) {
		p.countRefused()
		return nil, errRefused
	}
	select {
	case answer := <-answered:
		return answer, nil
	case <-ctx.Done():
		return nil, errSilent
	}
}

func (p *pending) begin() (world.RequestID, <-chan any, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.waiting) >= pendingMax {
		p.refused++
		return 0, nil, errBusy
	}
	p.last++
	answered := make(chan any, 1)
	p.waiting[p.last] = answered
	return p.last, answered, nil
}

func (p *pending) forget(id world.RequestID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.waiting, id)
}

// answer hands an answer to the request that waits for it, if it still does. It never blocks.
func (p *pending) answer(id world.RequestID, answer any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if answered, ok := p.waiting[id]; ok {
		answered <- answer
		delete(p.waiting, id)
	}
}

func (p *pending) countRefused() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refused++
}

// metrics are the table's own numbers.
func (p *pending) metrics() []world.Metric {
	p.mu.Lock()
	defer p.mu.Unlock()
	return []world.Metric{
		{Name: "seedlet_http_requests_pending", Value: float64(len(p.waiting)),
			Help: "Requests that wait for the core's answer."},
		{Name: "seedlet_http_requests_pending_max", Value: pendingMax,
			Help: "Bound on requests that wait for the core's answer."},
		{Name: "seedlet_http_requests_refused_total", Value: float64(p.refused), Counter: true,
			Help: "Requests refused for want of room."},
	}
}
