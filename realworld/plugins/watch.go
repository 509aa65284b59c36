package plugins

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/fsnotify/fsnotify"

	"seedlet.dev/world"
)

const (
	// rescanPeriod is that of the scans without a notification: a change may have come before the
	// directory was watched, and inotify may be out of watches.
	rescanPeriod = 10 * time.Second
	// batchDelay is how long changes are collected before a scan. It also bounds how often a plugin
	// that keeps making its socket is reported.
	batchDelay = 250 * time.Millisecond
	dirsMax    = 64   // directories that are watched
	entriesMax = 4096 // of all directories that are looked at in a scan
)

// watcher reports the sockets below a directory. As a kubelet does, it follows a link to a socket,
// not one to a directory, and leaves out names that begin with a dot (pluginwatcher). Names
// that are no text are left out as well: they cannot be written in a metric or a snapshot.
type watcher struct {
	opts     Options
	inotify  *fsnotify.Watcher // nil: there are only the periodic scans
	placed   []string          // directories with a watch
	reported world.PluginSocketsObserved
	warned   string // the last problem
}

func newWatcher(opts Options) *watcher {
	w := &watcher{opts: opts}
	var err error
	if w.inotify, err = fsnotify.NewWatcher(); err != nil {
		w.inotify = nil
		w.warn(fmt.Errorf("starting inotify: %w", err))
	}
	return w
}

// run reports the sockets until the context is done.
func (w *watcher) run(ctx context.Context) {
	var events chan fsnotify.Event
	var failures chan error
	if w.inotify != nil {
		defer w.inotify.Close()
		events, failures = w.inotify.Events, w.inotify.Errors
	}
	rescan := time.NewTicker(rescanPeriod)
	defer rescan.Stop()
	w.scan()
	var batch <-chan time.Time // set while there are changes that were not looked at
	changed := func() {
		if batch == nil {
			batch = time.After(batchDelay)
		}
	}
	for {
		select {
		case <-ctx.Done():
			return
		case ev := <-events:
			if ev.Has(fsnotify.Create | fsnotify.Remove | fsnotify.Rename) {
				changed()
			}
		case err := <-failures:
			if !errors.Is(err, fsnotify.ErrEventOverflow) {
				w.warn(err)
			}
			changed()
		case <-batch:
			batch = nil
			w.scan()
		case <-rescan.C:
			w.scan()
		}
	}
}

// scan reports the sockets if they have changed, and watches the directories that are there now.
func (w *watcher) scan() {
	s := scan{watch: w.place, before: w.reported.Sockets}
	err := s.look(w.opts.Dir, 0)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil // no plugin can register; the agent has made the directory at its start
	}
	if err != nil {
		w.warn(err)
		return // what was reported may still be right
	}
	if s.cut {
		w.warn(fmt.Errorf("%s has more than %d directories or %d entries: the rest is ignored",
			w.opts.Dir, dirsMax, entriesMax))
	}
	slices.Sort(s.dirs)
	for _, dir := range w.placed {
		if _, stays := slices.BinarySearch(s.dirs, dir); !stays && w.inotify != nil {
			_ = w.inotify.Remove(dir) // which the kernel has done if the directory is gone
		}
	}
	w.placed = s.dirs
	slices.SortFunc(s.sockets, func(x, y world.PluginSocket) int {
		return cmp.Compare(x.Path, y.Path)
	})
	omitted := max(0, len(s.sockets)-world.PluginSocketsMax)
	now := world.PluginSocketsObserved{Sockets: s.sockets[:len(s.sockets)-omitted], Omitted: omitted}
	if slices.Equal(now.Sockets, w.reported.Sockets) && now.Omitted == w.reported.Omitted {
		return
	}
	w.reported = now
	w.opts.Deliver(world.Event{Body: &now})
}

// place watches a directory. It is called at every scan, as the directory may be another one.
func (w *watcher) place(dir string) {
	if w.inotify == nil {
		return
	}
	if err := w.inotify.Add(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		w.warn(fmt.Errorf("%s is not watched: %w", dir, err))
	}
}

// warn reports a problem that is not the last one again.
func (w *watcher) warn(err error) {
	if text := err.Error(); text != w.warned {
		w.warned = text
		w.opts.Warn("watching for plugins: " + text)
	}
}

// scan is one look at the sockets.
type scan struct {
	watch   func(dir string)
	before  []world.PluginSocket // as they were reported last
	dirs    []string
	sockets []world.PluginSocket
	entries int
	cut     bool // there is more than is looked at
}

// look notes the sockets in a directory and below. The directory is watched before it is read, so
// that no change is missed.
func (s *scan) look(dir string, depth int) error {
	if len(s.dirs) >= dirsMax || s.entries >= entriesMax {
		s.cut = true
		return nil
	}
	s.dirs = append(s.dirs, dir)
	s.watch(dir)
	entries, err := readDir(dir, entriesMax-s.entries)
	if err != nil {
		return err
	}
	s.entries += len(entries)
	s.cut = s.cut || s.entries >= entriesMax
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		switch {
		case strings.HasPrefix(e.Name(), "."), !utf8.ValidString(e.Name()):
		case e.IsDir() && depth < world.PluginDepthMax:
			if err := s.look(path, depth+1); err != nil && !errors.Is(err, fs.ErrNotExist) {
				s.keep(path)
			}
		case e.Type() == fs.ModeSocket || e.Type() == fs.ModeSymlink:
			if file, isSocket := fileOf(path); isSocket {
				s.sockets = append(s.sockets, world.PluginSocket{Path: path, File: file})
			}
		}
	}
	return nil
}

// keep notes the sockets below a directory that cannot be read as they were reported last. Such a
// failure must not end their registration.
func (s *scan) keep(dir string) {
	for _, socket := range s.before {
		if strings.HasPrefix(socket.Path, dir+"/") {
			s.sockets = append(s.sockets, socket)
		}
	}
}

// readDir returns the entries of a directory, a bounded number of them, by name.
func readDir(dir string, entriesMax int) ([]fs.DirEntry, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close() // it was only read
	entries, err := f.ReadDir(entriesMax)
	slices.SortFunc(entries, func(x, y fs.DirEntry) int { return cmp.Compare(x.Name(), y.Name()) })
	if errors.Is(err, io.EOF) {
		err = nil // the directory is empty
	}
	return entries, err
}

// fileOf returns what identifies the file at a path, and whether it is a socket. The number of an
// inode is used again, so the time of its last change of content, which is that of its creation,
// is a part. A changed owner or mode makes no other file of a socket.
func fileOf(path string) (file string, isSocket bool) {
	info, err := os.Stat(path)
	if err != nil || info.Mode().Type() != fs.ModeSocket {
		return "", false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return "", false
	}
	return fmt.Sprintf("%d:%d:%d", stat.Dev, stat.Ino, info.ModTime().UnixNano()), true
}
