//go:build !linux

package cleanup

import (
	"errors"
	"fmt"
	"net/netip"
)

// Bridges are used on Linux only; these functions make the package compile on other systems, where
// the tests skip.

// MakeBridge fails.
func MakeBridge(dir string, _ netip.Prefix) error {
	return fmt.Errorf("making bridge %s: %w", BridgeName(dir), errors.ErrUnsupported)
}

// RemoveBridge fails.
func RemoveBridge(dir string) error {
	return fmt.Errorf("removing bridge %s: %w", BridgeName(dir), errors.ErrUnsupported)
}
