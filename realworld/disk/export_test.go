package disk

import (
	"context"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	mountutils "k8s.io/mount-utils"

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

// MeasureTreeWithin measures a tree as the effect MeasureTree does, but within another time.
func MeasureTreeWithin(ctx context.Context, path string, most time.Duration) (*world.TreeMeasured,
	error) {
	return measureTree(ctx, path, most)
}

// MountNFS is mountNFS.
var MountNFS = mountNFS

// ReplaceMounter replaces what runs the command mount until the test ends.
func ReplaceMounter(t *testing.T, m mountutils.Interface) {
	real := mounter
	mounter = func() mountutils.Interface { return m }
	t.Cleanup(func() { mounter = real })
}

// ReplaceUnmount replaces the system call that unmounts, and the time after which it is forced,
// until the test ends.
func ReplaceUnmount(t *testing.T, after time.Duration, call func(path string, flags int) error) {
	realAfter, realCall := forceAfter, unmountPath
	forceAfter, unmountPath = after, call
	t.Cleanup(func() { forceAfter, unmountPath = realAfter, realCall })
}

// UnmountOne is unmountOne for a mount that is one of NFS or not.
func UnmountOne(path string, nfs bool) error {
	real := isNFS
	isNFS = func(string) bool { return nfs }
	defer func() { isNFS = real }()
	return unmountOne(path)
}

// MountPoints is mountPoints.
var MountPoints = mountPoints

// FailOpenat2 has the system call openat2 fail until the test ends.
func FailOpenat2(t *testing.T, err error) {
	real := openat2
	openat2 = func(int, string, *unix.OpenHow) (int, error) { return -1, err }
	t.Cleanup(func() { openat2 = real })
}

// IsNFSInTable is isNFSInTable with a mount table that has a mount of a type at a path.
func IsNFSInTable(t *testing.T, path, fsType string) bool {
	FailOpenat2(t, unix.ENOSYS)
	real := getMounts
	defer func() { getMounts = real }()
	getMounts = func(filter mountinfo.FilterFunc) ([]*mountinfo.Info, error) {
		return []*mountinfo.Info{{Mountpoint: path, FSType: fsType}}, nil
	}
	return isNFSInTable(path)
}

// CountMountTables returns how often the mount table has been read since, until the test ends.
func CountMountTables(t *testing.T) *atomic.Int64 {
	var reads atomic.Int64
	real := getMounts
	getMounts = func(filter mountinfo.FilterFunc) ([]*mountinfo.Info, error) {
		reads.Add(1)
		return real(filter)
	}
	t.Cleanup(func() { getMounts = real })
	return &reads
}

// WorldMount is worldMount.
var WorldMount = worldMount
