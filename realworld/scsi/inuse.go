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

// users returns the paths to which devices may be bound, and those on which loop devices are. The
// devices are of /dev, and bound from there: paths of other file systems are left out, as one of a
// network may hang for ever.
func (k kernel) users() (paths []string, err error) {
	file, err := os.Open(k.mounts)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	mounts, err := mountinfo.GetMountsFromReader(file, nil)
	if err != nil {
		return nil, err
	}
	for _, m := range mounts {
		if hasDevices(m) && m.Root != "/" {
			paths = append(paths, m.Mountpoint)
		}
	}
	files, _ := filepath.Glob(filepath.Join(k.sys, "block/loop*/loop/backing_file"))
	for _, file := range files {
		data, err := os.ReadFile(file)
		switch {
		case err == nil:
			path := strings.TrimSuffix(string(data), "\n")
			if m := mountOf(path, mounts); m != nil && hasDevices(m) {
				paths = append(paths, path)
			}
		case !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENXIO) &&
			!errors.Is(err, unix.ENODEV): // it was not just detached
			return nil, err
		}
	}
	return paths, nil
}

// hasDevices reports whether a mount is of a kind of file systems that /dev is.
func hasDevices(m *mountinfo.Info) bool { return m.FSType == "devtmpfs" || m.FSType == "tmpfs" }

// mountOf returns the mount that a path is on: the last one of those nearest to it. Nil if none is.
func mountOf(path string, mounts []*mountinfo.Info) (nearest *mountinfo.Info) {
	for _, m := range mounts {
		dir := strings.TrimSuffix(m.Mountpoint, "/")
		isOn := path == dir || strings.HasPrefix(path, dir+"/")
		if isOn && (nearest == nil || len(m.Mountpoint) >= len(nearest.Mountpoint)) {
			nearest = m
		}
	}
	return nearest
}
