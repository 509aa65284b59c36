package host

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// Whether tmpfs has the option noswap is found out without a mount, as a mount would.
func TestTmpfsThatStaysInMemory(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("mounting needs root")
	}
	dir := t.TempDir()
	err := unix.Mount("tmpfs", dir, "tmpfs", 0, "noswap")
	if err == nil {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Fatal(err)
		}
	}
	if got := canTmpfsStayInMemory(); got != (err == nil) {
		t.Errorf("noswap is supported: %v, and a mount says %v", got, err)
	}
}

// Without swap it does not matter.
func TestTmpfsWithoutSwap(t *testing.T) {
	root := t.TempDir()
	writeFiles(t, root, map[string]string{"proc/meminfo": "MemTotal: 1 kB\nSwapTotal: 0 kB\n"})
	if readMachine(root, root, IDFiles{}).SwapsTmpfs {
		t.Error("without swap tmpfs is swapped")
	}
	writeFiles(t, root, map[string]string{"proc/meminfo": "MemTotal: 1 kB\nSwapTotal: 8 kB\n"})
	if m := readMachine(root, root, IDFiles{}); m.SwapsTmpfs == canTmpfsStayInMemory() {
		t.Errorf("with swap: %+v", m)
	}
}
