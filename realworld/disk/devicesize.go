package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"seedlet.dev/world"
)

const (
	sysfs = "/sys"
	// sectorBytes is the unit of sizes in sysfs, whatever the sectors of a device are.
	sectorBytes = 512
)

// measureDevice returns the size of the block device at a path, as the kernel has it. A kubelet
// opens the device and seeks to its end (pkg/volume/metrics_block.go); to open a device whose paths
// are all lost may take for ever, as the kernel looks for partitions.
func measureDevice(path, sys string) (*world.DeviceMeasured, error) {
	var stat unix.Stat_t
	if err := unix.Stat(path, &stat); err != nil {
		return nil, err
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFBLK {
		return nil, world.Errorf(world.KindInvalid, "", "%s is no block device", path)
	}
	number := fmt.Sprintf("%d:%d", unix.Major(stat.Rdev), unix.Minor(stat.Rdev))
	return sizeOf(number, sys)
}

// sizeOf returns the size of the block device of a number, MAJOR:MINOR.
func sizeOf(number, sys string) (*world.DeviceMeasured, error) {
	data, err := os.ReadFile(filepath.Join(sys, "dev/block", number, "size"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, world.Errorf(world.KindNotFound, "", "there is no block device %s", number)
	}
	if err != nil {
		return nil, err
	}
	sectors, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
	if err != nil || sectors < 0 || sectors > (1<<63-1)/sectorBytes {
		return nil, fmt.Errorf("the size of the block device %s is %q", number, data)
	}
	return &world.DeviceMeasured{CapacityBytes: sectors * sectorBytes}, nil
}
