package web

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"seedlet.dev/world"
)

// pendingMax bounds the requests that wait for the core. It equals the number of clients that may
// start to follow logs at the same time.
const pendingMax = 512

// The reasons why a request gets no response from the core. Clients receive a 503.
var (
	errStateBusy = errors.New("another client is getting the state already")
	errBusy      = fmt.Errorf("%d requests are waiting already", pendingMax)
	errRefused   = errors.New("the agent has no room for another event")
	errTimeout   = errors.New("the agent does not answer")
)

// pending is the table of requests that wait for the core. Requests are added on the goroutines of
// the HTTP server and completed on the loop's goroutine.
type pending struct {
	offer func(context.Context, world.Event) bool

	mu      sync.Mutex
	last    world.RequestID
	waiting map[world.RequestID]chan any // each buffers its one response
	refused map[error]uint64             // by the reason
}

// request hands a request to the core and waits for the response until the context is done, at most
// answerTimeout. body returns the request with the given number. A request that has been given up
// is not handed to the core any more.
func (p *pending) request(ctx context.Context, body func(world.RequestID) any) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	id, answered, err := p.add()
	if err != nil {
		return nil, err
	}
	defer p.forget(id)
	if !p.offer(ctx, world.Event{Body: body(id)}) {
		p.addRefused(errRefused)
		return nil, errRefused
	}
	select {
	case answer := <-answered:
		return answer, nil
	case <-ctx.Done():
		return nil, errTimeout
	}
}

func (p *pending) add() (world.RequestID, <-chan any, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.waiting) >= pendingMax {
		p.refused[errBusy]++
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

// complete hands a response to the request with the number, if it still waits. It never blocks.
func (p *pending) complete(id world.RequestID, answer any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if answered, ok := p.waiting[id]; ok {
		answered <- answer
		delete(p.waiting, id)
	}
}

func (p *pending) addRefused(reason error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refused[reason]++
}

// metrics returns the metrics of the table.
func (p *pending) metrics() []world.Metric {
	p.mu.Lock()
	defer p.mu.Unlock()
	metrics := []world.Metric{
		{Name: "seedlet_http_requests_pending", Value: float64(len(p.waiting)),
			Help: "Requests that wait for the core."},
		{Name: "seedlet_http_requests_pending_max", Value: pendingMax,
			Help: "Bound on requests that wait for the core."},
	}
	for _, r := range []struct {
		label string
		err   error
	}{{"table", errBusy}, {"queue", errRefused}, {"state", errStateBusy}} {
		metrics = append(metrics, world.Metric{Name: "seedlet_http_requests_refused_total",
			Labels:  []world.Label{{Name: "reason", Value: r.label}},
			Counter: true, Value: float64(p.refused[r.err]),
			Help: "Requests refused because the table or the queue of the core was full, or " +
				"because another client was getting the state."})
	}
	return metrics
}
