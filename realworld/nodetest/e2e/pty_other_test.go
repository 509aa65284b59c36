//go:build !linux

package e2e

import (
	"os"
	"testing"
)

func openPTY(t *testing.T) (ptmx, pts *os.File) {
	t.Helper()
	t.Fatal("pseudo-terminals need Linux")
	return nil, nil
}

func resizePTY(t *testing.T, _ *os.File, _, _ uint16) {
	t.Helper()
	t.Fatal("pseudo-terminals need Linux")
}
