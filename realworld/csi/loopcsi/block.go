package loopcsi

import (
	"fmt"
	"os"
	"syscall"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// publishBlock mounts the node of a loop device at a target, unless it is mounted there. Whether it
// takes writes is a property of the device, not of the mount, so all targets have the same.
func publishBlock(volume item, l loop, target string, readOnly bool) error {
	at, has, err := mountAt(volume, target)
	if err != nil {
		return err
	}
	had, err := isReadOnlyDevice(l.device())
	switch {
	case err != nil:
		return err
	case has && (!at.block || had != readOnly):
		return status.Errorf(codes.AlreadyExists, "%s is mounted, read-only %t", target, had)
	case has:
		return nil
	}
	if had != readOnly {
		other, err := findOtherMount(volume, target)
		if err != nil {
			return err
		}
		if other != "" {
			return status.Errorf(codes.FailedPrecondition, "volume %s is published at %s, read-only %t",
				volume.id, other, had)
		}
		if err := setReadOnlyDevice(l.device(), readOnly); err != nil {
			return err
		}
	}
	file, err := os.OpenFile(target, os.O_CREATE|os.O_RDONLY|syscall.O_NOFOLLOW, 0o640)
	if err != nil {
		return fmt.Errorf("making the target: %w", err)
	}
	if err := file.Close(); err != nil {
		return fmt.Errorf("making the target: %w", err)
	}
	return bind(l.device(), target, false)
}
