package disk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"seedlet.dev/world"
)

// A tree for which there is not enough time takes nothing from those after it, and of several such
// trees each has a part of what is left.
func TestTimeIsSharedByTrees(t *testing.T) {
	const second = time.Second
	needs := map[string]time.Duration{"endless": time.Hour, "a": second, "slow": 4 * second,
		"b": second, "endless too": time.Hour}
	left, spent := 28*second, map[string]time.Duration{}
	paths := []string{"endless", "a", "slow", "b", "endless too"}
	trees := shareTime(paths, func() time.Duration { return left },
		func(path string, most time.Duration) world.TreeMeasured {
			took := min(most, needs[path])
			left, spent[path] = left-took, spent[path]+took
			return world.TreeMeasured{Inodes: int64(took), Unfinished: took < needs[path]}
		})
	for i, path := range paths {
		if wantUnfinished := needs[path] == time.Hour; trees[i].Unfinished != wantUnfinished {
			t.Errorf("%s: %+v, unfinished: want %t", path, trees[i], wantUnfinished)
		}
	}
	if left < 0 || spent["endless"] > 15*second || trees[4].Inodes == 0 {
		t.Errorf("%v are left, spent %v", left, spent)
	}
}

// What was found of a tree until the deadline is known.
func TestTreesUntilTheDeadline(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "f"), make([]byte, 8192), 0o600); err != nil {
		t.Fatal(err)
	}
	trees := func(left time.Duration) []world.TreeMeasured {
		ctx, cancel := context.WithTimeout(t.Context(), answerMargin+left)
		defer cancel()
		return measureTrees(ctx, []string{dir, dir + "/none"}).Trees
	}
	if got := trees(time.Minute); got[0].Inodes != 2 || got[0].Bytes < 8192 || got[0].Unfinished ||
		got[1] != (world.TreeMeasured{}) {
		t.Errorf("measured %+v", got)
	}
	if got := trees(0); !got[0].Unfinished {
		t.Errorf("without time: %+v", got)
	}
}

// What small trees leave of the time is for those that need more than their part.
func TestRestOfTheTimeIsUsed(t *testing.T) {
	left, needs := 14*time.Second, map[string]time.Duration{"slow": 4 * time.Second}
	paths := []string{"slow", "a", "b", "c", "d", "e", "f", "g", "h", "i"}
	trees := shareTime(paths, func() time.Duration { return left },
		func(path string, most time.Duration) world.TreeMeasured {
			took := min(most, needs[path])
			left -= took
			return world.TreeMeasured{Unfinished: took < needs[path]}
		})
	if trees[0].Unfinished {
		t.Errorf("%v are left, and a tree is unfinished", left)
	}
}

// makeDeep makes a directory with others within each other. They are more than are held open, and
// their path is longer than a path may be.
func makeDeep(t *testing.T, path string, depth int) {
	t.Helper()
	err := os.Mkdir(path, 0o755)
	dir, errOpen := unix.Open(path, unix.O_DIRECTORY, 0)
	name := strings.Repeat("x", 40)
	for range depth - 1 {
		err = errors.Join(err, errOpen, unix.Mkdirat(dir, name, 0o755))
		var below int
		below, errOpen = unix.Openat(dir, name, unix.O_DIRECTORY, 0)
		_ = unix.Close(dir) // it was read only
		dir = below
	}
	if err = errors.Join(err, errOpen, unix.Close(dir)); err != nil {
		t.Fatal(err)
	}
}

// A volume whose server does not answer is not looked at, also below a link: what the pod has
// besides is measured.
func TestTreesWithHungMount(t *testing.T) {
	dir := t.TempDir()
	hung := filepath.Join(dir, "real/pod/volumes/v/mount")
	if err := os.MkdirAll(hung, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "real/pod/f"), make([]byte, 8192), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("real", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	const deepest, depth = 10, 150 // some are read before the volume
	for i := range deepest {
		makeDeep(t, filepath.Join(dir, fmt.Sprint("real/pod/volumes/", i)), depth)
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
	ctx, cancel := context.WithTimeout(t.Context(), answerMargin+time.Minute)
	defer cancel()
	measured := make(chan []world.TreeMeasured, 1)
	go func() {
		measured <- measureTrees(ctx, []string{dir + "/link/pod", dir + "/real/pod"}).Trees
	}()
	select {
	case got := <-measured:
		for _, tree := range got { // the root, the file, volumes and v, not the mount point
			if tree.Inodes != 4+deepest*depth || tree.Bytes < 8192 || tree.Unfinished {
				t.Errorf("measured %+v", got)
			}
		}
	case <-time.After(30 * time.Second):
		t.Error("the measurement hangs at the mount point")
	}
}
