package containerapi

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	// batch is how long additions to a log are collected before they are read: a container that
	// writes without a pause is read a hundred times in a second, not at each of its lines.
	batch = 10 * time.Millisecond
	// settle is how long a log that has been rotated is still read. The runtime opens the new
	// file first and then writes what it holds of the old one to its end.
	settle = 250 * time.Millisecond
	// endPoll is how often the runtime is asked which of the containers that are followed still
	// run. It is one call for all of them.
	endPoll = time.Second
	// filePolls is how many of those pass until every file is looked at although nobody said
	// that it has changed. Where inotify cannot tell of all of them it is done each time.
	filePolls = 10
)

// showAll shows a log until its container has ended.
func (l *log) showAll(ctx context.Context, w *watcher) error {
	f := w.join(l.id, filepath.Dir(l.path.String()))
	defer w.leave(f)
	for {
		ended := f.ended.Load() // before the file is read, so that all of it is
		replaced, err := l.replaced()
		if err != nil {
			return err
		}
		if err := l.drain(ctx, ended && !replaced); err != nil {
			return err
		}
		switch {
		case replaced:
			if err := l.change(ctx); err != nil {
				return err
			}
			continue
		case ended:
			return nil
		}
		l.printer.rest()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-f.woken:
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(batch):
		}
	}
}

// replaced reports whether the log's name is that of another file by now. A file that has become
// shorter was emptied in place, and is read from its beginning.
func (l *log) replaced() (bool, error) {
	mine, err := l.file.Stat()
	if err != nil {
		return false, err
	}
	if mine.Size() < l.scanner.offset {
		l.scanner = scanner{known: l.scanner.known, linesMax: -1}
	}
	named, err := os.Lstat(l.path.String())
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("looking at log file: %w", err)
	}
	return named.Mode().IsRegular() && !os.SameFile(mine, named), nil
}

// change goes from a file to the one that has its name now.
func (l *log) change(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(settle):
	}
	if err := l.drain(ctx, true); err != nil {
		return err
	}
	next, err := l.path.await(ctx, logAppearMax)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // removed with its container, or renamed once more
	}
	if err != nil {
		return err
	}
	l.close()
	l.file = next
	l.scanner = scanner{known: l.scanner.known, linesMax: -1}
	return nil
}

// watcher wakes those who follow logs. However many they are, there is one inotify instance and
// one call of the runtime at a time; while there are none there is nothing.
type watcher struct {
	running func(ctx context.Context, only string) (map[string]bool, error)

	mu      sync.Mutex
	all     map[*follower]bool
	byDir   map[string]map[*follower]bool
	inotify *fsnotify.Watcher // nil if nobody follows, or the kernel has none to give
	blind   bool              // not all changes are told of: no inotify, or too few watches
	stop    context.CancelFunc
	working sync.WaitGroup
}

// follower is one log that is followed.
type follower struct {
	id    string // of the container
	dir   string // of the log
	woken chan struct{}
	ended atomic.Bool // the container has
}

func (f *follower) wake() {
	select {
	case f.woken <- struct{}{}:
	default: // it has been woken already
	}
}

// newWatcher makes a watcher. running says which containers run; it may leave out all but one.
func newWatcher(running func(context.Context, string) (map[string]bool, error)) *watcher {
	return &watcher{
		running: running,
		all:     map[*follower]bool{},
		byDir:   map[string]map[*follower]bool{},
	}
}

// join begins to wake a follower. Who joins must look at its file afterwards.
func (w *watcher) join(id, dir string) *follower {
	f := &follower{id: id, dir: dir, woken: make(chan struct{}, 1)}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.all) == 0 {
		w.start()
	}
	w.all[f] = true
	if w.byDir[dir] == nil {
		w.byDir[dir] = map[*follower]bool{}
		if w.inotify != nil {
			w.blind = w.inotify.Add(dir) != nil || w.blind
		}
	}
	w.byDir[dir][f] = true
	return f
}

func (w *watcher) leave(f *follower) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.all, f)
	delete(w.byDir[f.dir], f)
	if len(w.byDir[f.dir]) == 0 {
		delete(w.byDir, f.dir)
		if w.inotify != nil {
			_ = w.inotify.Remove(f.dir) // it may be gone with the directory
		}
	}
	if len(w.all) == 0 {
		w.stop()
	}
}

// start begins the work of the watcher. The lock is held.
func (w *watcher) start() {
	ctx, cancel := context.WithCancel(context.Background())
	inotify, err := fsnotify.NewWatcher()
	if w.blind = err != nil; !w.blind {
		w.inotify = inotify
		w.working.Go(func() { w.tellChanges(ctx, inotify) })
	}
	w.working.Go(func() { w.tellEnds(ctx) })
	w.stop = func() {
		cancel()
		w.inotify = nil
	}
}

// wait waits until the work of a watcher whom everybody has left has ended.
func (w *watcher) wait() { w.working.Wait() }

// tellChanges wakes those in whose directory something has changed.
func (w *watcher) tellChanges(ctx context.Context, inotify *fsnotify.Watcher) {
	defer inotify.Close()
	for {
		select {
		case <-ctx.Done():
			return
		case event := <-inotify.Events:
			w.wakeIn(filepath.Dir(event.Name))
		case <-inotify.Errors: // events were lost
			w.wakeAll(false)
		}
	}
}

func (w *watcher) wakeIn(dir string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for f := range w.byDir[dir] {
		f.wake()
	}
}

func (w *watcher) wakeAll(onlyIfBlind bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if onlyIfBlind && !w.blind {
		return
	}
	for f := range w.all { //ordered: each is woken
		f.wake()
	}
}

// tellEnds wakes those whose container has ended, and from time to time all.
func (w *watcher) tellEnds(ctx context.Context) {
	tick := time.NewTicker(endPoll)
	defer tick.Stop()
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		w.endThose(ctx)
		w.wakeAll(n%filePolls != 0)
	}
}

// endThose asks which containers run and tells the followers of the others. As long as the
// runtime gives no answer nothing is known to have ended.
func (w *watcher) endThose(ctx context.Context) {
	w.mu.Lock()
	asked := make([]*follower, 0, len(w.all)) // who joins later may be of a container made later
	only, several := "", false
	for f := range w.all {
		several = several || len(asked) > 0 && f.id != only
		only = f.id
		asked = append(asked, f)
	}
	w.mu.Unlock()
	if several {
		only = ""
	}
	running, err := w.running(ctx, only)
	if err != nil {
		return
	}
	for _, f := range asked {
		if !running[f.id] {
			f.ended.Store(true)
			f.wake()
		}
	}
}
