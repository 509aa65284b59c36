package access

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync"

	"seedlet.dev/world"
)

// Bounds on the reviews of one kind. The client of the API server sends at most kubeAPIQPS requests
// a second, 50 by default, so a review waits there for about a second when inFlightMax are in
// flight. An address that sends many bad tokens delays the others by a third of a second.
const (
	inFlightMax           = 64   // reviews in flight
	inFlightPerAddressMax = 16   // reviews in flight that one address caused
	waitingMax            = 1024 // requests that wait for a review
	waitingPerAddressMax  = 240  // requests of one address that wait for a review
)

// errBusy says that a request is refused because too many others wait for a review.
var errBusy = errors.New("too many requests wait for a review by the API server")

// detach returns a context with the deadline of a context, which is not canceled with it. A review
// that has its turn goes on although its client has disconnected: the rate limiter of the API
// server's client does not take back the turn of a canceled request once others wait behind it, so
// clients that disconnect at once could delay all reviews more and more.
func detach(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, _ := ctx.Deadline() // callers have set one
	return context.WithDeadline(context.WithoutCancel(ctx), deadline)
}

// gate bounds the reviews of one kind, in total and for each address that clients send from, since
// any client that reaches the port can cause reviews. Addresses take turns, so requests of one
// address wait behind each other only. Addresses are compared whole, not by their prefix: pods and
// the API server may share a prefix.
type gate struct {
	mu       sync.Mutex
	inFlight int
	waiting  int
	callers  map[netip.Addr]*reviewCaller // with reviews in flight or requests that wait
	turns    []*reviewCaller              // with requests that wait; the first has the next turn
	refused  refusals
}

// reviewCaller is an address that clients send requests from.
type reviewCaller struct {
	address  netip.Addr
	inFlight int
	waiting  []chan error // by age; each buffers its one result
}

// refusals counts the refused requests by what was exhausted.
type refusals struct{ address, total, timeout uint64 }

func newGate() *gate { return &gate{callers: map[netip.Addr]*reviewCaller{}} }

// acquire waits until an address may cause a review. It returns an error that wraps errBusy if too
// many requests wait, or if the context is done first. Release must follow a success.
func (g *gate) acquire(ctx context.Context, address netip.Addr) error {
	result := g.enter(address)
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	caller := g.callers[address]
	if caller == nil || !g.removeWaiting(caller, result) { // the result came at the same time
		if err := <-result; err != nil {
			return err
		}
		g.endReview(address)
	} else {
		g.removeIdle(caller)
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) { // else the client has disconnected
		g.refused.timeout++
	}
	return errors.Join(errBusy, ctx.Err())
}

// enter returns the channel that the result is sent to.
func (g *gate) enter(address netip.Addr) chan error {
	g.mu.Lock()
	defer g.mu.Unlock()
	result := make(chan error, 1)
	caller := g.callers[address]
	if caller == nil {
		caller = &reviewCaller{address: address}
		g.callers[address] = caller
	}
	switch {
	case g.inFlight < inFlightMax && caller.inFlight < inFlightPerAddressMax:
		// No request of this address waits: grantWaiting would have let it pass.
		g.inFlight++
		caller.inFlight++
		result <- nil
		return result
	case len(caller.waiting) >= waitingPerAddressMax:
		g.refused.address++
		result <- errBusy
		return result
	case g.waiting >= waitingMax && !g.displace(caller):
		g.refused.total++
		result <- errBusy
		g.removeIdle(caller)
		return result
	}
	if len(caller.waiting) == 0 {
		g.turns = append(g.turns, caller)
	}
	caller.waiting = append(caller.waiting, result)
	g.waiting++
	return result
}

// displace makes room for a request that shall wait: it refuses the newest one of the address with
// the most waiting requests. It returns false if no address has more than the caller would have.
func (g *gate) displace(caller *reviewCaller) bool {
	most := slices.MaxFunc(g.turns, func(a, b *reviewCaller) int {
		return len(a.waiting) - len(b.waiting)
	})
	if len(most.waiting) <= len(caller.waiting)+1 {
		return false
	}
	g.refused.total++
	newest := most.waiting[len(most.waiting)-1]
	newest <- errBusy
	return g.removeWaiting(most, newest)
}

// removeWaiting removes a waiting request, and reports whether it was waiting.
func (g *gate) removeWaiting(caller *reviewCaller, result chan error) bool {
	i := slices.Index(caller.waiting, result)
	if i < 0 {
		return false
	}
	caller.waiting = slices.Delete(caller.waiting, i, i+1)
	g.waiting--
	if len(caller.waiting) == 0 {
		i = slices.Index(g.turns, caller)
		g.turns = slices.Delete(g.turns, i, i+1)
	}
	return true
}

// release ends the review of an address.
func (g *gate) release(address netip.Addr) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.endReview(address)
}

func (g *gate) endReview(address netip.Addr) {
	caller := g.callers[address]
	caller.inFlight--
	g.inFlight--
	g.grantWaiting()
	g.removeIdle(caller)
}

// grantWaiting lets waiting requests pass as long as the bounds allow it, one of each address in
// turn.
func (g *gate) grantWaiting() {
	for g.inFlight < inFlightMax {
		i := slices.IndexFunc(g.turns, func(c *reviewCaller) bool {
			return c.inFlight < inFlightPerAddressMax
		})
		if i < 0 {
			return
		}
		caller := g.turns[i]
		oldest := caller.waiting[0]
		g.removeWaiting(caller, oldest)
		if len(caller.waiting) > 0 { // the address is last now
			g.turns = append(slices.Delete(g.turns, i, i+1), caller)
		}
		caller.inFlight++
		g.inFlight++
		oldest <- nil
	}
}

// removeIdle forgets an address without reviews and waiting requests.
func (g *gate) removeIdle(caller *reviewCaller) {
	if caller.inFlight == 0 && len(caller.waiting) == 0 {
		delete(g.callers, caller.address)
	}
}

// metrics returns the metrics of reviews of a kind.
func (g *gate) metrics(kind string) []world.Metric {
	g.mu.Lock()
	defer g.mu.Unlock()
	of := func(labels ...world.Label) []world.Label {
		return append([]world.Label{{Name: "kind", Value: kind}}, labels...)
	}
	metrics := []world.Metric{
		{Name: "seedlet_reviews_in_flight", Labels: of(), Value: float64(g.inFlight),
			Help: "TokenReviews and SubjectAccessReviews in flight."},
		{Name: "seedlet_reviews_in_flight_max", Labels: of(), Value: inFlightMax,
			Help: "Bound on reviews in flight; one address may have a quarter of them."},
		{Name: "seedlet_reviews_waiting", Labels: of(), Value: float64(g.waiting),
			Help: "Requests to the HTTP API that wait for a review."},
		{Name: "seedlet_reviews_waiting_max", Labels: of(), Value: waitingMax,
			Help: "Bound on requests to the HTTP API that wait for a review."},
	}
	for _, r := range []struct {
		reason string
		count  uint64
	}{{"address", g.refused.address}, {"total", g.refused.total}, {"timeout", g.refused.timeout}} {
		metrics = append(metrics, world.Metric{Name: "seedlet_reviews_refused_total",
			Labels:  of(world.Label{Name: "reason", Value: r.reason}),
			Counter: true, Value: float64(r.count),
			Help: "Requests to the HTTP API refused because too many of their address or in total " +
				"waited for a review, or because they waited too long."})
	}
	return metrics
}
