package e2e

import (
	"fmt"
	"os"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// openTerminal makes a terminal, and gives both of its ends.
func openTerminal(t *testing.T) (ours, theirs *os.File) {
	t.Helper()
	ours, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ours.Close() }) // nobody is at the other end any more
	if err := unix.IoctlSetPointerInt(int(ours.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(int(ours.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	theirs, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return ours, theirs
}

// resizeTerminal tells whoever is at the other end as well.
func resizeTerminal(t *testing.T, ours *os.File, columns, rows uint16) {
	t.Helper()
	size := &unix.Winsize{Col: columns, Row: rows}
	if err := unix.IoctlSetWinsize(int(ours.Fd()), unix.TIOCSWINSZ, size); err != nil {
		t.Fatal(err)
	}
}
