package loopcsi

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
)

// The superblock of ext4: see "Super Block" in the kernel's documentation of its layout on disk.
const (
	superblockAt     = 1024
	superblockLength = 1024
	magicAt          = 0x38
	magic            = 0xef53
)

// growUnmounted grows the ext4 file system of a device that is larger, before it is mounted. A
// mounted one could be grown only with CAP_SYS_RESOURCE. It does nothing if there is no ext4, or if
// another node has it mounted.
func growUnmounted(l loop) error {
	mounts, err := mountsOf(l)
	if err != nil || len(mounts) > 0 {
		return err
	}
	has, size, err := sizesOf(l)
	if err != nil || has == 0 || has >= size {
		return err
	}
	// resize2fs demands a check before. The exit code 1 means that errors were corrected.
	out, err := exec.Command("e2fsck", "-f", "-p", l.device()).CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !(errors.As(err, &exit) && exit.ExitCode() == 1) {
		return fmt.Errorf("checking %s: %w: %s", l.device(), err, out)
	}
	_, err = run("resize2fs", l.device())
	return err
}

// sizesOf returns the sizes of the ext4 file system on a device, or zero, and of the device.
func sizesOf(l loop) (fileSystem, device int64, err error) {
	file, err := os.Open(l.device())
	if err != nil {
		return 0, 0, err
	}
	defer func() { _ = file.Close() }() // nothing was written
	if device, err = file.Seek(0, io.SeekEnd); err != nil {
		return 0, 0, fmt.Errorf("size of %s: %w", l.device(), err)
	}
	var block [superblockLength]byte
	if _, err := file.ReadAt(block[:], superblockAt); err != nil {
		return 0, 0, fmt.Errorf("superblock of %s: %w", l.device(), err)
	}
	if binary.LittleEndian.Uint16(block[magicAt:]) != magic {
		return 0, device, nil
	}
	blocks := int64(binary.LittleEndian.Uint32(block[0x4:])) |
		int64(binary.LittleEndian.Uint32(block[0x150:]))<<32
	return blocks << (10 + binary.LittleEndian.Uint32(block[0x18:])), device, nil
}
