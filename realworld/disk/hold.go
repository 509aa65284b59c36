package disk

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"seedlet.dev/realworld/loopdevice"
	"seedlet.dev/world"
)

// A block device is kept open by a loop device on it, made by the command losetup: the kubelet does
// the same (volume_path_handler_linux.go), so each finds what the other has made, and it outlives
// the process.

// holdDevice keeps the block device at a path open.
func holdDevice(ctx context.Context, path string) error {
	resolved, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	info, err := os.Stat(resolved)
	if err != nil {
		return err
	}
	if info.Mode()&(fs.ModeDevice|fs.ModeCharDevice) != fs.ModeDevice {
		return world.Errorf(world.KindInvalid, "", "%s is no block device", path)
	}
	loops, err := loopsOn(resolved)
	if err != nil || len(loops) > 0 {
		return err
	}
	return losetup(ctx, "-f", resolved)
}

// releaseDevice detaches the loop devices on a path.
func releaseDevice(ctx context.Context, path string) error {
	resolved, err := inMountTable(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	loops, err := loopsOn(resolved)
	if err != nil {
		return err
	}
	for _, device := range loops {
		if err := losetup(ctx, "-d", device.Path()); err != nil {
			return err
		}
	}
	return nil
}

// loopsOn returns the loop devices on a path, also after what was at the path has been removed.
func loopsOn(path string) ([]loopdevice.Device, error) {
	all, err := loopdevice.List()
	return slices.DeleteFunc(all, func(d loopdevice.Device) bool { return d.Backing != path }), err
}

func losetup(ctx context.Context, arguments ...string) error {
	out, err := exec.CommandContext(ctx, "losetup", arguments...).CombinedOutput()
	if err != nil {
		return world.Errorf(world.KindInternal, "", "losetup %s: %s: %s", strings.Join(arguments, " "),
			err, strings.TrimSpace(string(out)))
	}
	return nil
}
