// Package lockfile keeps a second node agent from a node by the lock of a file, as the kubelet's
// --lock-file does: Acquire takes the lock, and UntilOpened tells when another process wants it.
package lockfile

import (
	"context"
	"fmt"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"
	"k8s.io/utils/inotify"
)

// Acquire locks a file, which it creates if there is none, and waits until no other process has it
// locked. The process has the lock until it ends. If the context is done first, the lock may still
// be taken later.
func Acquire(ctx context.Context, path string) error {
	fd, err := unix.Open(path, unix.O_CREAT|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return fmt.Errorf("opening %s: %w", path, err)
	}
	locked := make(chan error, 1)
	go func() { // flock(2) cannot be interrupted; it ends with the process at the latest
		for {
			if err := unix.Flock(fd, unix.LOCK_EX); err != unix.EINTR {
				locked <- err
				return
			}
		}
	}()
	select {
	case err = <-locked:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("locking %s: %w", path, err)
	}
	return nil
}

// UntilOpened returns a context that is done when a process opens the file. Its removal is not
// noticed: the file exists while it is locked.
func UntilOpened(ctx context.Context, path string) (context.Context, error) {
	watcher, err := inotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("watching %s: %w", path, err)
	}
	if err := watcher.AddWatch(path, inotify.InOpen); err != nil {
		watcher.Close()
		return nil, fmt.Errorf("watching %s: %w", path, err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		defer watcher.Close()
		select {
		case <-watcher.Event:
			cancel(fmt.Errorf("%s was opened by another process", path))
		case err := <-watcher.Error:
			klog.ErrorS(err, "the lock file cannot be watched", "path", path)
			cancel(fmt.Errorf("watching %s: %w", path, err))
		case <-ctx.Done():
		}
	}()
	return ctx, nil
}
