package disk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"

	"seedlet.dev/world"
)

const (
	// watchedMax bounds the watched paths; the core has a handful.
	watchedMax = 64
	// batchDelay is how long changes are collected before they are delivered. A file is created and
	// written in two steps: after the first, the core would read an incomplete file.
	batchDelay = 100 * time.Millisecond
	// placeTriesMax bounds how often watches are placed again because more of a path was created
	// meanwhile.
	placeTriesMax = 32
)

// watcher reports changes at watched paths, which need not exist.
//
// inotify watches inodes, but the core watches names. So a watched path has up to two inotify
// watches: one on its parent, which observes the path being created, replaced and removed, and one
// on the path itself if it is a directory. While the parent is missing, the nearest existing
// ancestor is watched instead. After each change the watches are placed again.
//
// Not observed: changes through a link's target, and renames of directories further up. For those
// the core polls.
type watcher struct {
	opts     Options
	inotify  *fsnotify.Watcher
	requests chan string
	paths    []string        // watched paths, sorted
	dirty    map[string]bool // watched paths with changes that are not delivered yet
	placed   map[string]bool // directories with an inotify watch
	warned   bool            // a warning has been given
}

func newWatcher(opts Options) (*watcher, error) {
	inotify, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("starting inotify: %w", err)
	}
	return &watcher{
		opts: opts, inotify: inotify, requests: make(chan string, watchedMax),
		dirty: map[string]bool{}, placed: map[string]bool{},
	}, nil
}

// request adds a watched path. Requesting it again places its watches again. It never blocks: a
// request beyond the bound is dropped, because the core repeats it with every poll.
func (w *watcher) request(path string) {
	select {
	case w.requests <- path:
	default:
	}
}

// run serves the watches until the context is done. Only run uses the watcher's fields.
func (w *watcher) run(ctx context.Context) {
	defer w.inotify.Close()
	var flush <-chan time.Time // set while a path is dirty
	for {
		if flush == nil && len(w.dirty) > 0 {
			flush = time.After(batchDelay)
		}
		select {
		case <-ctx.Done():
			return
		case path := <-w.requests:
			w.add(filepath.Clean(path))
		case ev := <-w.inotify.Events:
			w.handleEvent(ev)
		case err := <-w.inotify.Errors:
			w.handleError(err)
		case <-flush:
			flush = nil
			w.deliver()
		}
	}
}

func (w *watcher) add(path string) {
	i, watched := slices.BinarySearch(w.paths, path)
	if !watched {
		if len(w.paths) == watchedMax {
			w.warn(fmt.Sprintf("%s is not watched: %d paths are already", path, watchedMax))
			return
		}
		w.paths = slices.Insert(w.paths, i, path)
	}
	w.place(path)
}

// handleEvent marks the watched paths that an inotify event concerns, and places their watches
// again if the event can have moved them.
func (w *watcher) handleEvent(ev fsnotify.Event) {
	moved := ev.Has(fsnotify.Create) || ev.Has(fsnotify.Remove) || ev.Has(fsnotify.Rename)
	for _, path := range w.paths {
		within := filepath.Dir(ev.Name) == path
		at := ev.Name == path || strings.HasPrefix(path, ev.Name+"/")
		if !within && !at {
			continue
		}
		w.dirty[path] = true
		if at && moved {
			w.unplace(ev.Name)
			w.place(path)
		}
	}
}

// handleError handles an error of inotify. Events may have been lost, so every path is dirty.
func (w *watcher) handleError(err error) {
	if !errors.Is(err, fsnotify.ErrEventOverflow) {
		w.warn(fmt.Sprintf("watching files: %v", err))
	}
	for _, path := range w.paths {
		w.dirty[path] = true
	}
}

// deliver reports the changed paths to the core. Watches are placed first, so that files which are
// created after the core's read are noticed.
func (w *watcher) deliver() {
	for _, path := range w.paths {
		if w.dirty[path] {
			delete(w.dirty, path)
			w.place(path)
			w.opts.Deliver(world.Event{Body: &world.FileChanged{Path: path}})
		}
	}
	w.unplaceUnneeded()
}

// place puts inotify watches on the directories that a path needs now. If more of the path was
// created meanwhile, it tries again.
func (w *watcher) place(path string) {
	for range placeTriesMax {
		before := neededDirs(path)
		for _, dir := range before {
			w.watch(dir)
		}
		if slices.Equal(before, neededDirs(path)) {
			return
		}
		w.dirty[path] = true // created before there was a watch
	}
}

// neededDirs returns the directories whose inotify watches a path needs: the nearest existing
// ancestor, and the path itself if it is a directory.
func neededDirs(path string) []string {
	var dirs []string
	if isDir(path) {
		dirs = append(dirs, path)
	}
	ancestor := filepath.Dir(path)
	for !isDir(ancestor) && ancestor != filepath.Dir(ancestor) {
		ancestor = filepath.Dir(ancestor)
	}
	return append(dirs, ancestor)
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

func (w *watcher) watch(dir string) {
	err := w.inotify.Add(dir)
	switch {
	case err == nil:
		w.placed[dir] = true
	case errors.Is(err, os.ErrNotExist):
		// Removed again. The watch of its parent, placed before or after, reports its return.
	default:
		w.warn(fmt.Sprintf("%s is not watched: %v", dir, err))
	}
}

// unplace removes the inotify watch of a name that now has another inode or none.
func (w *watcher) unplace(dir string) {
	if w.placed[dir] {
		delete(w.placed, dir)
		// An error means that inotify has already dropped the watch.
		_ = w.inotify.Remove(dir)
	}
}

// unplaceUnneeded removes the inotify watches that no path needs.
func (w *watcher) unplaceUnneeded() {
	needed := map[string]bool{}
	for _, path := range w.paths {
		for _, dir := range neededDirs(path) {
			needed[dir] = true
		}
	}
	for dir := range w.placed {
		if !needed[dir] {
			w.unplace(dir)
		}
	}
}

// warn reports the first problem only: each poll would repeat it.
func (w *watcher) warn(problem string) {
	if !w.warned {
		w.warned = true
		w.opts.Warn(problem)
	}
}
