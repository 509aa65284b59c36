package loopcsi

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
	mount "k8s.io/mount-utils"
)

// newMounter returns what runs mount(8): as a child, not in a scope of systemd, which would keep a
// file system's daemon alive when the driver ends. There is none for ext4 and xfs.
func newMounter() mount.Interface { return mount.NewWithoutSystemd("") }

// lockFile locks an open file or directory, unless another process or call has it locked.
func lockFile(file *os.File) (locked bool, err error) {
	err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}

func unlockFile(file *os.File) error { return unix.Flock(int(file.Fd()), unix.LOCK_UN) }

// isDevice reports whether a path is a block device of a number.
func isDevice(path string, number [2]int) bool {
	var stat unix.Stat_t
	if err := unix.Lstat(path, &stat); err != nil || stat.Mode&unix.S_IFMT != unix.S_IFBLK {
		return false
	}
	return unix.Major(stat.Rdev) == uint32(number[0]) && unix.Minor(stat.Rdev) == uint32(number[1])
}

// bind mounts a directory or file at another place. The mount is complete and read-only when it
// appears, where mount(8) has an instant in which it is writable: a driver that was killed then
// would leave a mount that looks like another request's.
func bind(source, target string, readOnly bool) error {
	fail := func(err error) error {
		return fmt.Errorf("mounting %s at %s: %w", source, target, err)
	}
	tree, err := unix.OpenTree(unix.AT_FDCWD, source, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return fail(err)
	}
	defer func() { _ = unix.Close(tree) }() // a tree that is not mounted is gone then
	if readOnly {
		attributes := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
		if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &attributes); err != nil {
			return fail(err)
		}
	}
	err = unix.MoveMount(tree, "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH)
	if err != nil {
		return fail(err)
	}
	return nil
}

func unmount(path string) error {
	if err := unix.Unmount(path, unix.UMOUNT_NOFOLLOW); err != nil {
		return fmt.Errorf("unmounting %s: %w", path, err)
	}
	return nil
}

// unmountBusy unmounts even what a process has open; the kernel completes that when it closes.
func unmountBusy(path string) error {
	if err := unix.Unmount(path, unix.UMOUNT_NOFOLLOW|unix.MNT_DETACH); err != nil {
		return fmt.Errorf("unmounting %s: %w", path, err)
	}
	return nil
}

// FIFREEZE and FITHAW of linux/fs.h, which x/sys does not have.
const (
	fiFreeze = 0xc0045877
	fiThaw   = 0xc0045878
)

// freeze writes everything of a mounted file system to its device, and holds all writes.
func freeze(path string) error { return onDirectory(path, "freezing", fiFreeze) }

func thaw(path string) error { return onDirectory(path, "thawing", fiThaw) }

func onDirectory(path, doing string, request uint) error {
	dir, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("%s %s: %w", doing, path, err)
	}
	defer func() { _ = dir.Close() }() // nothing was written
	if err := unix.IoctlSetInt(int(dir.Fd()), request, 0); err != nil {
		return fmt.Errorf("%s %s: %w", doing, path, err)
	}
	return nil
}

// isReadOnlyDevice reports whether a block device refuses writes.
func isReadOnlyDevice(device string) (bool, error) {
	file, err := os.Open(device)
	if err != nil {
		return false, err
	}
	defer func() { _ = file.Close() }() // nothing was written
	value, err := unix.IoctlGetInt(int(file.Fd()), unix.BLKROGET)
	if err != nil {
		return false, fmt.Errorf("whether %s is read-only: %w", device, err)
	}
	return value != 0, nil
}

// setReadOnlyDevice has a block device refuse writes or take them.
func setReadOnlyDevice(device string, readOnly bool) error {
	file, err := os.Open(device)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }() // nothing was written
	value := 0
	if readOnly {
		value = 1
	}
	if err := unix.IoctlSetPointerInt(int(file.Fd()), unix.BLKROSET, value); err != nil {
		return fmt.Errorf("setting %s read-only %t: %w", device, readOnly, err)
	}
	return nil
}

// flush writes what the kernel holds of a block device to its image.
func flush(device string) error {
	file, err := os.OpenFile(device, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	return errors.Join(file.Sync(), file.Close())
}

// usage is what a file system has.
type usage struct{ bytes, bytesFree, bytesAvailable, inodes, inodesFree int64 }

func usageOf(path string) (usage, error) {
	var stat unix.Statfs_t
	if err := unix.Statfs(path, &stat); err != nil {
		return usage{}, fmt.Errorf("usage of %s: %w", path, err)
	}
	unit := int64(stat.Frsize)
	return usage{int64(stat.Blocks) * unit, int64(stat.Bfree) * unit, int64(stat.Bavail) * unit,
		int64(stat.Files), int64(stat.Ffree)}, nil
}
