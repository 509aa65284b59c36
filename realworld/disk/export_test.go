package disk

import (
	"context"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"seedlet.dev/world"
)

// RemoveMounted is RemoveTree without the look at the mounts before it, as if one had been created
// after that.
func RemoveMounted(ctx context.Context, path string) error {
	parent, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer parent.Close()
	r := remover{ctx: ctx}
	if err := r.remove(parent, filepath.Base(path)); err != nil {
		return err
	}
	return r.firstErr
}

// BatchDelay is batchDelay.
const BatchDelay = batchDelay

// CountSyncs counts the syncs until the test ends.
func CountSyncs(t *testing.T) *atomic.Int64 {
	var n atomic.Int64
	real := syncFile
	syncFile = func(f *os.File) error {
		n.Add(1)
		return real(f)
	}
	t.Cleanup(func() { syncFile = real })
	return &n
}

// OpenChildOfOldKernel is openChildOfOldKernel.
func OpenChildOfOldKernel(parent *os.File, name string) (*os.File, error) {
	return openChildOfOldKernel(parent, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC)
}

// IsWritten reports whether WriteDir would leave a directory as it is.
func IsWritten(ctx context.Context, m *world.WriteDir) bool {
	root, err := os.OpenRoot(m.Path)
	if err != nil {
		return false
	}
	defer root.Close()
	hidden, err := root.Readlink(dataLink)
	w := dirWriter{desired: m, root: root}
	return err == nil && w.isWritten(ctx, hidden)
}

// Walk walks through a tree and calls visit with the names of its files and directories.
func Walk(ctx context.Context, path string, visit func(name string) error) error {
	w := walker{ctx: ctx, visit: func(f entry) error { return visit(f.name) }}
	return w.walkTree(path)
}
