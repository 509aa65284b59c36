package disk_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"seedlet.dev/realworld/disk"
	"seedlet.dev/world"
)

// Mount points are found without the mount table: directories, files, and the root of the tree, and
// none of another mount, behind a link, or beside the tree.
func TestMountPoints(t *testing.T) {
	h, dir := newHarness(t), t.TempDir()
	tree := mkdir(t, filepath.Join(dir, "tree"))
	defer h.must(&world.Unmount{Path: dir})
	check := func(want ...string) {
		t.Helper()
		points, known := disk.MountPoints(tree)
		slices.Sort(points)
		if !known || !slices.Equal(points, want) {
			t.Errorf("found %q (known: %v), want %q", points, known, want)
		}
	}
	check()
	beside := mkdir(t, filepath.Join(dir, "tree2"))
	bind := func(from, to string) {
		t.Helper()
		if err := unix.Mount(from, to, "", unix.MS_BIND, ""); err != nil {
			t.Fatal(err)
		}
	}
	bind(beside, beside)
	if err := os.Symlink(beside, filepath.Join(tree, "link")); err != nil {
		t.Fatal(err)
	}
	check()
	below := mkdir(t, filepath.Join(tree, "a/b"))
	bind(below, below) // of the same file system
	file := filepath.Join(tree, "a/file")
	write(t, file, "")
	bind(file, file)
	memory := filepath.Join(tree, "memory")
	h.must(&world.MountMemory{Path: memory, Mode: 0o755})
	h.must(&world.MountMemory{Path: filepath.Join(memory, "below"), Mode: 0o755})
	check(below, file, memory)
	bind(tree, tree)
	check(tree)
}

// What cannot be looked at completely is not known.
func TestMountPointsOfLargeTree(t *testing.T) {
	dir := t.TempDir()
	for i := range 300 {
		write(t, filepath.Join(dir, fmt.Sprint(i)), "")
	}
	if _, known := disk.MountPoints(dir); known {
		t.Error("the mounts of 300 names are known")
	}
	deep := t.TempDir()
	mkdir(t, filepath.Join(deep, strings.Repeat("a/", 100)))
	if _, known := disk.MountPoints(deep); known {
		t.Error("the mounts of a tree of 100 levels are known")
	}
	if points, known := disk.MountPoints(filepath.Join(dir, "none/none")); !known || points != nil {
		t.Errorf("at a path that does not exist: %q (known: %v)", points, known)
	}
}

// The mount table has all mounts of the machine: neither the start nor the end of a pod with a
// volume in memory reads it.
func TestPodReadsNoMountTable(t *testing.T) {
	h, dir := newHarness(t), t.TempDir()
	volume := filepath.Join(dir, "pod/volumes/v")
	mkdir(t, filepath.Dir(volume))
	reads := disk.CountMountTables(t)
	h.must(&world.MountMemory{Path: volume, Mode: 0o755})
	write(t, filepath.Join(volume, "token"), "x")
	h.must(&world.Unmount{Path: filepath.Dir(volume)})
	if n := mountCount(t, dir); n != 0 {
		t.Errorf("%d mounts are left", n)
	}
	h.must(&world.RemoveTree{Path: filepath.Join(dir, "pod")})
	if n := reads.Load(); n != 0 {
		t.Errorf("the mount table was read %d times", n)
	}
}

// A mount is named before anything is removed, also one that the mount table has to be read for.
func TestMountInLargeTreeIsRefused(t *testing.T) {
	h, dir := newHarness(t), t.TempDir()
	tree := mkdir(t, filepath.Join(dir, "tree"))
	for i := range 300 {
		write(t, filepath.Join(tree, fmt.Sprint(i)), "")
	}
	h.must(&world.MountMemory{Path: filepath.Join(tree, "volume"), Mode: 0o755})
	h.mustFail(world.KindRefused, "is mounted at "+filepath.Join(tree, "volume"),
		&world.RemoveTree{Path: tree})
	if entries, err := os.ReadDir(tree); err != nil || len(entries) != 301 {
		t.Errorf("%d names are left: %v", len(entries), err)
	}
	h.must(&world.Unmount{Path: tree})
	h.must(&world.RemoveTree{Path: tree})
}

// Where the kernel cannot be asked about names, the mount table says what is mounted.
func TestMountsWithoutOpenat2(t *testing.T) {
	for _, err := range []error{unix.ENOSYS, unix.EPERM, unix.EMFILE} {
		t.Run(err.Error(), func(t *testing.T) {
			h, dir := newHarness(t), t.TempDir()
			tree := mkdir(t, filepath.Join(dir, "tree"))
			volume := filepath.Join(tree, "a/volume")
			h.must(&world.MountMemory{Path: volume, Mode: 0o755})
			disk.FailOpenat2(t, err)
			if _, known := disk.MountPoints(tree); known {
				t.Error("the mounts are known")
			}
			h.mustFail(world.KindRefused, "is mounted at "+volume, &world.RemoveTree{Path: tree})
			mounted := h.must(&world.BindMount{Source: dir, Path: volume}).(*world.Mounted)
			if !mounted.Existed {
				t.Error("mounted over a mount")
			}
			h.must(&world.Unmount{Path: tree})
			if n := mountCount(t, dir); n != 0 {
				t.Errorf("%d mounts are left", n)
			}
			if err != unix.EMFILE { // without openat2, directories are opened as before Linux 5.6
				h.must(&world.RemoveTree{Path: tree})
			}
		})
	}
}

// Mounts that are stacked at one path are all unmounted, however many.
func TestUnmountStack(t *testing.T) {
	for _, layers := range []int{2, 8, 30} {
		h, dir := newHarness(t), t.TempDir()
		at := mkdir(t, filepath.Join(dir, "at"))
		for range layers {
			if err := unix.Mount("none", at, "tmpfs", 0, ""); err != nil {
				t.Fatal(err)
			}
		}
		h.must(&world.Unmount{Path: at})
		if n := mountCount(t, dir); n != 0 {
			t.Errorf("%d of %d mounts are left", n, layers)
		}
	}
}

// A path at which nothing is mounted costs no mount table, and one below a missing directory has
// no mount.
func TestMountedAtReadsNoTable(t *testing.T) {
	h, dir := newHarness(t), t.TempDir()
	source, target := mkdir(t, filepath.Join(dir, "source")), filepath.Join(dir, "target")
	mkdir(t, target)
	reads := disk.CountMountTables(t)
	h.must(&world.BindMount{Source: source, Path: target})
	if n := reads.Load(); n != 0 {
		t.Errorf("the mount table was read %d times", n)
	}
	again := h.must(&world.BindMount{Source: source, Path: target}).(*world.Mounted)
	if !again.Existed || reads.Load() == 0 {
		t.Errorf("%+v after %d reads of the mount table", again, reads.Load())
	}
	h.must(&world.Unmount{Path: target})
}

func TestIsNFS(t *testing.T) {
	dir := t.TempDir()
	for fsType, want := range map[string]bool{"nfs": true, "nfs4": true, "ext4": false} {
		if got := disk.IsNFSInTable(t, dir, fsType); got != want {
			t.Errorf("%s is a network file system: %v", fsType, got)
		}
	}
}
