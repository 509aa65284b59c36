package lockfile

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"seedlet.dev/realworld/porttest"
)

// lockElsewhere locks a file as another process would: locks belong to open files.
func lockElsewhere(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		t.Fatal(err)
	}
	return f
}

// The lock is taken when the other process releases it, and not before.
func TestAcquireWaits(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	other := lockElsewhere(t, path)
	acquired := make(chan error, 1)
	go func() { acquired <- Acquire(t.Context(), path) }()
	select {
	case err := <-acquired:
		t.Fatalf("acquired a lock of another process: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-acquired:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(porttest.Patience):
		t.Error("the lock was not taken after its release")
	}
}

// A process that has to end does not wait for the lock.
func TestAcquireIsCanceled(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	lockElsewhere(t, path)
	stop := errors.New("has to end")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(stop)
	if err := Acquire(ctx, path); !errors.Is(err, stop) || !strings.Contains(err.Error(), path) {
		t.Errorf("%v", err)
	}
	if err := Acquire(t.Context(), filepath.Join(path, "none")); err == nil {
		t.Error("a file in a file was locked")
	}
}

// The context is done when another process opens the file, with the reason.
func TestUntilOpened(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	if err := Acquire(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	ctx, err := UntilOpened(t.Context(), path)
	if err != nil || ctx.Err() != nil {
		t.Fatalf("done before anything has happened: %v", err)
	}
	if _, err := os.ReadFile(path); err != nil {
		t.Fatal(err)
	}
	select {
	case <-ctx.Done():
		if !strings.Contains(context.Cause(ctx).Error(), path) {
			t.Errorf("the reason is %v", context.Cause(ctx))
		}
	case <-time.After(porttest.Patience):
		t.Error("not done")
	}
	if _, err := UntilOpened(t.Context(), path+".none"); err == nil {
		t.Error("a file that does not exist is watched")
	}
}

// The removal of a locked file is not noticed, as by a kubelet: the file exists while the lock is
// held.
func TestRemovedLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	if err := Acquire(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	ctx, err := UntilOpened(t.Context(), path)
	if err := errors.Join(err, os.Remove(path)); err != nil {
		t.Fatal(err)
	}
	select {
	case <-ctx.Done():
		t.Error(context.Cause(ctx))
	case <-time.After(100 * time.Millisecond):
	}
}
