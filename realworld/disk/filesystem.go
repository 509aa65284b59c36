package disk

import (
	"math"

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
	return &world.FilesystemMeasured{Device: uint64(stat.Dev),
		CapacityBytes: product(fs.Blocks, block), AvailableBytes: product(fs.Bavail, block),
		Inodes: product(fs.Files, 1), InodesFree: product(fs.Ffree, 1)}, nil
}

// product multiplies two numbers of a file system, which may claim more than fits: 2^63-1 then.
func product(n, size uint64) int64 {
	if size != 0 && n > math.MaxInt64/size {
		return math.MaxInt64
	}
	return int64(n * size)
}
