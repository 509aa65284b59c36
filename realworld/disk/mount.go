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

// unmount unmounts everything at or below a path, the deepest and the latest first. It looks for
// mounts again after each pass, because a mount over another one hides it: what the first pass has
// left is in the mount table, which has all mounts at one path.
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
	unmounted, fromTable := 0, false
	for range passesMax {
		points, known := mountPoints(path)
		if known && len(points) == 0 {
			return nil
		}
		if fromTable = fromTable || !known || unmounted > 0; fromTable {
			if points, err = mountsAt(path); err != nil || len(points) == 0 {
				return err
			}
		}
		for _, point := range points {
			err := unmountOne(point)
			switch {
			case err == nil:
				unmounted++
			case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOENT):
				// Unmounted meanwhile, or hidden by another mount: the next pass decides.
			case !fromTable:
				fromTable = true // there may be mounts below it
			case unmounted > 0:
				return partialFailure(unmountError(point, err))
			default:
				return unmountError(point, err)
			}
		}
	}
	return partialFailure(fmt.Errorf("something is mounted at or below %s again and again", path))
}

// forceAfter is how long the server of a network file system may take before it is unmounted by
// force: the kubelet's time for NFS. Tests replace it, and the functions.
var (
	forceAfter  = time.Minute
	unmountPath = unix.Unmount
	isNFS       = isNFSInTable
)

// unmountOne unmounts one mount. That of a network file system may wait for its server; unmounting
// it by force ends that.
func unmountOne(path string) error {
	ended := make(chan error, 1)
	go func() { ended <- unmountPath(path, unix.UMOUNT_NOFOLLOW) }()
	force := time.NewTimer(forceAfter)
	defer force.Stop()
	select {
	case err := <-ended:
		return err
	case <-force.C:
	}
	if isNFS(path) && unmountPath(path, unix.UMOUNT_NOFOLLOW|unix.MNT_FORCE) == nil {
		return nil
	}
	return <-ended
}

// isNFSInTable reports whether the mount table has a mount of NFS at a path without links.
func isNFSInTable(path string) bool {
	_, newest, err := mountedAt(path)
	return err == nil && newest != nil && strings.HasPrefix(newest.FSType, "nfs")
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

// mountsAt lists where something is mounted at or below a path in an order in which it can be
// unmounted. The path has no links.
func mountsAt(path string) ([]string, error) {
	mounts, err := mountTable(path)
	if err != nil {
		return nil, err
	}
	slices.Reverse(mounts) // the kernel lists them in the order in which they were mounted
	slices.SortStableFunc(mounts, func(a, b *mountinfo.Info) int {
		return cmp.Compare(len(b.Mountpoint), len(a.Mountpoint))
	})
	points := make([]string, len(mounts))
	for i, m := range mounts {
		points[i] = m.Mountpoint
	}
	return points, nil
}

// getMounts reads the mount table. Tests count its calls.
var getMounts = mountinfo.GetMounts

// mountTable returns the entries of the mount table at or below a path without links, in the order
// of the table.
func mountTable(path string) ([]*mountinfo.Info, error) {
	below := strings.TrimSuffix(path, "/") + "/"
	mounts, err := getMounts(func(m *mountinfo.Info) (skip, stop bool) {
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
	all := append(mountOptions(m.Options), mountOptions(m.VFSOptions)...)
	is := world.Mount{Path: path, Source: m.Source, FSType: m.FSType, Root: m.Root,
		Device: fmt.Sprintf("%d:%d", m.Major, m.Minor), ReadOnly: slices.Contains(all, "ro"),
		SELinuxLabels: slices.Contains(all, "seclabel")}
	for _, option := range all {
		if label, isLabel := strings.CutPrefix(option, "context="); isLabel {
			is.SELinuxContext = strings.Trim(label, `"`)
		}
	}
	return is
}

// mountOptions splits the options of an entry of the mount table. A comma in quotes, as in the
// label of SELinux, is a part of its option.
func mountOptions(text string) []string {
	isQuoted := false
	return strings.FieldsFunc(text, func(c rune) bool {
		if c == '"' {
			isQuoted = !isQuoted
		}
		return c == ',' && !isQuoted
	})
}
