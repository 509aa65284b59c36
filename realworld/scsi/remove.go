package scsi

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"seedlet.dev/world"
)

// remove removes the disks of a logical unit (deleteDevices in pkg/volume/iscsi, DetachDisk in
// pkg/volume/fc). What is on top of a disk and not in use is removed before. All are claimed then,
// as a file system claims its device: what is mounted stays, and nothing can be mounted meanwhile.
func (k kernel) remove(ctx context.Context, m *world.RemoveSCSIDisks) error {
	units, blocks, err := k.toRemove(m)
	if err != nil {
		return err
	}
	for _, block := range blocks {
		if err := k.checkUnused(block); err != nil {
			return err
		}
	}
	done := map[string]bool{}
	for _, block := range blocks {
		if err := k.clear(ctx, block, done, 0); err != nil {
			return err
		}
		if k.isMultipath(block) && !done[block] {
			if err := k.flush(ctx, block); err != nil {
				return world.Errorf(world.KindRefused, "", "%s is in use: %v", filepath.Base(block), err)
			}
		}
		done[block] = true
	}
	for _, block := range blocks { // all, before the first one is removed
		claimed, err := k.claim(filepath.Base(block))
		if err != nil {
			return err
		}
		if claimed != nil {
			defer claimed.Close()
		}
	}
	for _, unit := range units {
		err := writeAttribute("1", unit, "delete")
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("removing %s: %w", filepath.Base(unit), err)
		}
	}
	return nil
}

// toRemove returns the directories of a logical unit, one for each path to it, and those of its
// block devices, of which each has at most one. A multipath device may have no path.
func (k kernel) toRemove(m *world.RemoveSCSIDisks) (units, blocks []string, err error) {
	if m.Unit.Target == "" {
		return k.devicesToRemove(m.Devices)
	}
	sessions, err := k.sessions(m.Unit.Target)
	for _, s := range sessions {
		if dir := s.unit(m.Unit.LUN); dir != "" {
			units = append(units, dir)
			dirs, _ := filepath.Glob(filepath.Join(dir, "block/*"))
			blocks = append(blocks, dirs...)
		}
	}
	return units, blocks, err
}

// devicesToRemove returns the same of devices that were found. Those that have gone are left out.
func (k kernel) devicesToRemove(devices []world.BlockDevice) (units, blocks []string, err error) {
	for _, device := range devices {
		block := k.block(filepath.Base(device.Path))
		if attribute(block, "dev") == "" {
			continue
		}
		if is := k.device(block); is != device {
			return nil, nil, world.Errorf(world.KindRefused, "", "another disk is at %s by now", device.Path)
		}
		if dir := address(block); k.isDisk(filepath.Base(block)) && dir != "" {
			units = append(units, dir)
		}
		blocks = append(blocks, block)
	}
	return units, blocks, nil
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
// fail instead. Nothing is lost by that which was not lost with the paths: nothing has the device
// open alone, as a file system has. If it stays, because something opens it meanwhile, it waits
// again.
func (k kernel) flush(ctx context.Context, holder string) error {
	device, name := filepath.Join(k.dev, filepath.Base(holder)), attribute(holder, "dm/name")
	claimed, err := k.claim(filepath.Base(holder))
	if err != nil {
		return err
	}
	if claimed != nil {
		claimed.Close() // multipath refuses a device that is open
	}
	if k.hasPath(holder) {
		return succeed(ctx, "multipath", "-f", device)
	}
	table, _, err := execute(ctx, "dmsetup", "table", name)
	if err == nil {
		err = succeed(ctx, "dmsetup", "message", name, "0", "fail_if_no_path")
	}
	if err != nil {
		return err
	}
	err = succeed(ctx, "multipath", "-f", device)
	if err != nil && strings.Contains(table, "queue_if_no_path") {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), queueTimeout)
		defer cancel()
		err = errors.Join(err, succeed(ctx, "dmsetup", "message", name, "0", "queue_if_no_path"))
	}
	return err
}

// queueTimeout bounds a command that takes back what was done before an effect has timed out.
const queueTimeout = 10 * time.Second

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
