//go:build !linux

package nodetest

import (
	"errors"
	"fmt"
)

// Nodes start on Linux only (see findTools), so nothing here is ever reached with something to
// remove; it makes the package compile where the tests skip.

func snapshotter(string) string { return "native" }

func detach(path string) error {
	return fmt.Errorf("unmounting %s: %w", path, errors.ErrUnsupported)
}
