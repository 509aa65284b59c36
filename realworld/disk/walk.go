package disk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"seedlet.dev/world"
)

// openMax bounds how many directories of one tree are held open at once. Pods determine the depth
// of their volumes: paths may be longer than the kernel's PATH_MAX, so names are only used relative
// to an open directory.
const openMax = 64

// heldBytesMax bounds the memory that one walk needs for the names of a tree: about a million
// directories within each other.
const heldBytesMax = 64 << 20

// walker walks through a tree that a pod may change concurrently: each directory is opened relative
// to its parent, links are not followed, and other mounts are not entered. Files that are removed
// or replaced meanwhile are skipped.
//
// A walk goes to any depth without recursion. Only the last openMax levels have their directory
// open. A level above them is opened again as the parent of the level below it, and compared with
// the directory that it was.
type walker struct {
	ctx context.Context
	// visit is called for each file and directory of the tree, for a directory after its content.
	visit func(entry) error
	// mounts are the paths of mount points that are not even looked at, since what is mounted there
	// may hang, and mountNames their last names. Nil: the walk notices a mount when it gets there.
	mounts, mountNames map[string]bool

	mount  uint64  // mount ID of the root
	levels []level // from the root to the directory that is being read
	open   int     // number of levels with an open directory, always the last ones
	held   int     // bytes of the levels and their names, by an estimate
	looked int     // number of names that were looked at
}

// level is a directory on the way to the current one.
type level struct {
	dir   *os.File // nil: closed, with all its remaining names in names
	name  string   // in the level above; of the root the path
	path  string   // for errors and mount points
	bytes int      // that it holds, without names
	id    fileID
	names []string // read and not visited yet
	array int      // bytes of their array, which is held until all of them are visited
	ended bool     // all names have been read
}

// fileID identifies a file on the node while it is open.
type fileID struct {
	major, minor uint32
	inode        uint64
}

func idOf(stat *unix.Statx_t) fileID {
	return fileID{stat.Dev_major, stat.Dev_minor, stat.Ino}
}

// The estimated memory of a level and of a name without its text.
const (
	levelBytes = 128
	nameBytes  = 16
)

// entry is a file or directory of a tree.
type entry struct {
	parent *os.File // nil: name is the path of the root
	name   string
	stat   unix.Statx_t
}

func (f entry) path() string {
	if f.parent == nil {
		return f.name
	}
	return joinPath(f.parent.Name(), f.name)
}

// open opens the entry, or the file that has its name now.
func (f entry) open(flags int) (*os.File, error) {
	if f.parent != nil {
		return openChild(f.parent, f.name, flags)
	}
	return os.OpenFile(f.name, flags|unix.O_NOFOLLOW, 0)
}

// walkTree walks through everything at and below a path. A tree that cannot be walked through, at
// any time, because of what it has, is KindExhausted.
func (w *walker) walkTree(path string) error {
	root, err := statChild(nil, path)
	if err != nil {
		return err
	}
	w.mount = root.stat.Mnt_id
	defer w.close()
	if err := w.enter(root); err != nil {
		return err
	}
	for len(w.levels) > 0 {
		if err := w.step(); err != nil {
			return err
		}
	}
	return nil
}

func (w *walker) close() {
	for i := range w.levels {
		w.levels[i].dir.Close() // does nothing if it is nil
	}
}

// statChild returns the entry of a name in a directory.
func statChild(parent *os.File, name string) (entry, error) {
	f, at := entry{parent: parent, name: name}, unix.AT_FDCWD
	if parent != nil {
		at = int(parent.Fd())
	}
	err := unix.Statx(at, name, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT,
		unix.STATX_BASIC_STATS|unix.STATX_MNT_ID, &f.stat)
	if err != nil {
		return f, &os.PathError{Op: "statx", Path: f.path(), Err: err}
	}
	return f, nil
}

// statOpen returns the attributes of an open file.
func statOpen(file *os.File, stat *unix.Statx_t) error {
	err := unix.Statx(int(file.Fd()), "", unix.AT_EMPTY_PATH,
		unix.STATX_BASIC_STATS|unix.STATX_MNT_ID, stat)
	if err != nil {
		return &os.PathError{Op: "statx", Path: file.Name(), Err: err}
	}
	return nil
}

// pathBytesMax bounds the paths in errors. A path is never opened, so the names of directories that
// are too deep are left out.
const pathBytesMax = 2048

// omitted stands for the rest of a path that is too long. No other path has an empty name in it.
const omitted = "//..."

// joinPath returns the path of a name in a directory, for errors.
func joinPath(dir, name string) string {
	switch {
	case isCut(dir):
		return dir
	case len(dir)+len(name) < pathBytesMax:
		return dir + "/" + name
	}
	return dir + omitted
}

// isCut reports whether names were left out of a path.
func isCut(path string) bool { return strings.HasSuffix(path, omitted) }

// step visits the next name of the current directory, or leaves the directory after the last one.
func (w *walker) step() error {
	l := &w.levels[len(w.levels)-1]
	if len(l.names) == 0 && l.ended {
		return w.leave()
	}
	if len(l.names) == 0 {
		return w.readNames(l)
	}
	name := w.nextName(l)
	if err := w.ctx.Err(); err != nil {
		return fmt.Errorf("gave up at %s: %w", joinPath(l.dir.Name(), name), err)
	}
	if w.mountNames[name] && w.mounts[joinPath(l.dir.Name(), name)] {
		return nil
	}
	child, err := statChild(l.dir, name)
	if isReplaced(err) || err == nil && child.stat.Mnt_id != w.mount {
		return nil
	}
	if err != nil {
		return err
	}
	return w.enter(child)
}

// nextName takes the next name off a directory. Its text is not held any more; the array of all
// names is until the last one is taken.
func (w *walker) nextName(l *level) string {
	name := l.names[0]
	l.names[0] = "" // otherwise the array keeps the text in memory
	l.names = l.names[1:]
	w.held -= len(name)
	if len(l.names) == 0 {
		w.held -= l.array
		l.names, l.array = nil, 0
	}
	w.looked++
	return name
}

// enter visits a file, or goes down to a directory.
func (w *walker) enter(f entry) error {
	if f.stat.Mode&unix.S_IFMT != unix.S_IFDIR {
		return w.visit(f)
	}
	dir, err := f.open(unix.O_RDONLY | unix.O_DIRECTORY)
	if isReplaced(err) && f.parent != nil {
		return w.visit(f)
	}
	if err != nil {
		return err
	}
	l := level{dir: dir, name: f.name, path: dir.Name(), id: idOf(&f.stat),
		bytes: levelBytes + len(f.name)}
	if !isCut(l.path) { // a path that was cut is that of the level above
		l.bytes += len(l.path)
	}
	w.levels = append(w.levels, l)
	w.open++
	if err := w.hold(l.bytes); err != nil {
		return err
	}
	if w.open <= openMax {
		return nil
	}
	return w.closeOldest()
}

// closeOldest closes the uppermost open directory. Its remaining names are read before, because a
// directory that is opened again is read from its beginning.
func (w *walker) closeOldest() error {
	l := &w.levels[len(w.levels)-w.open]
	for !l.ended {
		if err := w.ctx.Err(); err != nil {
			return fmt.Errorf("gave up at %s: %w", l.path, err)
		}
		if err := w.readNames(l); err != nil {
			return err
		}
	}
	err := l.dir.Close()
	l.dir = nil
	w.open--
	return err
}

// leave goes back up to the parent of the current directory, and visits the directory.
func (w *walker) leave() error {
	last := len(w.levels) - 1
	l := w.levels[last]
	f := entry{name: l.name}
	if last > 0 {
		parent := &w.levels[last-1]
		if err := w.reopen(last-1, l.dir); err != nil {
			return err
		}
		f.parent = parent.dir
	}
	err := statOpen(l.dir, &f.stat)
	w.levels = w.levels[:last]
	w.open--
	w.held -= l.bytes
	if err == nil {
		err = w.visit(f)
	}
	return errors.Join(err, l.dir.Close())
}

// reopen opens the directory of a level as the parent of the level below it. A directory that was
// moved meanwhile has another parent, which may be outside the tree, and one that was removed has
// none: the walk cannot go on from there.
func (w *walker) reopen(at int, below *os.File) error {
	l := &w.levels[at]
	if l.dir != nil {
		return nil
	}
	fd, err := unix.Openat(int(below.Fd()), "..",
		unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if isReplaced(err) {
		return world.Errorf(world.KindExhausted, "", "%s was removed meanwhile", below.Name())
	}
	if err != nil {
		return &os.PathError{Op: "open", Path: l.path, Err: err}
	}
	l.dir = os.NewFile(uintptr(fd), l.path)
	w.open++
	var stat unix.Statx_t
	if err := statOpen(l.dir, &stat); err != nil {
		return err
	}
	if idOf(&stat) != l.id || stat.Mnt_id != w.mount {
		return world.Errorf(world.KindExhausted, "", "%s was moved to another directory meanwhile",
			below.Name())
	}
	return nil
}

// readNames reads more names of a directory.
func (w *walker) readNames(l *level) error {
	names, err := l.dir.Readdirnames(1024)
	if errors.Is(err, io.EOF) || isReplaced(err) { // a directory that was removed has no names left
		l.ended = true
		return nil
	}
	if err != nil {
		return err
	}
	l.names = append(l.names, names...)
	size := nameBytes * len(names)
	l.array += size
	for _, name := range names {
		size += len(name)
	}
	return w.hold(size)
}

// hold adds to the memory of the walk.
func (w *walker) hold(size int) error {
	if w.held += size; w.held > heldBytesMax {
		return world.Errorf(world.KindExhausted, "", "%s has more names at a depth of %d "+
			"directories than %d bytes hold", w.levels[0].name, len(w.levels), heldBytesMax)
	}
	return nil
}

// forEachName calls do with every name in a directory, in batches, until a call fails.
func forEachName(dir *os.File, do func(name string) error) error {
	for {
		names, err := dir.Readdirnames(1024)
		for _, name := range names {
			if err := do(name); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// isReplaced reports whether an error means that a name no longer exists or has another type.
func isReplaced(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) ||
		errors.Is(err, unix.ELOOP) || errors.Is(err, unix.EXDEV)
}
