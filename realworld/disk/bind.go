package disk

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"seedlet.dev/world"
)

// bindSubPath bind-mounts a path within a volume at a target. The containers that write into the
// volume may try to redirect the path out of the volume, even during the operation
// (CVE-2017-1002101, CVE-2021-25741). So the kernel resolves the path once, beneath the volume, and
// the result is mounted by its descriptor and not by a name.
func bindSubPath(ctx context.Context, m *world.BindSubPath) error {
	names := strings.Split(filepath.Clean(m.SubPath), "/")
	if filepath.IsAbs(m.SubPath) || slices.Contains(strings.Split(m.SubPath, "/"), "..") {
		return escapeError(m.SubPath)
	}
	root, err := os.OpenFile(m.Root, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer root.Close()
	source, err := openSource(root, names)
	if err != nil {
		return err
	}
	defer source.Close()
	if err := ctx.Err(); err != nil {
		return err // the call may have hung, and the pod may be gone by now
	}
	mounted, cleared, err := clearTarget(m.Target, source)
	if err != nil || mounted {
		return err
	}
	err = makeTarget(m.Target, source)
	if err == nil {
		err = mount(procPath(source), m.Target, "", unix.MS_BIND, "")
	}
	if err != nil && cleared {
		return partialFailure(err)
	}
	return err
}

func escapeError(subPath string) error {
	return world.Errorf(world.KindInvalid, "", "%q does not lead into the volume", subPath)
}

// modeBits are the bits of a mode that a new directory has from the root of its volume.
const modeBits = fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky

// openSource opens a path within a volume, and creates its missing directories. They get the mode
// of the volume's root: a process that may write to the volume may write to its sub-paths.
func openSource(root *os.File, names []string) (*os.File, error) {
	source, err := openBeneath(root, names)
	if !errors.Is(err, unix.ENOENT) {
		return source, err
	}
	info, err := root.Stat()
	if err != nil {
		return nil, err
	}
	mode := info.Mode() & modeBits
	current, err := openBeneath(root, nil)
	if err != nil {
		return nil, err
	}
	for i := range names {
		next, err := openBeneath(root, names[:i+1])
		if errors.Is(err, unix.ENOENT) {
			next, err = makeBeneath(root, current, names[:i+1], mode)
		}
		current.Close()
		if err != nil {
			return nil, err
		}
		current = next
	}
	return current, nil
}

// openBeneath opens a path below a directory as O_PATH, without reading it. Links are followed
// unless they lead out of the directory.
func openBeneath(root *os.File, names []string) (*os.File, error) {
	return openInRoot(root, filepath.Join(append([]string{"."}, names...)...), unix.RESOLVE_BENEATH)
}

// openInRoot opens a path below a directory as O_PATH, without reading it. resolve is
// RESOLVE_BENEATH, with which a link out of the directory fails, or RESOLVE_IN_ROOT, with which the
// directory is the root for all links.
func openInRoot(root *os.File, path string, resolve uint64) (*os.File, error) {
	how := &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_CLOEXEC,
		Resolve: resolve | unix.RESOLVE_NO_MAGICLINKS,
	}
	for range passesMax {
		fd, err := unix.Openat2(int(root.Fd()), path, how)
		switch {
		case err == nil:
			return os.NewFile(uintptr(fd), filepath.Join(root.Name(), path)), nil
		case errors.Is(err, unix.EAGAIN): // a concurrent rename
		case errors.Is(err, unix.EXDEV):
			return nil, escapeError(path)
		case errors.Is(err, unix.ENOSYS):
			return nil, world.Errorf(world.KindRefused, "", "sub-paths need Linux 5.6")
		default:
			return nil, &os.PathError{Op: "open", Path: filepath.Join(root.Name(), path), Err: err}
		}
	}
	return nil, world.Errorf(world.KindExhausted, "", "%s does not keep still", path)
}

// makeBeneath creates a directory in an open one, and opens it. If a dangling link has its name, it
// fails.
func makeBeneath(root, parent *os.File, names []string, mode fs.FileMode) (*os.File, error) {
	name := names[len(names)-1]
	err := unix.Mkdirat(int(parent.Fd()), name, uint32(mode.Perm()))
	if errors.Is(err, unix.EEXIST) {
		next, err := openBeneath(root, names) // created concurrently
		if errors.Is(err, unix.ENOENT) {
			return nil, escapeError(filepath.Join(names...))
		}
		return next, err
	}
	if err != nil {
		return nil, &os.PathError{Op: "mkdir", Path: filepath.Join(parent.Name(), name), Err: err}
	}
	dir, err := openChild(parent, name, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, partialFailure(err)
	}
	// The umask has changed the mode, and mkdir ignores the other bits.
	if err := dir.Chmod(mode); err != nil {
		return nil, partialFailure(errors.Join(err, dir.Close()))
	}
	return dir, nil
}

// clearTarget removes a conflicting object from a mount target: another mount, such as of a file
// that has been replaced since, or a mount point of the other type. It reports whether the source
// itself is mounted there already.
func clearTarget(path string, source *os.File) (mounted, cleared bool, err error) {
	existing, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, false, nil
	}
	if err != nil {
		return false, false, err
	}
	desired, err := source.Stat()
	if err != nil {
		return false, false, err
	}
	if mounted, err = mountinfo.Mounted(path); err != nil {
		return false, false, err
	}
	if mounted && os.SameFile(existing, desired) {
		return true, false, nil
	}
	if mounted {
		if err := unmount(path); err != nil {
			return false, false, err
		}
		if existing, err = os.Stat(path); err != nil {
			return false, false, partialFailure(err)
		}
	}
	if existing.IsDir() == desired.IsDir() {
		return false, mounted, nil
	}
	if existing.Mode().IsRegular() && existing.Size() == 0 || existing.IsDir() {
		err = os.Remove(path) // fails for a directory with content
	} else {
		err = world.Errorf(world.KindInvalid, "", "%s is in the way", path)
	}
	if err != nil && mounted {
		err = partialFailure(err)
	}
	return false, true, err
}

// makeTarget creates a mount point for a source.
func makeTarget(path string, source *os.File) error {
	info, err := source.Stat()
	if err != nil {
		return err
	}
	if info.IsDir() {
		return makeDir(&world.MakeDir{Path: path, Mode: 0o750})
	}
	if err := makeDir(&world.MakeDir{Path: filepath.Dir(path), Mode: 0o750}); err != nil {
		return err
	}
	return makeFile(&world.MakeFile{Path: path, Mode: 0o640})
}
