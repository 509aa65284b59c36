// Package disk carries out the effects of the file system port on the real file system.
//
// The contract: Do never blocks; every effect but Watch is answered exactly once. A call that
// hangs in the kernel, as on a dead network file system, is answered when it returns, and keeps
// its place in the loop's lane until then: loop.LaneHostPath is for those that may. Errors are
// mapped from errno; a kind that denies any effect is never given once something has been changed,
// empty directories on the way aside.
//
// Start reading at Port, then read.go and write.go. What pods may tamper with while it is looked
// at is in remove.go, walk.go and bind.go; the kubelet's atomic writer in writedir.go.
package disk

import (
	"context"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"seedlet.dev/realworld/clock"
	"seedlet.dev/realworld/flight"
	"seedlet.dev/world"
)

// Options are what a port is made of.
type Options struct {
	Clock   clock.Clock
	Deliver func(world.Event) // takes answers and changes; called from many goroutines
	// Warn is told, in one line, what keeps the port from watching. The core polls anyway.
	Warn func(problem string)
}

// Port is a world.Port for the file system. Close it when done.
type Port struct {
	flights *flight.Flights
	watcher *watcher // nil when this machine cannot watch
}

// New makes a port. It always succeeds: without inotify, it does everything but watch.
func New(opts Options) *Port {
	p := &Port{flights: flight.New(opts.Clock, opts.Deliver)}
	w, err := newWatcher(opts)
	if err != nil {
		opts.Warn(fmt.Sprintf("files are polled, not watched: %v", err))
		return p
	}
	p.watcher = w
	p.flights.Go(w.run)
	return p
}

// Do implements world.Port.
func (p *Port) Do(eff world.Effect) {
	if m, ok := eff.Body.(*world.Watch); ok {
		if p.watcher != nil {
			p.watcher.ask(m.Path)
		}
		return
	}
	p.flights.Begin(eff, carryOut)
}

// carryOut does what an effect asks for. Exactly one of the results is nil.
func carryOut(ctx context.Context, request any) (any, *world.Error) {
	op := world.Call(request)
	if ctx.Err() != nil {
		return nil, world.Errorf(world.KindCanceled, op, "not begun before its deadline")
	}
	body, err := answer(ctx, request)
	if body == nil && err == nil {
		body, err = &world.Done{}, change(ctx, request)
	}
	if err != nil {
		return nil, mapped(op, err)
	}
	return body, nil
}

// answer carries out an effect that only looks. It returns nothing for any other.
func answer(ctx context.Context, request any) (any, error) {
	switch m := request.(type) {
	case *world.ReadFiles:
		return readFiles(m)
	case *world.ListDir:
		return listDir(m.Path)
	case *world.ReadTail:
		return readTail(m)
	case *world.StatPath:
		return statPath(m.Path)
	case *world.ReadLinks:
		return readLinks(m.Path)
	case *world.MeasureTree:
		return measureTree(ctx, m.Path)
	}
	return nil, nil
}

// change carries out an effect that changes something.
func change(ctx context.Context, request any) error {
	switch m := request.(type) {
	case *world.MakeDir:
		return makeDir(m)
	case *world.MakeFile:
		return makeFile(m)
	case *world.MakeLink:
		return makeLink(m)
	case *world.WriteFile:
		return writeFile(m)
	case *world.WriteDir:
		return writeDir(ctx, m)
	case *world.Rename:
		if m.Exclusive {
			return unix.Renameat2(unix.AT_FDCWD, m.From, unix.AT_FDCWD, m.To,
				unix.RENAME_NOREPLACE)
		}
		return os.Rename(m.From, m.To)
	case *world.Compress:
		return compress(ctx, m.Path)
	case *world.RemoveTree:
		return removeTree(ctx, m.Path)
	case *world.ShareWithGroup:
		return shareWithGroup(ctx, m)
	case *world.MountMemory:
		return mountMemory(m)
	case *world.BindSubPath:
		return bindSubPath(ctx, m)
	case *world.Unmount:
		return unmount(m.Path)
	}
	panic(fmt.Sprintf("disk: cannot carry out %T", request))
}

// Close stops watching and waits for what is going on. Do must not be called any more.
func (p *Port) Close() { p.flights.Close() }
