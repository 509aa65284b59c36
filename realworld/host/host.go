// Package host is the host port: it finds out what the agent's first event says about the
// machine (boot.go), and makes, limits, lists and removes cgroups.
//
// Cgroups are plain directories and files here, found below one root. That is less code than the
// glue to github.com/opencontainers/cgroups would be, which keeps what it has found out about
// /sys/fs/cgroup, and its connection to systemd, in globals: it could be tested on the version of
// cgroups that the machine happens to have only, could not be closed, and knows no deadline.
//
// The contract of the port: Do never blocks; every effect is answered exactly once. Requests that
// make no sense are KindInvalid before anything has been touched. What fails later is
// KindInternal, or KindTimeout at the deadline: the operations have several steps, each of which
// can be done again.
//
// Start reading at Port, then hierarchy.go, limits.go, remove.go and slice.go.
package host

import (
	"context"
	"fmt"

	"seedlet.dev/realworld/clock"
	"seedlet.dev/realworld/flight"
	"seedlet.dev/world"
)

// Options are what a port is made of.
type Options struct {
	Clock   clock.Clock
	Deliver func(world.Event) // takes the answers; called from many goroutines
	// CgroupRoot is where the cgroup hierarchies are mounted; empty for "/sys/fs/cgroup".
	CgroupRoot string
}

// Port is a world.Port for the machine. Close it when done.
type Port struct {
	opts    Options
	dial    func(context.Context) (manager, error) // connects to systemd
	made    func(dir string)                       // told of new cgroups, by tests
	flights *flight.Flights
}

// New makes a port. The cgroup hierarchies are looked for anew by each operation.
func New(opts Options) *Port {
	if opts.CgroupRoot == "" {
		opts.CgroupRoot = "/sys/fs/cgroup"
	}
	return &Port{opts: opts, dial: dialSystemd, made: func(string) {},
		flights: flight.New(opts.Clock, opts.Deliver)}
}

// Do implements world.Port.
func (p *Port) Do(eff world.Effect) { p.flights.Begin(eff, p.carryOut) }

func (p *Port) carryOut(ctx context.Context, request any) (any, *world.Error) {
	body, err := p.change(ctx, request)
	if err != nil {
		return nil, flight.Mapped(ctx, world.Call(request), err, world.KindInternal)
	}
	return body, nil
}

// change does what an effect asks for. On an error the returned body means nothing.
func (p *Port) change(ctx context.Context, request any) (any, error) {
	if ctx.Err() != nil {
		return nil, world.Errorf(world.KindCanceled, world.Call(request),
			"not begun before its deadline")
	}
	switch m := request.(type) {
	case *world.SetCgroup:
		return &world.Done{}, p.setCgroup(ctx, m)
	case *world.RemoveCgroup:
		return &world.Done{}, p.removeCgroup(ctx, m)
	case *world.ListCgroups:
		return p.listCgroups(m)
	default:
		panic(fmt.Sprintf("host: cannot carry out %T", request))
	}
}

// Close gives up what is going on and waits until it has ended. Do must not be called any more.
func (p *Port) Close() { p.flights.Close() }
