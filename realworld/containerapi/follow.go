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
	// batchDelay is how long writes to a log are collected before they are read: the log of a
	// container that writes continuously is read a hundred times per second, not after each line.
	batchDelay = 10 * time.Millisecond
	// rotationDelay is how long a rotated log is still read. The runtime opens the new file first
	// and then writes its buffered output to the end of the old one.
	rotationDelay = 250 * time.Millisecond
	// endPollInterval is how often the runtime is queried which of the followed containers still
	// run. It is one call for all of them.
	endPollInterval = time.Second
	// filePollTicks is the number of end polls after which every file is checked without a
	// notification. If inotify does not cover all files, every file is checked at each poll.
	filePollTicks = 10
)

// streamUntilEnd sends a log until its container has ended.
func (l *log) streamUntilEnd(ctx context.Context, w *watcher) error {
	f := w.add(l.id, filepath.Dir(l.path.String()))
	defer w.remove(f)
	for {
		ended := f.ended.Load() // loaded before the file is read, so that the whole log is read
		replaced, err := l.isReplaced()
		if err != nil {
			return err
		}
		if err := l.drain(ctx, ended && !replaced); err != nil {
			return err
		}
		switch {
		case replaced:
			if err := l.openNext(ctx); err != nil {
				return err
			}
			continue
		case ended:
			return nil
		}
		l.printer.releaseBuffer()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-f.wakeup:
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(batchDelay):
		}
	}
}

// isReplaced reports whether another file has the log's name now. A file that has become shorter
// was truncated in place, and is read from its beginning.
func (l *log) isReplaced() (bool, error) {
	opened, err := l.file.Stat()
	if err != nil {
		return false, err
	}
	if opened.Size() < l.scanner.offset {
		l.scanner = scanner{validSeen: l.scanner.validSeen, linesMax: -1}
	}
	named, err := os.Lstat(l.path.String())
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("looking at log file: %w", err)
	}
	return named.Mode().IsRegular() && !os.SameFile(opened, named), nil
}

// openNext switches from a rotated file to the one that has its name now.
func (l *log) openNext(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(rotationDelay):
	}
	if err := l.drain(ctx, true); err != nil {
		return err
	}
	next, err := l.path.openWithin(ctx, logAppearMax)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // removed with its container, or rotated again
	}
	if err != nil {
		return err
	}
	l.close()
	l.file = next
	l.scanner = scanner{validSeen: l.scanner.validSeen, linesMax: -1}
	return nil
}

// watcher wakes the followers of logs. It has one inotify instance and one call to the runtime at a
// time for all followers, and no goroutine without followers.
type watcher struct {
	listRunning func(ctx context.Context, only string) (map[string]bool, error)

	mu           sync.Mutex
	followers    map[*follower]bool
	byDir        map[string]map[*follower]bool
	inotify      *fsnotify.Watcher // nil without followers, or if the kernel's limit is reached
	needsPolling bool              // some changes are not notified: no inotify, or not all directories
	stop         context.CancelFunc
	goroutines   sync.WaitGroup
}

// follower is a request that follows a log.
type follower struct {
	id     string // of the container
	dir    string // of the log
	wakeup chan struct{}
	ended  atomic.Bool // the container has ended
}

func (f *follower) wake() {
	select {
	case f.wakeup <- struct{}{}:
	default: // woken already
	}
}

// newWatcher returns a watcher. listRunning returns the running containers; of one container only
// if an id is given.
func newWatcher(listRunning func(context.Context, string) (map[string]bool, error)) *watcher {
	return &watcher{
		listRunning: listRunning,
		followers:   map[*follower]bool{},
		byDir:       map[string]map[*follower]bool{},
	}
}

// add registers a follower. The caller must read the file after it, as earlier changes do not wake
// the follower.
func (w *watcher) add(id, dir string) *follower {
	f := &follower{id: id, dir: dir, wakeup: make(chan struct{}, 1)}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.followers) == 0 {
		w.start()
	}
	w.followers[f] = true
	if w.byDir[dir] == nil {
		w.byDir[dir] = map[*follower]bool{}
		if w.inotify != nil {
			w.needsPolling = w.inotify.Add(dir) != nil || w.needsPolling
		}
	}
	w.byDir[dir][f] = true
	return f
}

func (w *watcher) remove(f *follower) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.followers, f)
	delete(w.byDir[f.dir], f)
	if len(w.byDir[f.dir]) == 0 {
		delete(w.byDir, f.dir)
		if w.inotify != nil {
			_ = w.inotify.Remove(f.dir) // the watch may be gone with the directory
		}
	}
	if len(w.followers) == 0 {
		w.stop()
	}
}

// start starts the goroutines of the watcher. The caller holds the lock.
func (w *watcher) start() {
	ctx, cancel := context.WithCancel(context.Background())
	inotify, err := fsnotify.NewWatcher()
	if w.needsPolling = err != nil; !w.needsPolling {
		w.inotify = inotify
		w.goroutines.Go(func() { w.wakeOnChanges(ctx, inotify) })
	}
	w.goroutines.Go(func() { w.pollEnds(ctx) })
	w.stop = func() {
		cancel()
		w.inotify = nil
	}
}

// wait waits until the goroutines of a watcher without followers have ended.
func (w *watcher) wait() { w.goroutines.Wait() }

// wakeOnChanges wakes the followers of logs in a directory that has changed.
func (w *watcher) wakeOnChanges(ctx context.Context, inotify *fsnotify.Watcher) {
	defer inotify.Close()
	for {
		select {
		case <-ctx.Done():
			return
		case event := <-inotify.Events:
			w.wakeDir(filepath.Dir(event.Name))
		case <-inotify.Errors: // events were lost
			w.wakeAll(false)
		}
	}
}

func (w *watcher) wakeDir(dir string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for f := range w.byDir[dir] {
		f.wake()
	}
}

func (w *watcher) wakeAll(onlyIfPolling bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if onlyIfPolling && !w.needsPolling {
		return
	}
	for f := range w.followers { //ordered: each is woken
		f.wake()
	}
}

// pollEnds wakes the followers whose container has ended, and all followers from time to time.
func (w *watcher) pollEnds(ctx context.Context) {
	tick := time.NewTicker(endPollInterval)
	defer tick.Stop()
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		w.markEnded(ctx)
		w.wakeAll(n%filePollTicks != 0)
	}
}

// markEnded lists the running containers, and marks and wakes the followers of all others. An error
// of the runtime marks none.
func (w *watcher) markEnded(ctx context.Context) {
	w.mu.Lock()
	// A follower that is added later may be of a container that is created later.
	polled := make([]*follower, 0, len(w.followers))
	only, several := "", false
	for f := range w.followers {
		several = several || len(polled) > 0 && f.id != only
		only = f.id
		polled = append(polled, f)
	}
	w.mu.Unlock()
	if several {
		only = ""
	}
	running, err := w.listRunning(ctx, only)
	if err != nil {
		return
	}
	for _, f := range polled {
		if !running[f.id] {
			f.ended.Store(true)
			f.wake()
		}
	}
}
