package scsi

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"seedlet.dev/world"
)

// remove removes the disks of a logical unit (deleteDevices in pkg/volume/iscsi). Each is claimed
// before, as a file system claims its device: one that is mounted stays, and none can be mounted
// meanwhile.
func (k kernel) remove(ctx context.Context, m *world.RemoveISCSIDisks) error {
	sessions, err := k.sessions(m.Target)
	if err != nil {
		return err
	}
	if err := k.flush(ctx, sessions, m.LUN); err != nil {
		return err
	}
	for _, s := range sessions {
		block := s.block(m.LUN)
		if block == "" {
			continue
		}
		claimed, err := k.claim(filepath.Base(block))
		if err != nil {
			return err
		}
		err = writeAttribute("1", block, "device/delete")
		if claimed != nil {
			_ = claimed.Close()
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("removing %s: %w", filepath.Base(block), err)
		}
	}
	return nil
}

// flush removes the multipath device over the disks, once what was written is on them. The program
// multipath refuses that for one in use.
func (k kernel) flush(ctx context.Context, sessions []iscsiSession, lun int32) error {
	for _, s := range sessions {
		block := s.block(lun)
		if block == "" {
			continue
		}
		name := k.multipath(block)
		if name == "" {
			continue
		}
		device := filepath.Join(k.dev, name)
		output, code, err := execute(ctx, "multipath", "-f", device)
		if err == nil && code != 0 {
			err = fmt.Errorf("exit code %d: %s", code, output)
		}
		if err != nil {
			return world.Errorf(world.KindRefused, "", "multipath -f %s: %v", device, err)
		}
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
