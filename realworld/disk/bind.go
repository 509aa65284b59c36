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

// bindSubPath mounts what is at a path within a volume elsewhere. The containers that write into
// the volume may try to lead it out, also while it is looked at (CVE-2017-1002101, CVE-2021-25741).
// So the kernel resolves the path once, beneath the volume, and what it has found is mounted, by
// its descriptor and not by any name.
func bindSubPath(ctx context.Context, m *world.BindSubPath) error {
	names := strings.Split(filepath.Clean(m.SubPath), "/")
	if filepath.IsAbs(m.SubPath) || slices.Contains(strings.Split(m.SubPath, "/"), "..") {
		return leadsOut(m.SubPath)
	}
	root, err := os.OpenFile(m.Root, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer root.Close()
	source, err := openSource(root, names, fs.FileMode(m.Mode).Perm())
	if err != nil {
		return err
	}
	defer source.Close()
	if err := ctx.Err(); err != nil {
		return err // the volume had hung: by now the pod may be gone for which this is
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
		return halfway(err)
	}
	return err
}

func leadsOut(subPath string) error {
	return world.Errorf(world.KindInvalid, "", "%q does not lead into the volume", subPath)
}

// openSource opens what is at a path within a volume, and makes the directories that are missing.
func openSource(root *os.File, names []string, mode fs.FileMode) (*os.File, error) {
	source, err := openBeneath(root, names)
	if !errors.Is(err, unix.ENOENT) {
		return source, err
	}
	at, err := openBeneath(root, nil)
	if err != nil {
		return nil, err
	}
	for i := range names {
		next, err := openBeneath(root, names[:i+1])
		if errors.Is(err, unix.ENOENT) {
			next, err = makeBeneath(root, at, names[:i+1], mode)
		}
		at.Close()
		if err != nil {
			return nil, err
		}
		at = next
	}
	return at, nil
}

// openBeneath opens what is at a path below a directory, as a place and not to read it. Links
// are followed as long as they do not lead out of the directory.
func openBeneath(root *os.File, names []string) (*os.File, error) {
	path := filepath.Join(append([]string{"."}, names...)...)
	how := &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS,
	}
	for range passesMax {
		fd, err := unix.Openat2(int(root.Fd()), path, how)
		switch {
		case err == nil:
			return os.NewFile(uintptr(fd), filepath.Join(root.Name(), path)), nil
		case errors.Is(err, unix.EAGAIN): // something was renamed meanwhile
		case errors.Is(err, unix.EXDEV):
			return nil, leadsOut(path)
		case errors.Is(err, unix.ENOSYS):
			return nil, world.Errorf(world.KindRefused, "", "sub-paths need Linux 5.6")
		default:
			return nil, &os.PathError{Op: "open", Path: filepath.Join(root.Name(), path), Err: err}
		}
	}
	return nil, world.Errorf(world.KindExhausted, "", "%s does not keep still", path)
}

// makeBeneath makes a directory in the one that is open, and opens it. If its name is that of a
// link, which leads nowhere, it is not made.
func makeBeneath(root, parent *os.File, names []string, mode fs.FileMode) (*os.File, error) {
	name := names[len(names)-1]
	err := unix.Mkdirat(int(parent.Fd()), name, uint32(mode))
	if errors.Is(err, unix.EEXIST) {
		next, err := openBeneath(root, names) // another may have made it
		if errors.Is(err, unix.ENOENT) {
			return nil, leadsOut(filepath.Join(names...))
		}
		return next, err
	}
	if err != nil {
		return nil, &os.PathError{Op: "mkdir", Path: filepath.Join(parent.Name(), name), Err: err}
	}
	dir, err := openIn(parent, name, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, halfway(err)
	}
	// The umask has changed the mode; the volume's group, if it has one, is to be kept.
	info, err := dir.Stat()
	if err == nil {
		err = dir.Chmod(mode | info.Mode()&fs.ModeSetgid)
	}
	if err != nil {
		return nil, halfway(errors.Join(err, dir.Close()))
	}
	return dir, nil
}

// clearTarget takes away what is where a source is to be mounted, if it is in the way: another
// mount, as of a file that has been replaced since, or a mount point of the other kind. It reports
// whether the source itself is mounted there already.
func clearTarget(path string, source *os.File) (mounted, cleared bool, err error) {
	here, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, false, nil
	}
	if err != nil {
		return false, false, err
	}
	wanted, err := source.Stat()
	if err != nil {
		return false, false, err
	}
	if mounted, err = mountinfo.Mounted(path); err != nil {
		return false, false, err
	}
	if mounted && os.SameFile(here, wanted) {
		return true, false, nil
	}
	if mounted {
		if err := unmount(path); err != nil {
			return false, false, err
		}
		if here, err = os.Stat(path); err != nil {
			return false, false, halfway(err)
		}
	}
	if here.IsDir() == wanted.IsDir() {
		return false, mounted, nil
	}
	if here.Mode().IsRegular() && here.Size() == 0 || here.IsDir() {
		err = os.Remove(path) // a directory that is not empty stays
	} else {
		err = world.Errorf(world.KindInvalid, "", "%s is in the way", path)
	}
	if err != nil && mounted {
		err = halfway(err)
	}
	return false, true, err
}

// makeTarget makes a mount point for a source.
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
