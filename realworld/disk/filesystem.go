package disk

import (
	"encoding/binary"
	"math"
	"unsafe"

	"golang.org/x/sys/unix"

	"seedlet.dev/world"
)

// measureFilesystem asks the kernel for the state of the file system that holds a path. A call that
// hangs holds the path's lock and its slot in the loop, so there is one for each path at most.
func measureFilesystem(path string) (*world.FilesystemMeasured, error) {
	var stat unix.Stat_t
	if err := unix.Stat(path, &stat); err != nil {
		return nil, err
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(path, &fs); err != nil {
		return nil, err
	}
	block := uint64(fs.Frsize)
	if block == 0 {
		block = uint64(fs.Bsize)
	}
	return &world.FilesystemMeasured{Device: device(path, &stat, &fs),
		CapacityBytes: product(fs.Blocks, block), AvailableBytes: product(fs.Bavail, block),
		FreeBytes: product(fs.Bfree, block),
		Inodes:    product(fs.Files, 1), InodesFree: product(fs.Ffree, 1)}, nil
}

// btrfsInfo is the ioctl BTRFS_IOC_FS_INFO, which answers with btrfsInfoBytes.
const (
	btrfsInfo      = 0x8400941f
	btrfsInfoBytes = 1024
	btrfsIDAt      = 16 // of the file system's UUID in the answer
)

// device returns what identifies the file system of a path. On btrfs each subvolume has a device
// number of its own, although all share their space, so the UUID of the file system counts there.
func device(path string, stat *unix.Stat_t, fs *unix.Statfs_t) uint64 {
	if int64(fs.Type) != unix.BTRFS_SUPER_MAGIC {
		return stat.Dev
	}
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return stat.Dev
	}
	defer func() { _ = unix.Close(fd) }() // nothing was written
	var info [btrfsInfoBytes]byte
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), btrfsInfo,
		uintptr(unsafe.Pointer(&info[0])))
	if errno != 0 {
		return stat.Dev
	}
	return binary.NativeEndian.Uint64(info[btrfsIDAt:])
}

// product multiplies two numbers of a file system, which may claim more than fits: 2^63-1 then.
func product(n, size uint64) int64 {
	if size != 0 && n > math.MaxInt64/size {
		return math.MaxInt64
	}
	return int64(n * size)
}
