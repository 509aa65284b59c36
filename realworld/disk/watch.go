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
	// settle is how long changes are collected before they are told. A file is created and
	// written in two steps: told of the first, the core would read half of it.
	settle = 100 * time.Millisecond
	// descentMax bounds how often the existing part of a path is looked for again because it
	// grew meanwhile.
	descentMax = 32
)

// watcher tells of changes at watched paths, which need not exist.
//
// inotify watches inodes, and the core watches names. So a watched path is followed by up to two
// inotify watches: one on its parent, which sees it made, replaced and removed, and one on itself
// if it is a directory. While the parent is missing, the nearest ancestor that exists stands in
// for it. After each change the watches are placed anew.
//
// Not seen: changes through a link's target, and the renaming of directories further up. For
// those the core polls.
type watcher struct {
	opts    Options
	inotify *fsnotify.Watcher
	asked   chan string
	paths   []string        // watched paths, sorted
	dirty   map[string]bool // watched paths that have changed and have not been told
	placed  map[string]bool // directories with an inotify watch
	limited bool            // a warning about a limit has been given
}

func newWatcher(opts Options) (*watcher, error) {
	inotify, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("starting inotify: %w", err)
	}
	return &watcher{
		opts: opts, inotify: inotify, asked: make(chan string, watchedMax),
		dirty: map[string]bool{}, placed: map[string]bool{},
	}, nil
}

// ask asks for a path to be watched. Asking again places its watches again. It never blocks: what
// cannot be taken is dropped, as the core asks with every poll.
func (w *watcher) ask(path string) {
	select {
	case w.asked <- path:
	default:
	}
}

// run serves the watches until the context is done. It alone touches the watcher's fields.
func (w *watcher) run(ctx context.Context) {
	defer w.inotify.Close()
	var told <-chan time.Time // set while something is dirty
	for {
		if told == nil && len(w.dirty) > 0 {
			told = time.After(settle)
		}
		select {
		case <-ctx.Done():
			return
		case path := <-w.asked:
			w.add(filepath.Clean(path))
		case ev := <-w.inotify.Events:
			w.changed(ev)
		case err := <-w.inotify.Errors:
			w.failed(err)
		case <-told:
			told = nil
			w.tell()
		}
	}
}

func (w *watcher) add(path string) {
	i, known := slices.BinarySearch(w.paths, path)
	if !known {
		if len(w.paths) == watchedMax {
			w.warn(fmt.Sprintf("%s is not watched: %d paths are already", path, watchedMax))
			return
		}
		w.paths = slices.Insert(w.paths, i, path)
	}
	w.place(path)
}

// changed marks the watched paths that an inotify event is about, and places their watches anew
// if the event can have moved them.
func (w *watcher) changed(ev fsnotify.Event) {
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

// failed takes an error of inotify: events may have been lost, so everything may have changed.
func (w *watcher) failed(err error) {
	if !errors.Is(err, fsnotify.ErrEventOverflow) {
		w.warn(fmt.Sprintf("watching files: %v", err))
	}
	for _, path := range w.paths {
		w.dirty[path] = true
	}
}

// tell tells the core what has changed. Watches are placed first, so that what is made after the
// core has read is seen.
func (w *watcher) tell() {
	for _, path := range w.paths {
		if w.dirty[path] {
			delete(w.dirty, path)
			w.place(path)
			w.opts.Deliver(world.Event{Body: &world.FileChanged{Path: path}})
		}
	}
	w.clean()
}

// place puts inotify watches where a path needs them now. While it looks, the path may grow
// towards its end, in which case it looks again.
func (w *watcher) place(path string) {
	for range descentMax {
		before := places(path)
		for _, dir := range before {
			w.watch(dir)
		}
		if slices.Equal(before, places(path)) {
			return
		}
		w.dirty[path] = true // it came into being without a watch to see it
	}
}

// places lists the directories whose inotify watches a path needs: the nearest ancestor that
// exists, and the path itself if it is a directory.
func places(path string) []string {
	var dirs []string
	if isDir(path) {
		dirs = append(dirs, path)
	}
	up := filepath.Dir(path)
	for !isDir(up) && up != filepath.Dir(up) {
		up = filepath.Dir(up)
	}
	return append(dirs, up)
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
		// Gone again. Its parent's watch, placed before or after, tells when it comes back.
	default:
		w.warn(fmt.Sprintf("%s is not watched: %v", dir, err))
	}
}

// unplace forgets the inotify watch of a name that now stands for another inode, or for none.
func (w *watcher) unplace(dir string) {
	if w.placed[dir] {
		delete(w.placed, dir)
		// It fails if inotify has dropped the watch by itself, which is as good.
		_ = w.inotify.Remove(dir)
	}
}

// clean removes the inotify watches that no path needs any more.
func (w *watcher) clean() {
	needed := map[string]bool{}
	for _, path := range w.paths {
		for _, dir := range places(path) {
			needed[dir] = true
		}
	}
	for dir := range w.placed {
		if !needed[dir] {
			w.unplace(dir)
		}
	}
}

// warn gives the first warning only: the next poll would give it again.
func (w *watcher) warn(problem string) {
	if !w.limited {
		w.limited = true
		w.opts.Warn(problem)
	}
}
