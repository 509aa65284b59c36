package disk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"seedlet.dev/world"
)

// depthMax bounds how deep a tree may be: a directory is held open for each level, and pods
// choose how deep their volumes are.
const depthMax = 256

// passesMax bounds how often a directory is emptied again because somebody still writes into it,
// or because its file system skips names when others are removed while it is read.
const passesMax = 8

// removeTree removes a file or a tree. What is removed may belong to a pod, and may be changed
// by it meanwhile, so no step trusts a path: each directory is opened relative to its parent by
// a call that refuses links and mounts, and names are unlinked relative to that.
//
// A mount in the tree is looked for first, so that it is found before anything has been removed
// and can be named: removing a volume that is still mounted would destroy data that is not the
// pod's alone.
func removeTree(ctx context.Context, path string) error {
	dir, err := filepath.EvalSymlinks(filepath.Dir(path))
	if errors.Is(err, os.ErrNotExist) {
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
	if err := r.remove(parent, filepath.Base(path), 0); err != nil {
		if r.removed == 0 {
			return err
		}
		if errors.Is(err, context.DeadlineExceeded) {
			return err // says as much: the outcome is unknown
		}
		return halfway(err)
	}
	return nil
}

// refuseMounts fails if anything is mounted at a path or below it, bind mounts included.
func refuseMounts(path string) error {
	mounts, err := mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) {
		below := m.Mountpoint == path || strings.HasPrefix(m.Mountpoint, path+"/")
		return !below, below
	})
	if err != nil {
		return fmt.Errorf("looking for mounts: %w", err)
	}
	if len(mounts) > 0 {
		return world.Errorf(world.KindRefused, "", "%s is mounted at %s",
			mounts[0].Source, mounts[0].Mountpoint)
	}
	return nil
}

// remover removes one tree.
type remover struct {
	ctx     context.Context
	removed int // names so far
}

// remove removes a name in a directory, with everything below it.
func (r *remover) remove(parent *os.File, name string, depth int) error {
	if err := r.ctx.Err(); err != nil {
		// Going on could remove what the core has made anew at the same path since.
		return fmt.Errorf("gave up at %s after removing %d names: %w", name, r.removed, err)
	}
	err := r.unlink(parent, name, 0)
	if !errors.Is(err, unix.EISDIR) {
		return err
	}
	for range passesMax {
		if err := r.empty(parent, name, depth); err != nil {
			return err
		}
		err = r.unlink(parent, name, unix.AT_REMOVEDIR)
		if !errors.Is(err, unix.ENOTEMPTY) {
			return err
		}
	}
	return err
}

// unlink removes one name, which may be gone already.
func (r *remover) unlink(parent *os.File, name string, flags int) error {
	err := unix.Unlinkat(int(parent.Fd()), name, flags)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return &os.PathError{Op: "remove", Path: filepath.Join(parent.Name(), name), Err: err}
	}
	r.removed++
	return nil
}

// empty removes everything in a directory. A directory that is gone is empty.
func (r *remover) empty(parent *os.File, name string, depth int) error {
	if depth == depthMax {
		return world.Errorf(world.KindExhausted, "", "%s is more than %d directories deep",
			filepath.Join(parent.Name(), name), depthMax)
	}
	dir, err := openBelow(parent, name)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	defer dir.Close()
	return eachName(dir, func(child string) error { return r.remove(dir, child, depth+1) })
}

// openBelow opens a directory by its name in another. It fails for a link, and for a mount that
// was made after refuseMounts has looked.
func openBelow(parent *os.File, name string) (*os.File, error) {
	dir, err := openIn(parent, name, unix.O_RDONLY|unix.O_DIRECTORY)
	if errors.Is(err, unix.EXDEV) {
		return nil, world.Errorf(world.KindRefused, "", "something is mounted at %s",
			filepath.Join(parent.Name(), name))
	}
	return dir, err
}

// openIn opens a name in a directory. It follows no link and enters no other mount (EXDEV).
func openIn(parent *os.File, name string, flags int) (*os.File, error) {
	path := filepath.Join(parent.Name(), name)
	flags |= unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err := unix.Openat2(int(parent.Fd()), name, &unix.OpenHow{
		Flags:   uint64(flags),
		Resolve: unix.RESOLVE_NO_XDEV | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_BENEATH,
	})
	if errors.Is(err, unix.ENOSYS) { // before Linux 5.6: refuseMounts has to be enough
		fd, err = unix.Openat(int(parent.Fd()), name, flags, 0)
	}
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}
