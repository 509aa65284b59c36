package scsi

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"seedlet.dev/world"
)

// remove removes the disks of a logical unit (deleteDevices in pkg/volume/iscsi, DetachDisk in
// pkg/volume/fc). What is on top of a disk and not in use is removed before. Each disk is claimed
// then, as a file system claims its device: one that is mounted stays, and none can be mounted
// meanwhile.
func (k kernel) remove(ctx context.Context, m *world.RemoveSCSIDisks) error {
	units, err := k.units(&m.Unit)
	if err != nil {
		return err
	}
	done := map[string]bool{}
	for _, unit := range units {
		for _, block := range blocksOf(unit) {
			if err := k.clear(ctx, block, done, 0); err != nil {
				return err
			}
		}
	}
	for _, unit := range units {
		if err := k.delete(unit); err != nil {
			return err
		}
	}
	return nil
}

// units returns the directories of a logical unit, one for each path to it.
func (k kernel) units(unit *world.LogicalUnit) (dirs []string, err error) {
	if unit.Target == "" {
		for _, block := range k.fcBlocks(unit) {
			dir, err := filepath.EvalSymlinks(filepath.Join(block, "device"))
			if err != nil {
				return nil, err
			}
			dirs = append(dirs, dir)
		}
		return dirs, nil
	}
	sessions, err := k.sessions(unit.Target)
	for _, s := range sessions {
		if dir := s.unit(unit.LUN); dir != "" {
			dirs = append(dirs, dir)
		}
	}
	return dirs, err
}

// blocksOf returns the directories of the block device of a logical unit, of which it has at most
// one.
func blocksOf(unit string) []string {
	dirs, _ := filepath.Glob(filepath.Join(unit, "block/*"))
	return dirs
}

// delete removes a disk from the kernel.
func (k kernel) delete(unit string) error {
	for _, block := range blocksOf(unit) {
		claimed, err := k.claim(filepath.Base(block))
		if err != nil {
			return err
		}
		if claimed != nil {
			defer claimed.Close()
		}
	}
	err := writeAttribute("1", unit, "delete")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing %s: %w", filepath.Base(unit), err)
	}
	return nil
}

// clear removes the devices on top of a block device, the topmost first: those of multipathd, and
// what the node has activated by itself, as logical volumes and RAIDs that it has found on the
// disk. All of that is refused for what is in use.
func (k kernel) clear(ctx context.Context, block string, done map[string]bool, depth int) error {
	for _, holder := range k.holders(block) {
		if done[holder] {
			continue
		}
		done[holder] = true
		if depth >= holdersDepthMax {
			return world.Errorf(world.KindRefused, "", "%s has too many devices on top of each other", block)
		}
		if err := k.clear(ctx, holder, done, depth+1); err != nil {
			return err
		}
		if err := k.removeHolder(ctx, holder); err != nil {
			return world.Errorf(world.KindRefused, "", "%s is in use by %s: %v", filepath.Base(block),
				filepath.Base(holder), err)
		}
	}
	return nil
}

func (k kernel) removeHolder(ctx context.Context, holder string) error {
	name := filepath.Base(holder)
	switch {
	case k.isMultipath(holder):
		return k.flush(ctx, holder)
	case strings.HasPrefix(name, "dm-"):
		return succeed(ctx, "dmsetup", "remove", attribute(holder, "dm/name"))
	case strings.HasPrefix(name, "md"):
		return writeAttribute("clear", holder, "md/array_state")
	}
	return errors.New("the agent cannot remove it")
}

// flush removes a multipath device, once what was written is on the disks. If no path is left, that
// would wait for one for ever, as far as the device is set up to (queue_if_no_path): it has to
// fail instead. Nothing is lost by that which was not lost with the paths: the file system is
// unmounted.
func (k kernel) flush(ctx context.Context, holder string) error {
	if !k.hasPath(holder) {
		err := succeed(ctx, "dmsetup", "message", attribute(holder, "dm/name"), "0", "fail_if_no_path")
		if err != nil {
			return err
		}
	}
	return succeed(ctx, "multipath", "-f", filepath.Join(k.dev, filepath.Base(holder)))
}

// hasPath reports whether any disk below a multipath device works.
func (k kernel) hasPath(holder string) bool {
	states, _ := filepath.Glob(filepath.Join(holder, "slaves/*/device/state"))
	for _, state := range states {
		if is := attribute(state); is == "running" || is == "created" {
			return true
		}
	}
	return false
}

// succeed runs a program that has to succeed.
func succeed(ctx context.Context, name string, args ...string) error {
	output, code, err := execute(ctx, name, args...)
	if err == nil && code != 0 {
		err = fmt.Errorf("exit code %d: %s", code, strings.TrimSpace(output))
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
	}
	return nil
}

// claim opens a device alone; nil if it does not exist, or its path has gone.
func (k kernel) claim(name string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(k.dev, name), os.O_RDONLY|unix.O_EXCL|unix.O_NONBLOCK, 0)
	switch {
	case errors.Is(err, unix.EBUSY):
		return nil, world.Errorf(world.KindRefused, "", "%s is in use: %v", name, err)
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENXIO), errors.Is(err, unix.ENODEV):
		return nil, nil
	}
	return f, err
}
