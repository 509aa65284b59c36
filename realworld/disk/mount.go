package disk

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"seedlet.dev/world"
)

// mountMemory mounts a tmpfs or a hugetlbfs.
func mountMemory(m *world.MountMemory) error {
	if err := makeDir(&world.MakeDir{Path: m.Path, Mode: 0o755}); err != nil {
		return err
	}
	mounted, err := mountinfo.Mounted(m.Path)
	if err != nil {
		return err
	}
	if mounted {
		return isMemory(m.Path)
	}
	options := fmt.Sprintf("mode=%o", fs.FileMode(m.Mode).Perm())
	if m.BytesMax > 0 {
		options += fmt.Sprintf(",size=%d", m.BytesMax)
	}
	if m.HugePages != "" {
		options += ",pagesize=" + m.HugePages
		return mount("hugetlbfs", m.Path, "hugetlbfs", 0, options)
	}
	// Secrets do not belong on a disk that memory is swapped to. Kernels before 6.4 cannot help it.
	err = mount("tmpfs", m.Path, "tmpfs", 0, options+",noswap")
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EPERM) {
		err = mount("tmpfs", m.Path, "tmpfs", 0, options)
	}
	return err
}

func mount(source, target, kind string, flags uintptr, options string) error {
	if err := unix.Mount(source, target, kind, flags, options); err != nil {
		return &os.PathError{Op: "mount", Path: target, Err: err}
	}
	return nil
}

// isMemory fails if what is mounted at a path is not a file system in memory.
func isMemory(path string) error {
	var stat unix.Statfs_t
	if err := unix.Statfs(path, &stat); err != nil {
		return &os.PathError{Op: "statfs", Path: path, Err: err}
	}
	if stat.Type != unix.TMPFS_MAGIC && stat.Type != unix.HUGETLBFS_MAGIC {
		return world.Errorf(world.KindExists, "", "something else is mounted at %s", path)
	}
	return nil
}

// unmount unmounts everything at or below a path, the deepest and the latest first. It looks again
// after each pass, as what was mounted over another mount hides it.
func unmount(path string) error {
	dir, err := filepath.EvalSymlinks(filepath.Dir(path))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	path = filepath.Join(dir, filepath.Base(path))
	if path == "/" {
		return world.Errorf(world.KindRefused, "", "/ is not unmounted")
	}
	unmounted := 0
	for range passesMax {
		mounts, err := mountsAt(path)
		if err != nil || len(mounts) == 0 {
			return err
		}
		for _, m := range mounts {
			err := unix.Unmount(m.Mountpoint, unix.UMOUNT_NOFOLLOW)
			switch {
			case err == nil:
				unmounted++
			case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOENT):
				// Gone since, or hidden: the next pass finds out.
			case unmounted > 0:
				return halfway(unmountFailed(m.Mountpoint, err))
			default:
				return unmountFailed(m.Mountpoint, err)
			}
		}
	}
	return halfway(fmt.Errorf("something is mounted at or below %s again and again", path))
}

func unmountFailed(path string, err error) error {
	if errors.Is(err, unix.EBUSY) {
		return world.Errorf(world.KindExhausted, "", "%s is in use", path)
	}
	return &os.PathError{Op: "unmount", Path: path, Err: err}
}

// mountsAt finds what is mounted at a path or below it, in an order in which it can be unmounted.
// The path has no links.
func mountsAt(path string) ([]*mountinfo.Info, error) {
	mounts, err := mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) {
		return m.Mountpoint != path && !strings.HasPrefix(m.Mountpoint, path+"/"), false
	})
	if err != nil {
		return nil, fmt.Errorf("looking for mounts: %w", err)
	}
	slices.Reverse(mounts) // the kernel lists them as they were mounted
	slices.SortStableFunc(mounts, func(a, b *mountinfo.Info) int {
		return cmp.Compare(len(b.Mountpoint), len(a.Mountpoint))
	})
	return mounts, nil
}
