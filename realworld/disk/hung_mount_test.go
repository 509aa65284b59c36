package disk_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"seedlet.dev/world"
)

// A volume whose server does not answer is not looked at, also below a link and after directories
// that are closed on the way down and have paths that are too long: what the pod has besides is
// measured.
func TestTreesWithHungMount(t *testing.T) {
	h, dir := newHarness(t), t.TempDir()
	hung := mkdir(t, filepath.Join(dir, "real/pod/volumes/v/mount"))
	write(t, filepath.Join(dir, "real/pod/f"), strings.Repeat("x", 8192))
	if err := os.Symlink("real", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	const deepest, depth = 10, 150 // some are read before the volume
	for i := range deepest {
		deep := mkdir(t, filepath.Join(dir, fmt.Sprint("real/pod/volumes/", i)))
		makeDeep(t, deep, depth-1, strings.Repeat("x", 40), nil)
	}
	fuse, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("no file system that hangs can be mounted here: %v", err)
	}
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", fuse.Fd())
	if err := unix.Mount("hung", hung, "fuse", 0, options); err != nil {
		t.Skipf("no file system that hangs can be mounted here: %v", err)
	}
	t.Cleanup(func() {
		_ = unix.Unmount(hung, unix.MNT_DETACH)
		_ = fuse.Close() // which ends what has waited for an answer
	})
	measured := h.must(&world.MeasureTrees{Paths: []string{dir + "/link/pod", dir + "/real/pod"}})
	for _, tree := range measured.(*world.TreesMeasured).Trees {
		// The root, the file, volumes and v, not the mount point.
		if tree.Inodes != 4+deepest*depth || tree.Bytes < 8192 || tree.Unfinished {
			t.Errorf("measured %+v", tree)
		}
	}
}
