package scsi

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"seedlet.dev/world"
)

// A device of volumeMode Block is in use without a claim: it is bound to a file, for a pod, and a
// loop device on that file keeps it open.

// checkUnused returns an error if a pod has a block device, or what is on it. The volume may have
// named it in another way.
func (k kernel) checkUnused(block string) error {
	numbers := map[uint64]bool{}
	for _, number := range k.numbers(block, 0) {
		var major, minor uint32
		if _, err := fmt.Sscanf(number, "%d:%d", &major, &minor); err == nil {
			numbers[unix.Mkdev(major, minor)] = true
		}
	}
	users, err := k.users()
	if err != nil {
		return err
	}
	for _, path := range users {
		var stat unix.Stat_t
		if unix.Stat(path, &stat) == nil && stat.Mode&unix.S_IFMT == unix.S_IFBLK && numbers[stat.Rdev] {
			return world.Errorf(world.KindRefused, "", "%s is in use at %s", filepath.Base(block), path)
		}
	}
	return nil
}

// users returns the paths to which devices may be bound, and those on which loop devices are.
// Devices are bound from /dev, so that no file system of a network is looked at.
func (k kernel) users() (paths []string, err error) {
	file, err := os.Open(k.mounts)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	mounts, err := mountinfo.GetMountsFromReader(file, func(m *mountinfo.Info) (skip, stop bool) {
		return m.FSType != "devtmpfs" && m.FSType != "tmpfs" || m.Root == "/", false
	})
	if err != nil {
		return nil, err
	}
	for _, m := range mounts {
		paths = append(paths, m.Mountpoint)
	}
	files, _ := filepath.Glob(filepath.Join(k.sys, "block/loop*/loop/backing_file"))
	for _, file := range files {
		data, err := os.ReadFile(file)
		switch {
		case err == nil:
			paths = append(paths, strings.TrimSuffix(string(data), "\n"))
		case !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENXIO) &&
			!errors.Is(err, unix.ENODEV): // it was not just detached
			return nil, err
		}
	}
	return paths, nil
}
