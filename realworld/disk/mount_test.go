package disk_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"seedlet.dev/realworld/disk"
	"seedlet.dev/world"
)

func TestUnmountBusy(t *testing.T) {
	h, dir := newHarness(t), t.TempDir()
	defer h.must(&world.Unmount{Path: dir})
	path := filepath.Join(dir, "memory")
	h.must(&world.MountMemory{Path: path, Mode: 0o755})
	h.must(&world.MountMemory{Path: filepath.Join(path, "below"), Mode: 0o755})
	f, err := os.Create(filepath.Join(path, "below/file"))
	if err != nil {
		t.Fatal(err)
	}
	h.mustFail(world.KindExhausted, "below is in use", &world.Unmount{Path: dir})
	if n := mountCount(t, dir); n != 2 {
		t.Errorf("%d mounts, want both", n)
	}
	f.Close()
	if f, err = os.Create(filepath.Join(path, "file")); err != nil {
		t.Fatal(err)
	}
	h.mustFail(world.KindInternal, "memory is in use", &world.Unmount{Path: dir})
	if n := mountCount(t, dir); n != 1 {
		t.Errorf("%d mounts, want the one that is in use", n)
	}
	f.Close()
}

// A mount over another mount hides it.
func TestUnmountHidden(t *testing.T) {
	h, dir := newHarness(t), t.TempDir()
	defer h.must(&world.Unmount{Path: dir})
	over := mkdir(t, filepath.Join(dir, "over"))
	h.must(&world.MountMemory{Path: filepath.Join(over, "a b/c"), Mode: 0o755})
	for range 2 {
		if err := unix.Mount("none", over, "tmpfs", 0, ""); err != nil {
			t.Fatal(err)
		}
	}
	if n := mountCount(t, dir); n != 3 {
		t.Errorf("%d mounts, want 3", n)
	}
	h.must(&world.Unmount{Path: dir})
	if n := mountCount(t, dir); n != 0 {
		t.Errorf("%d mounts are left", n)
	}
}

func TestUnmountThroughLink(t *testing.T) {
	h, dir := newHarness(t), t.TempDir()
	defer h.must(&world.Unmount{Path: dir})
	h.must(&world.MountMemory{Path: filepath.Join(dir, "real/pod/memory"), Mode: 0o755})
	if err := os.Symlink("real", filepath.Join(dir, "root")); err != nil {
		t.Fatal(err)
	}
	h.must(&world.Unmount{Path: filepath.Join(dir, "root")}) // a link is no mount
	if n := mountCount(t, dir); n != 1 {
		t.Errorf("%d mounts, want 1: the last element is not followed", n)
	}
	h.must(&world.Unmount{Path: filepath.Join(dir, "root/pod")})
	if n := mountCount(t, dir); n != 0 {
		t.Errorf("%d mounts are left", n)
	}
	h.mustFail(world.KindRefused, "/ is not", &world.Unmount{Path: "/"})
}

func TestMountMemoryOverOther(t *testing.T) {
	h, dir := newHarness(t), t.TempDir()
	defer h.must(&world.Unmount{Path: dir})
	bound, data := mkdir(t, filepath.Join(dir, "bound")), mkdir(t, filepath.Join(dir, "data"))
	if err := unix.Mount(data, bound, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	h.mustFail(world.KindExists, "something else", &world.MountMemory{Path: bound})
	if n := mountCount(t, dir); n != 1 {
		t.Errorf("%d mounts, want 1", n)
	}
}

func TestMountMemoryOfHugePages(t *testing.T) {
	h, dir := newHarness(t), t.TempDir()
	defer h.must(&world.Unmount{Path: dir})
	path, size := filepath.Join(dir, "huge"), "2M"
	h.mustFail(world.KindInvalid, "huge", &world.MountMemory{Path: path, HugePages: "3M"})
	if _, err := os.Stat("/sys/kernel/mm/hugepages/hugepages-2048kB"); err != nil {
		h.mustFail(world.KindInvalid, "huge", &world.MountMemory{Path: path, HugePages: size})
		return
	}
	for range 2 {
		h.must(&world.MountMemory{Path: path, HugePages: size, BytesMax: 4 << 20, Mode: 0o770})
	}
	var stat unix.Statfs_t
	if err := unix.Statfs(path, &stat); err != nil || stat.Type != unix.HUGETLBFS_MAGIC ||
		stat.Bsize != 2<<20 || stat.Blocks != 2 {
		t.Errorf("mounted %+v, %v", stat, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o770 {
		t.Errorf("the root has mode %v, %v", info.Mode(), err)
	}
	if n := mountCount(t, dir); n != 1 {
		t.Errorf("%d mounts, want 1", n)
	}
}

func TestMeasureTree(t *testing.T) {
	h, dir := newHarness(t), t.TempDir()
	defer h.must(&world.Unmount{Path: dir})
	tree, data := mkdir(t, filepath.Join(dir, "tree/sub")), mkdir(t, filepath.Join(dir, "data"))
	write(t, filepath.Join(tree, "file"), "x")
	for _, name := range []string{"second", "../third"} {
		if err := os.Link(filepath.Join(tree, "file"), filepath.Join(tree, name)); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(data, "file"), "x")
	for _, name := range []string{"bound", "file-bound"} { // on the same device
		source, target := data, filepath.Join(tree, name)
		if name == "bound" {
			mkdir(t, target)
		} else {
			source = filepath.Join(data, "file")
			write(t, target, "")
		}
		if err := unix.Mount(source, target, "", unix.MS_BIND, ""); err != nil {
			t.Fatal(err)
		}
	}
	got := h.must(&world.MeasureTree{Path: filepath.Join(dir, "tree")}).(*world.TreeMeasured)
	if got.Inodes != 3 {
		t.Errorf("%+v, want two directories and one file", got)
	}
	f, err := os.Create(filepath.Join(dir, "sparse"))
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(1 << 30); err != nil {
		t.Fatal(err)
	}
	f.Close()
	got = h.must(&world.MeasureTree{Path: f.Name()}).(*world.TreeMeasured)
	if got.Inodes != 1 || got.Bytes > 1<<20 {
		t.Errorf("%+v, want the blocks of the sparse file", got)
	}
}

// An option may be one of the mount or of its file system.
func TestOptionsOfMounts(t *testing.T) {
	for _, c := range []struct {
		options, ofFileSystem string
		readOnly, labels      bool
	}{
		{"rw,noatime,seclabel", "rw", false, true},
		{"rw", "ro,seclabel,quota", true, true},
		{"ro,relatime", "rw,context=system_u:object_r:seclabel_t:s0", true, false},
	} {
		m := disk.WorldMount(&mountinfo.Info{Options: c.options, VFSOptions: c.ofFileSystem}, "/a")
		if m.ReadOnly != c.readOnly || m.SELinuxLabels != c.labels || m.Path != "/a" {
			t.Errorf("%+v: %+v", c, m)
		}
	}
}

// The label of a mount may have commas, and is in quotes then. Options with names that end in the
// same way are others.
func TestLabelOfMount(t *testing.T) {
	const label = "system_u:object_r:container_file_t:s0"
	for options, want := range map[string]world.Mount{
		`rw,seclabel`:                       {SELinuxLabels: true},
		`rw,context=` + label + `,grpid`:    {SELinuxContext: label},
		`context="` + label + `:c1,c2",ro`:  {SELinuxContext: label + ":c1,c2", ReadOnly: true},
		`rootcontext="` + label + `:c1,ro"`: {},
	} {
		want.Path, want.Device = "/x", "0:0"
		if got := disk.WorldMount(&mountinfo.Info{VFSOptions: options}, "/x"); got != want {
			t.Errorf("%s: %+v, want %+v", options, got, want)
		}
	}
}
