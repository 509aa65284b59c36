//go:build !linux

package e2e

import (
	"os"
	"testing"
)

func openTerminal(t *testing.T) (ours, theirs *os.File) {
	t.Helper()
	t.Fatal("terminals are made on Linux only")
	return nil, nil
}

func resizeTerminal(t *testing.T, _ *os.File, _, _ uint16) {
	t.Helper()
	t.Fatal("terminals are made on Linux only")
}
