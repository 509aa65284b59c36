// Package loopdevice lists the loop devices of the machine, from sysfs. They are made and detached
// by losetup of util-linux.
package loopdevice

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// Device is a loop device.
type Device struct {
	Name    string // as in loop3
	Backing string // the path of the file or device that it is on
	Gone    bool   // what was at the path has been removed, though the device still has it
}

// Path returns the path of the device.
func (d Device) Path() string { return filepath.Join("/dev", d.Name) }

// List returns the loop devices that are attached, sorted by name as text.
func List() ([]Device, error) {
	files, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return nil, fmt.Errorf("listing loop devices: %w", err)
	}
	var found []Device
	for _, file := range files {
		data, err := os.ReadFile(file)
		if isDetached(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("listing loop devices: %w", err)
		}
		backing, gone := strings.CutSuffix(strings.TrimSuffix(string(data), "\n"), " (deleted)")
		found = append(found,
			Device{filepath.Base(filepath.Dir(filepath.Dir(file))), backing, gone})
	}
	return found, nil
}

// isDetached reports whether a file of sysfs could not be read because its device was just
// detached.
func isDetached(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENXIO) ||
		errors.Is(err, syscall.ENODEV)
}
