//go:build !linux

package nodetest

import (
	"errors"
	"fmt"
)

// Nodes start on Linux only (see findTools). These functions let the package compile on systems
// where its tests are skipped.

func snapshotter(string) string { return "native" }

func detach(path string) error {
	return fmt.Errorf("unmounting %s: %w", path, errors.ErrUnsupported)
}
