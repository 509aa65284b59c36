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
	"time"

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
		return checkInMemory(m.Path)
	}
	options := fmt.Sprintf("mode=%o", m.Mode&0o1777)
	if m.BytesMax > 0 {
		options += fmt.Sprintf(",size=%d", m.BytesMax)
	}
	if m.HugePages != "" {
		options += ",pagesize=" + m.HugePages
		return mount("hugetlbfs", m.Path, "hugetlbfs", 0, options)
	}
	// Secrets must not be swapped to a disk. Kernels before 6.4 do not support noswap.
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

// checkInMemory returns an error unless the file system at a path is in memory.
func checkInMemory(path string) error {
	var stat unix.Statfs_t
	if err := unix.Statfs(path, &stat); err != nil {
		return &os.PathError{Op: "statfs", Path: path, Err: err}
	}
	if stat.Type != unix.TMPFS_MAGIC && stat.Type != unix.HUGETLBFS_MAGIC {
		return world.Errorf(world.KindExists, "", "something else is mounted at %s", path)
	}
	return nil
}

// unmount unmounts everything at or below a path, the deepest and the latest first. It lists the
// mounts again after each pass, because a mount over another one hides it.
func unmount(path string) error {
	path, err := inMountTable(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
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
			err := unmountOne(m)
			switch {
			case err == nil:
				unmounted++
			case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOENT):
				// Unmounted meanwhile, or hidden by another mount: the next pass decides.
			case unmounted > 0:
				return partialFailure(unmountError(m.Mountpoint, err))
			default:
				return unmountError(m.Mountpoint, err)
			}
		}
	}
	return partialFailure(fmt.Errorf("something is mounted at or below %s again and again", path))
}

// forceAfter is how long the server of a network file system may take before it is unmounted by
// force: the kubelet's time for NFS. Tests replace it, and unmountPath.
var (
	forceAfter  = time.Minute
	unmountPath = unix.Unmount
)

// unmountOne unmounts one mount. That of a network file system may wait for its server; unmounting
// it by force ends that.
func unmountOne(m *mountinfo.Info) error {
	if !strings.HasPrefix(m.FSType, "nfs") {
		return unmountPath(m.Mountpoint, unix.UMOUNT_NOFOLLOW)
	}
	ended := make(chan error, 1)
	go func() { ended <- unmountPath(m.Mountpoint, unix.UMOUNT_NOFOLLOW) }()
	select {
	case err := <-ended:
		return err
	case <-time.After(forceAfter):
	}
	if unmountPath(m.Mountpoint, unix.UMOUNT_NOFOLLOW|unix.MNT_FORCE) == nil {
		return nil
	}
	return <-ended
}

// inMountTable returns a path as the mount table has it: the links in its parent are resolved. The
// path itself is not looked at, because a file system that is mounted there may hang.
func inMountTable(path string) (string, error) {
	dir, err := filepath.EvalSymlinks(filepath.Dir(path))
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, filepath.Base(path)), nil
}

func unmountError(path string, err error) error {
	if errors.Is(err, unix.EBUSY) {
		return world.Errorf(world.KindExhausted, "", "%s is in use", path)
	}
	return &os.PathError{Op: "unmount", Path: path, Err: err}
}

// mountsAt lists the mounts at or below a path in an order in which they can be unmounted. The path
// has no links.
func mountsAt(path string) ([]*mountinfo.Info, error) {
	mounts, err := mountTable(path)
	if err != nil {
		return nil, err
	}
	slices.Reverse(mounts) // the kernel lists them in the order in which they were mounted
	slices.SortStableFunc(mounts, func(a, b *mountinfo.Info) int {
		return cmp.Compare(len(b.Mountpoint), len(a.Mountpoint))
	})
	return mounts, nil
}

// mountTable returns the entries of the mount table at or below a path without links, in the order
// of the table.
func mountTable(path string) ([]*mountinfo.Info, error) {
	below := strings.TrimSuffix(path, "/") + "/"
	mounts, err := mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) {
		return m.Mountpoint != path && !strings.HasPrefix(m.Mountpoint, below), false
	})
	if err != nil {
		return nil, fmt.Errorf("looking for mounts: %w", err)
	}
	return mounts, nil
}

// listMounts lists the mounts at or below a path.
func listMounts(path string) (*world.MountsListed, error) {
	path = filepath.Clean(path)
	resolved, err := inMountTable(path)
	if errors.Is(err, fs.ErrNotExist) {
		return &world.MountsListed{}, nil
	}
	if err != nil {
		return nil, err
	}
	table, err := mountTable(resolved)
	if err != nil {
		return nil, err
	}
	mounts := make([]world.Mount, len(table))
	for i, m := range table {
		mounts[i] = worldMount(m, path+strings.TrimPrefix(m.Mountpoint, resolved))
	}
	return &world.MountsListed{Mounts: mounts}, nil
}

// worldMount returns an entry of the mount table. An option may be one of the mount or of its file
// system.
func worldMount(m *mountinfo.Info, path string) world.Mount {
	has := func(option string) bool {
		return slices.Contains(strings.Split(m.Options, ","), option) ||
			slices.Contains(strings.Split(m.VFSOptions, ","), option)
	}
	return world.Mount{Path: path, Source: m.Source, FSType: m.FSType, Root: m.Root,
		Device: fmt.Sprintf("%d:%d", m.Major, m.Minor), ReadOnly: has("ro"),
		SELinuxLabels: has("seclabel")}
}
