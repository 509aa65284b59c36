//go:build !linux

package owned

import (
	"errors"
	"fmt"
	"net/netip"
)

// Nothing that has a bridge starts elsewhere than on Linux; this makes the package compile where
// the tests skip.

// MakeBridge fails.
func MakeBridge(dir string, _ netip.Prefix) error {
	return fmt.Errorf("making bridge %s: %w", BridgeName(dir), errors.ErrUnsupported)
}

// RemoveBridge fails.
func RemoveBridge(dir string) error {
	return fmt.Errorf("removing bridge %s: %w", BridgeName(dir), errors.ErrUnsupported)
}
