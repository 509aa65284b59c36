// Package host is the host port: it reads the facts about the machine for the agent's first event
// (boot.go), creates, limits, lists and removes cgroups, delays shutdowns (shutdown.go),
// makes private keys (key.go), and measures the machine (pressure.go), of whose memory the kernel
// reports shortages (alert.go).
//
// Cgroups are directories and files here, below one root. That is less code than an adapter of
// github.com/opencontainers/cgroups, which caches its findings about /sys/fs/cgroup and its
// connection to systemd in globals: it could only be tested with the machine's cgroup version,
// could not be closed, and supports no deadlines.
//
// The contract of the port: Do never blocks; every effect is completed by exactly one event. An
// invalid request is KindInvalid before anything is changed. A later failure is KindInternal, or
// KindTimeout at the deadline: the operations have several steps, each of which can be repeated.
//
// Start reading at Port, then hierarchy.go, limits.go, remove.go and slice.go.
package host

import (
	"cmp"
	"context"
	"fmt"

	"seedlet.dev/realworld/clock"
	"seedlet.dev/realworld/inflight"
	"seedlet.dev/world"
)

// Options configure a Port.
type Options struct {
	Clock   clock.Clock
	Deliver func(world.Event) // receives the completions; called from many goroutines
	// CgroupRoot is where the cgroup hierarchies are mounted; empty for "/sys/fs/cgroup".
	CgroupRoot string
	// Root is the root of the machine's files; empty for "/". RootDir is the agent's root directory.
	Root, RootDir string
	IDs           IDFiles
	// Certificates returns the node's certificates that are in use; nil for none.
	Certificates func() []world.Certificate
}

// Port is a world.Port for the machine. Close it when done.
type Port struct {
	opts       Options
	dial       func(context.Context) (systemdManager, error) // connects to systemd
	onCreate   func(dir string)                              // called for new cgroups; for tests
	operations *inflight.Operations
	shutdowns  shutdownWatch
	alerts     memoryAlerts
	addresses  addressCache
	keys       keyMaker
}

// New returns a port. Each operation looks up the cgroup hierarchies again.
func New(opts Options) *Port {
	if opts.CgroupRoot == "" {
		opts.CgroupRoot = "/sys/fs/cgroup"
	}
	opts.Root = cmp.Or(opts.Root, "/")
	p := &Port{opts: opts, dial: dialSystemd, onCreate: func(string) {},
		operations: inflight.New(opts.Clock, opts.Deliver), addresses: addressCache{find: addresses},
		keys: newKeyMaker()}
	p.shutdowns.address, p.shutdowns.root = systemBusAddress(), opts.Root
	p.shutdowns.deliver = func(body any) {
		opts.Deliver(world.Event{Time: opts.Clock.Now(), Body: body})
	}
	p.alerts.deliver = p.shutdowns.deliver
	return p
}

// Do implements world.Port.
func (p *Port) Do(eff world.Effect) { p.operations.Start(eff, p.carryOut) }

func (p *Port) carryOut(ctx context.Context, request any) (any, *world.Error) {
	body, err := p.execute(ctx, request)
	if err != nil {
		return nil, inflight.ToWorldError(ctx, world.CallName(request), err, world.KindInternal)
	}
	return body, nil
}

// execute carries out an effect. If it returns an error, its body is meaningless.
func (p *Port) execute(ctx context.Context, request any) (any, error) {
	if ctx.Err() != nil {
		return nil, world.Errorf(world.KindCanceled, world.CallName(request),
			"not begun before its deadline")
	}
	switch m := request.(type) {
	case *world.SetCgroup:
		return p.setCgroup(ctx, m)
	case *world.RemoveCgroup:
		return &world.Done{}, p.removeCgroup(ctx, m)
	case *world.ListCgroups:
		return p.listCgroups(m)
	case *world.ReadMachine:
		return p.readMachine(ctx, m)
	case *world.MeasureNode:
		return p.measureNode(m)
	case *world.MakeKey:
		return p.keys.makeKey(ctx, m)
	case *world.DelayShutdown:
		return p.shutdowns.delay(ctx, m)
	case *world.PermitShutdown:
		return &world.Done{}, p.shutdowns.permit()
	default:
		panic(fmt.Sprintf("host: cannot carry out %T", request))
	}
}

// Close cancels the operations in flight and waits until they have ended. Do must not be called
// after it.
func (p *Port) Close() {
	p.operations.Close()
	p.shutdowns.close()
	p.alerts.close()
}

// readMachine observes the machine, and resolves the node's name if asked to.
func (p *Port) readMachine(ctx context.Context, m *world.ReadMachine) (*world.MachineRead, error) {
	read, err := observe(p.opts.Root, p.opts.RootDir, p.opts.IDs, p.addresses.get(p.opts.Root))
	if err != nil {
		return nil, err
	}
	found, answered := LookUpName(ctx, m.Name)
	read.NameAddresses, read.NameUnknown = found, !answered
	if p.opts.Certificates != nil {
		read.Certificates = p.opts.Certificates()
	}
	return read, nil
}
