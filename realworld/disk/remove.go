package disk

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"seedlet.dev/world"
)

// passesMax bounds how often a directory is emptied again, because a process still writes into it
// or because its file system skips names when others are removed during a listing.
const passesMax = 8

// removeTree removes a file or a tree. The tree may belong to a pod that changes it concurrently,
// so no step trusts a path: each directory is opened relative to its parent by a call that refuses
// links and mounts, and names are unlinked relative to the directory. A tree of any depth is
// removed: a directory that is deeper than openMax is moved up first.
//
// A name that cannot be removed does not keep the others: the first error is returned at the end.
//
// Mounts in the tree are looked up first, so that a mount is reported, by its name, before anything
// is removed: removing a volume that is still mounted would destroy data that is not only the
// pod's.
func removeTree(ctx context.Context, path string) error {
	dir, err := filepath.EvalSymlinks(filepath.Dir(path))
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENAMETOOLONG) && hasTooLongName(path) {
		return nil
	}
	if err != nil {
		return err
	}
	path = filepath.Join(dir, filepath.Base(path))
	if err := refuseMounts(path); err != nil {
		return err
	}
	parent, err := os.Open(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer parent.Close()
	r := remover{ctx: ctx}
	err = r.remove(parent, filepath.Base(path))
	if err == nil {
		err = r.firstErr
	}
	// After a deadline the kind already means an unknown outcome.
	if err == nil || r.changed == 0 || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return partialFailure(err)
}

// hasTooLongName reports whether an element of a path is longer than any name. A path of shorter
// elements may be too long for a call and exist nevertheless.
func hasTooLongName(path string) bool {
	return slices.ContainsFunc(strings.Split(path, "/"), func(name string) bool {
		return len(name) > world.NameBytesMax
	})
}

// refuseMounts returns an error if anything is mounted at or below a path, including bind mounts.
func refuseMounts(path string) error {
	if points, known := mountPoints(path); known && len(points) == 0 {
		return nil
	}
	mounts, err := mountTable(path)
	if err != nil {
		return err
	}
	if len(mounts) > 0 {
		return world.Errorf(world.KindRefused, "", "%s is mounted at %s",
			mounts[0].Source, mounts[0].Mountpoint)
	}
	return nil
}

// remover removes one tree.
type remover struct {
	ctx  context.Context
	dirs []*os.File // the open directories of the tree, from its root

	changed  int // number of names removed or moved
	moved    int // number of directories moved up
	failed   int // number of failures
	firstErr error
}

// remove removes a name in a directory, with everything below it. It returns an error only if the
// whole removal has to end; other errors are recorded.
func (r *remover) remove(parent *os.File, name string) error {
	if err := r.ctx.Err(); err != nil {
		// Continuing could remove an object that the core has created at the same path since.
		return fmt.Errorf("gave up at %s after %d changes: %w", name, r.changed, err)
	}
	err := r.unlink(parent, name, 0)
	if !errors.Is(err, unix.EISDIR) {
		r.record(err)
		return nil
	}
	if len(r.dirs) == openMax {
		r.record(r.moveUp(parent, name))
		return nil
	}
	for passes := 0; passes < passesMax; {
		moved, failed := r.moved, r.failed
		if err := r.emptyDir(parent, name); err != nil {
			return err
		}
		err = r.unlink(parent, name, unix.AT_REMOVEDIR)
		isMovedInto := r.moved > moved
		if !errors.Is(err, unix.ENOTEMPTY) || r.failed > failed && !isMovedInto {
			break
		}
		if !isMovedInto { // otherwise the next pass has more to remove
			passes++
		}
	}
	r.record(err)
	return nil
}

// record records an error, if there is one.
func (r *remover) record(err error) {
	if err == nil {
		return
	}
	r.failed++
	if r.firstErr == nil {
		r.firstErr = err
	}
}

// unlink removes one name, which may be gone already, or be longer than any name can be.
func (r *remover) unlink(parent *os.File, name string, flags int) error {
	err := unix.Unlinkat(int(parent.Fd()), name, flags)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENAMETOOLONG) {
		return nil
	}
	if err != nil {
		return &os.PathError{Op: "remove", Path: joinPath(parent.Name(), name), Err: err}
	}
	r.changed++
	return nil
}

// emptyDir removes everything in a directory. It succeeds if the directory does not exist.
func (r *remover) emptyDir(parent *os.File, name string) error {
	dir, err := openChildDir(parent, name)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		r.record(err)
		return nil
	}
	defer dir.Close()
	r.dirs = append(r.dirs, dir)
	defer func() { r.dirs = r.dirs[:len(r.dirs)-1] }()
	var stop error
	err = forEachName(dir, func(child string) error {
		stop = r.remove(dir, child)
		return stop
	})
	if stop == nil {
		r.record(err)
	}
	return stop
}

// moveUp moves a directory to the uppermost directory of the tree that it can be moved to, whose
// next pass removes it. That is the root of the tree, unless a part of the tree has its own project
// quota: a project's files are not moved out of its directory (rename(2), EXDEV). Neither a link
// that has replaced the directory is followed, nor a mount point moved.
func (r *remover) moveUp(parent *os.File, name string) error {
	var err error
	for _, target := range r.dirs[:len(r.dirs)-1] {
		err = unix.Renameat(int(parent.Fd()), name,
			int(target.Fd()), fmt.Sprintf(".removed-%016x", rand.Uint64()))
		if !errors.Is(err, unix.EXDEV) {
			break
		}
	}
	switch {
	case err == nil:
		r.moved++
		r.changed++
		return nil
	case errors.Is(err, unix.ENOENT):
		return nil
	case errors.Is(err, unix.EBUSY):
		return mountedError(parent, name)
	}
	return &os.PathError{Op: "move up", Path: joinPath(parent.Name(), name), Err: err}
}

// openChildDir opens a directory by its name in another. It fails for a link, and for a mount that
// was created after refuseMounts.
func openChildDir(parent *os.File, name string) (*os.File, error) {
	dir, err := openChild(parent, name, unix.O_RDONLY|unix.O_DIRECTORY)
	if errors.Is(err, unix.EXDEV) {
		return nil, mountedError(parent, name)
	}
	return dir, err
}

func mountedError(parent *os.File, name string) error {
	return world.Errorf(world.KindRefused, "", "something is mounted at %s",
		joinPath(parent.Name(), name))
}
