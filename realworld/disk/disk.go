// Package disk carries out the effects of the file system port on the real file system.
//
// The contract: Do never blocks; every effect but Watch is completed by exactly one event. A call
// that hangs in the kernel, as on a dead network file system, completes when it returns, and
// occupies its loop lane until then: loop.LaneHostPath is for the calls that may hang. Errors are
// mapped from errno; a kind that excludes any effect is never returned after a change, except for
// empty parent directories.
//
// Start reading at Port, then read.go and write.go. Operations on trees that pods may change
// concurrently are in remove.go, walk.go and bind.go; the kubelet's atomic writer is in
// writedir.go.
package disk

import (
	"context"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"seedlet.dev/realworld/clock"
	"seedlet.dev/realworld/inflight"
	"seedlet.dev/world"
)

// Options configure a Port.
type Options struct {
	Clock   clock.Clock
	Deliver func(world.Event) // receives completions and changes; called from many goroutines
	// Warn receives, in one line, a problem with which the port goes on: files that it cannot watch,
	// which the core polls, or that cannot be given to a group.
	Warn func(problem string)
}

// Port is a world.Port for the file system. Close it when done.
type Port struct {
	warn       func(problem string)
	operations *inflight.Operations
	watcher    *watcher // nil without inotify
}

// New returns a port. It always succeeds: without inotify only Watch has no effect.
func New(opts Options) *Port {
	p := &Port{warn: opts.Warn, operations: inflight.New(opts.Clock, opts.Deliver)}
	w, err := newWatcher(opts)
	if err != nil {
		opts.Warn(fmt.Sprintf("files are polled, not watched: %v", err))
		return p
	}
	p.watcher = w
	p.operations.Go(w.run)
	return p
}

// Do implements world.Port.
func (p *Port) Do(eff world.Effect) {
	if m, ok := eff.Body.(*world.Watch); ok {
		if p.watcher != nil {
			p.watcher.request(m.Path)
		}
		return
	}
	p.operations.Start(eff, p.carryOut)
}

// Cancel implements world.Canceler. Walks through trees end at their next entry.
func (p *Port) Cancel(id world.OpID) { p.operations.Cancel(id) }

// carryOut carries out an effect. Exactly one of the results is nil.
func (p *Port) carryOut(ctx context.Context, request any) (any, *world.Error) {
	op := world.CallName(request)
	if ctx.Err() != nil {
		return nil, world.Errorf(world.KindCanceled, op, "not begun before its deadline")
	}
	body, err := query(ctx, request)
	if body == nil && err == nil {
		body, err = &world.Done{}, p.change(ctx, request)
	}
	if err != nil {
		return nil, toWorldError(op, err)
	}
	return body, nil
}

// query carries out an effect that has a result. For all other effects it returns nil.
func query(ctx context.Context, request any) (any, error) {
	switch m := request.(type) {
	case *world.ReadFiles:
		return readFiles(m)
	case *world.ListDir:
		return listDir(m.Path)
	case *world.ReadTail:
		return readTail(m)
	case *world.ReadInVolume:
		return readInVolume(m)
	case *world.StatPath:
		return statPath(m.Path)
	case *world.ReadLinks:
		return readLinks(m.Path)
	case *world.MeasureTree:
		return measureTree(ctx, m.Path, measureTimeMax)
	case *world.MeasureFiles:
		return measureFiles(m), nil
	case *world.MeasureTrees:
		return measureTrees(ctx, m), nil
	case *world.MeasureFilesystem:
		return measureFilesystem(m.Path)
	case *world.MeasureDevice:
		return measureDevice(m.Path, sysfs)
	case *world.ListMounts:
		return listMounts(m.Path)
	case *world.BindMount: // it and MountDevice are the only changes with a result
		return bindMount(ctx, m)
	case *world.MountDevice:
		return mountDevice(ctx, m)
	}
	return nil, nil
}

// change carries out an effect that changes the file system.
func (p *Port) change(ctx context.Context, request any) error {
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
		return shareWithGroup(ctx, m, p.warn)
	case *world.MountMemory:
		return mountMemory(m)
	case *world.BindSubPath:
		return bindSubPath(ctx, m)
	case *world.MountNFS:
		return mountNFS(ctx, m)
	case *world.Unmount:
		return unmount(m.Path)
	case *world.HoldDevice:
		return holdDevice(ctx, m.Path)
	case *world.ReleaseDevice:
		return releaseDevice(ctx, m.Path)
	}
	panic(fmt.Sprintf("disk: cannot carry out %T", request))
}

// Close stops watching and waits for the operations in flight. Do must not be called after it.
func (p *Port) Close() { p.operations.Close() }
