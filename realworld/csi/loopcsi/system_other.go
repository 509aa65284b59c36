//go:build !linux

package loopcsi

import (
	"errors"
	"os"

	mount "k8s.io/mount-utils"
)

// Loop devices are Linux's; these functions make the package compile on other systems, where the
// tests skip.

// usage is what a file system has.
type usage struct{ bytes, bytesFree, bytesAvailable, inodes, inodesFree int64 }

func newMounter() mount.Interface           { return mount.New("") }
func lockFile(*os.File) (bool, error)       { return false, errors.ErrUnsupported }
func unlockFile(*os.File) error             { return errors.ErrUnsupported }
func isDevice(string, [2]int) bool          { return false }
func bind(string, string, bool) error       { return errors.ErrUnsupported }
func unmount(string) error                  { return errors.ErrUnsupported }
func unmountBusy(string) error              { return errors.ErrUnsupported }
func freeze(string) error                   { return errors.ErrUnsupported }
func thaw(string) error                     { return errors.ErrUnsupported }
func isReadOnlyDevice(string) (bool, error) { return false, errors.ErrUnsupported }
func setReadOnlyDevice(string, bool) error  { return errors.ErrUnsupported }
func flush(string) error                    { return errors.ErrUnsupported }
func usageOf(string) (usage, error)         { return usage{}, errors.ErrUnsupported }
