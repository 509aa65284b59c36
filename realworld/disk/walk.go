package disk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"seedlet.dev/world"
)

// walk goes through a tree that a pod may change meanwhile: each directory is opened relative to
// its parent, links are not followed, and other mounts not entered. What vanishes, or is something
// else when it is looked at again, is left out.
type walk struct {
	ctx   context.Context
	mount uint64 // of the root
	// visit is called for everything in the tree, for a directory after all that is in it.
	visit func(found) error
}

// found is something in a tree.
type found struct {
	parent *os.File // nil: name is the path of the root
	name   string
	stat   unix.Statx_t
}

func (f found) path() string {
	if f.parent == nil {
		return f.name
	}
	return filepath.Join(f.parent.Name(), f.name)
}

// open opens what was found, or what has its name by now.
func (f found) open(flags int) (*os.File, error) {
	if f.parent != nil {
		return openIn(f.parent, f.name, flags)
	}
	return os.OpenFile(f.name, flags|unix.O_NOFOLLOW, 0)
}

// tree walks through everything at and below a path.
func (w *walk) tree(path string) error {
	root, err := look(nil, path)
	if err != nil {
		return err
	}
	w.mount = root.stat.Mnt_id
	return w.from(root, 0)
}

// look finds what has a name in a directory.
func look(parent *os.File, name string) (found, error) {
	f, at := found{parent: parent, name: name}, unix.AT_FDCWD
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

func (w *walk) from(f found, depth int) error {
	if err := w.ctx.Err(); err != nil {
		return fmt.Errorf("gave up at %s: %w", f.path(), err)
	}
	if f.stat.Mode&unix.S_IFMT == unix.S_IFDIR {
		if err := w.below(f, depth); err != nil {
			return err
		}
	}
	return w.visit(f)
}

// below walks through what is in a directory.
func (w *walk) below(f found, depth int) error {
	if depth == depthMax {
		return world.Errorf(world.KindExhausted, "", "%s is more than %d directories deep",
			f.path(), depthMax)
	}
	dir, err := f.open(unix.O_RDONLY | unix.O_DIRECTORY)
	if changed(err) && f.parent != nil {
		return nil
	}
	if err != nil {
		return err
	}
	defer dir.Close()
	return eachName(dir, func(name string) error {
		child, err := look(dir, name)
		if changed(err) || err == nil && child.stat.Mnt_id != w.mount {
			return nil
		}
		if err != nil {
			return err
		}
		return w.from(child, depth+1)
	})
}

// eachName calls do with every name in a directory, a share of them at a time, until one fails.
func eachName(dir *os.File, do func(name string) error) error {
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

// changed reports whether an error says that a name is not, or not any more, of what it was.
func changed(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) ||
		errors.Is(err, unix.ELOOP) || errors.Is(err, unix.EXDEV)
}
