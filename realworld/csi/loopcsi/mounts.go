package loopcsi

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// mounted is a mount of this process's namespace.
type mounted struct {
	id         int // in mountinfo
	path       string
	fileSystem string
	readOnly   bool // this mount
	stopped    bool // the file system takes no writes, through whatever mount
	of         loop
	block      bool // the device's node is mounted, not its file system
}

// mountsOf returns the mounts of a loop device, in the order of their making.
func mountsOf(l loop) ([]mounted, error) {
	var number [2]int
	data, err := os.ReadFile(filepath.Join("/sys/block", l.name, "dev"))
	if err != nil {
		return nil, fmt.Errorf("finding mounts: %w", err)
	}
	if _, err := fmt.Sscanf(string(data), "%d:%d", &number[0], &number[1]); err != nil {
		return nil, fmt.Errorf("finding mounts of %s: %w", l.name, err)
	}
	all, err := mountinfo.GetMounts(nil)
	if err != nil {
		return nil, fmt.Errorf("finding mounts: %w", err)
	}
	var found []mounted
	for _, m := range all {
		// A bind mount of a device's node is one of the file system of /dev, with the node as root.
		block := filepath.Base(m.Root) == l.name && isDevice(m.Mountpoint, number)
		if !block && (m.Major != number[0] || m.Minor != number[1]) {
			continue
		}
		found = append(found, mounted{m.ID, m.Mountpoint, m.FSType, hasOption(m.Options, "ro"),
			hasOption(m.VFSOptions, "ro"), l, block})
	}
	return found, nil
}

func hasOption(options, option string) bool {
	return slices.Contains(strings.Split(options, ","), option)
}

// mountAt returns the uppermost mount at a path if it is of the volume; an error if it is of
// something else.
func mountAt(volume item, path string) (m mounted, has bool, err error) {
	at, err := mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) {
		return m.Mountpoint != path, false
	})
	if err != nil || len(at) == 0 {
		return mounted{}, false, err
	}
	top := at[len(at)-1]
	l, has, err := loopOf(volume)
	if err != nil {
		return mounted{}, false, err
	}
	if has {
		all, err := mountsOf(l)
		if err != nil {
			return mounted{}, false, err
		}
		isTop := func(m mounted) bool { return m.id == top.ID }
		if n := slices.IndexFunc(all, isTop); n >= 0 {
			return all[n], true, nil
		}
	}
	return mounted{}, false, status.Errorf(codes.FailedPrecondition, "%s is a mount of %s, not of "+
		"volume %s", path, top.Source, volume.id)
}

// unmountVolume removes all mounts of a volume at a path.
func unmountVolume(volume item, path string) error {
	for {
		_, has, err := mountAt(volume, path)
		if err != nil || !has {
			return err
		}
		if err := unmount(path); err != nil {
			return err
		}
	}
}

// removeTarget removes a directory or file that was mounted over. Anything in it is not the
// driver's, and stays.
func removeTarget(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("removing the target: %w", err)
	case !info.IsDir() && (!info.Mode().IsRegular() || info.Size() > 0):
		return status.Errorf(codes.FailedPrecondition, "%s was not made by this driver", path)
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("removing the target: %w", err)
	}
	return nil
}

// detachUnmounted detaches a volume from its loop device if nothing mounts it.
func detachUnmounted(volume item) error {
	l, has, err := loopOf(volume)
	if err != nil || !has {
		return err
	}
	left, err := mountsOf(l)
	if err != nil || len(left) > 0 {
		return err
	}
	return l.detach()
}

// removeUnmounted detaches and removes a volume, or returns FAILED_PRECONDITION if something mounts
// it: that it is still used in this way.
func removeUnmounted(volume item, use string) error {
	if err := detachUnmounted(volume); err != nil {
		return err
	}
	_, has, err := loopOf(volume)
	if err != nil {
		return err
	}
	if has {
		return status.Errorf(codes.FailedPrecondition, "volume %s is %s", volume.id, use)
	}
	return volume.remove()
}

// thawAll thaws file systems that a driver had frozen for a snapshot when it was killed.
func (s *store) thawAll() error {
	all, err := loops(func(image string) bool { return isBelow(image, s.dir) })
	if err != nil {
		return err
	}
	for _, l := range all {
		found, err := mountsOf(l)
		if err != nil {
			return err
		}
		if n := slices.IndexFunc(found, func(m mounted) bool { return !m.block }); n >= 0 {
			_ = thaw(found[n].path) // fails unless it is frozen
		}
	}
	return nil
}

func isBelow(path, dir string) bool { return strings.HasPrefix(path, dir+"/") }

// leftovers are the loop devices of a directory and their mounts.
type leftovers struct {
	loops  []loop
	mounts []mounted
}

// findLeftovers finds the loop devices of a directory's images.
func findLeftovers(dir string) (leftovers, error) {
	if resolved, err := filepath.EvalSymlinks(dir); err == nil {
		dir = resolved
	}
	var left leftovers
	var err error
	left.loops, err = loops(func(image string) bool { return isBelow(image, dir) })
	if err != nil {
		return left, err
	}
	for _, l := range left.loops {
		mounts, err := mountsOf(l)
		if err != nil {
			return left, err
		}
		left.mounts = append(left.mounts, mounts...)
	}
	return left, nil
}

// Lines has a line for each mount and loop device.
func (l leftovers) Lines() []string {
	var lines []string
	for _, m := range l.mounts {
		lines = append(lines, fmt.Sprintf("%s on %s", m.of.name, m.path))
	}
	for _, l := range l.loops {
		lines = append(lines, fmt.Sprintf("%s of %s", l.name, l.image))
	}
	return lines
}

// Remove unmounts even what is in use, and asks the kernel to detach the devices.
func (l leftovers) Remove() error {
	var problems []error
	for _, m := range slices.Backward(l.mounts) {
		if !m.block {
			_ = thaw(m.path) // fails unless it is frozen
		}
		problems = append(problems, unmountBusy(m.path))
	}
	for _, l := range l.loops {
		problems = append(problems, l.requestDetach())
	}
	return errors.Join(problems...)
}
