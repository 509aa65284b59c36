package disk_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"seedlet.dev/realworld/disk"
	"seedlet.dev/world"
)

// makeDeep creates directories within each other by names relative to their parent, since their
// path may be longer than the kernel allows. In each level it calls inside, if there is one.
func makeDeep(t *testing.T, dir string, levels int, name string, inside func(at, level int)) {
	t.Helper()
	at, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	for i := 0; i < levels && err == nil; i++ {
		if err = unix.Mkdirat(at, name, 0o755); err != nil {
			break
		}
		var next int
		next, err = unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		unix.Close(at)
		at = next
		if inside != nil && err == nil {
			inside(at, i)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(at)
}

// makeFile creates an empty file in an open directory.
func makeFile(t *testing.T, at int, name string) {
	t.Helper()
	fd, err := unix.Openat(at, name, unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(fd)
}

// openFiles returns the number of open files of this process.
func openFiles(t *testing.T) int {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// limitOpenFiles lowers the limit of open files to the present number and some more.
func limitOpenFiles(t *testing.T, more int) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	lowered := limit
	lowered.Cur = uint64(openFiles(t) + more)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &lowered); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Setrlimit(unix.RLIMIT_NOFILE, &limit) })
}

// A pod can create directories of any depth, in names that make their path longer than PATH_MAX.
// They are measured and removed with a bounded number of open files.
func TestDeepTree(t *testing.T) {
	const levels = 5000
	for _, name := range []string{"d", strings.Repeat("n", 255)} {
		h, dir := newHarness(t), t.TempDir()
		mkdir(t, filepath.Join(dir, "tree"))
		makeDeep(t, filepath.Join(dir, "tree"), levels, name, func(at, level int) {
			if level%100 == 0 {
				makeFile(t, at, "file")
			}
		})
		limitOpenFiles(t, 100)
		got := h.must(&world.MeasureTree{Path: dir}).(*world.TreeMeasured)
		if want := int64(2 + levels + levels/100); got.Inodes != want || got.Unfinished {
			t.Errorf("measured %+v, want %d inodes", got, want)
		}
		h.must(&world.ShareWithGroup{Path: filepath.Join(dir, "tree"), GID: 4711})
		if got := mustStat(t, filepath.Join(dir, "tree", name, name)); got.Gid != 4711 {
			t.Errorf("group %d of a directory in the tree, want 4711", got.Gid)
		}
		h.must(&world.RemoveTree{Path: filepath.Join(dir, "tree")})
		if names := names(t, dir); names != "" {
			t.Errorf("%q remains", names)
		}
	}
}

func mustStat(t *testing.T, path string) unix.Stat_t {
	t.Helper()
	var stat unix.Stat_t
	if err := unix.Lstat(path, &stat); err != nil {
		t.Fatal(err)
	}
	return stat
}

// A tree that is wide at every level, and at the level at which directories are moved up.
func TestDeepAndWideTree(t *testing.T) {
	h, dir := newHarness(t), t.TempDir()
	tree, inodes := mkdir(t, filepath.Join(dir, "tree")), int64(1)
	makeDeep(t, tree, 200, "d", func(at, level int) {
		inodes++
		for i := range 10 {
			side := fmt.Sprint("side", i)
			if err := unix.Mkdirat(at, side, 0o755); err != nil {
				t.Fatal(err)
			}
			makeFile(t, at, side+"/file")
			makeFile(t, at, fmt.Sprint("file", i))
			inodes += 3
		}
	})
	got := h.must(&world.MeasureTree{Path: tree}).(*world.TreeMeasured)
	if got.Inodes != inodes {
		t.Errorf("%d inodes, want %d", got.Inodes, inodes)
	}
	h.must(&world.RemoveTree{Path: tree})
	if names := names(t, dir); names != "" {
		t.Errorf("%q remains", names)
	}
}

// A name that cannot be removed does not keep its siblings, at any depth.
func TestRemoveTreeGoesOnAfterError(t *testing.T) {
	h, dir := newHarness(t), t.TempDir()
	tree := mkdir(t, filepath.Join(dir, "tree/b"))
	write(t, filepath.Join(tree, "kept"), "")
	setImmutable(t, filepath.Join(tree, "kept"), true)
	defer setImmutable(t, filepath.Join(tree, "kept"), false)
	for _, name := range []string{"a", "c"} {
		mkdir(t, filepath.Join(dir, "tree", name))
		makeDeep(t, filepath.Join(dir, "tree", name), 300, "d", nil)
		write(t, filepath.Join(tree, name), "")
	}
	h.mustFail(world.KindInternal, "tree/b/kept",
		&world.RemoveTree{Path: filepath.Join(dir, "tree")})
	if names := names(t, filepath.Join(dir, "tree")) + "/" + names(t, tree); names != "b/kept" {
		t.Errorf("%q remains, want b/kept", names)
	}
	setImmutable(t, filepath.Join(tree, "kept"), false)
	h.must(&world.RemoveTree{Path: filepath.Join(dir, "tree")})
}

// setImmutable sets or clears the attribute that makes a file impossible to remove.
func setImmutable(t *testing.T, path string, set bool) {
	t.Helper()
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	flags := 0
	if set {
		flags = unix.STATX_ATTR_IMMUTABLE
	}
	if err := unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, flags); err != nil {
		t.Skipf("cannot set the immutable attribute here: %v", err)
	}
}

// A mount deep in the tree that was created after the check: neither it nor a link is entered, and
// the rest is removed.
func TestRemoveTreeRefusesDeepMounts(t *testing.T) {
	h, dir := newHarness(t), t.TempDir()
	data := mkdir(t, filepath.Join(dir, "data"))
	write(t, filepath.Join(data, "precious"), "")
	deep := filepath.Join(dir, "tree", strings.Repeat("d/", 100))
	mkdir(t, filepath.Join(deep, "beside"))
	if err := os.Symlink(data, filepath.Join(deep, "link")); err != nil {
		t.Fatal(err)
	}
	mounted := mkdir(t, filepath.Join(deep, "mounted"))
	if err := syscall.Mount(data, mounted, "", syscall.MS_BIND, ""); err != nil {
		t.Skipf("cannot mount here: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(mounted, syscall.MNT_DETACH) })
	h.mustFail(world.KindRefused, "mounted", &world.RemoveTree{Path: filepath.Join(dir, "tree")})
	if names := names(t, deep); names != "beside link mounted" {
		t.Errorf("%q remains, want everything", names)
	}
	if err := disk.RemoveMounted(context.Background(), filepath.Join(dir, "tree")); err == nil {
		t.Error("no error for a mount that was created after the check")
	}
	if names := names(t, data); names != "precious" {
		t.Errorf("%q remains of what was mounted, want precious", names)
	}
	h.must(&world.Unmount{Path: filepath.Join(dir, "tree")})
	h.must(&world.RemoveTree{Path: filepath.Join(dir, "tree")})
}

// A tree of many names that cannot be measured in time is unfinished; with few names the disk is
// slow. If the effect has no time left, the walk has started late.
func TestMeasureTreeUnfinished(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "file"), "x")
	for i := range 40_000 {
		err := os.Link(filepath.Join(dir, "file"), filepath.Join(dir, fmt.Sprint("name", i)))
		if err != nil {
			t.Fatal(err)
		}
	}
	for timeout := time.Millisecond; timeout < time.Minute; timeout = timeout * 5 / 4 {
		m, err := disk.MeasureTreeWithin(t.Context(), dir, timeout)
		switch {
		case err != nil && !errors.Is(err, context.DeadlineExceeded):
			t.Fatal(err)
		case err != nil:
		case m.Unfinished:
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			defer cancel()
			if m, err := disk.MeasureTreeWithin(ctx, dir, time.Minute); err == nil && m.Unfinished {
				t.Error("unfinished although the walk had less time than it may take")
			}
			return
		default:
			t.Fatalf("measured completely within %v, and never in part", timeout)
		}
	}
}

// What is measured of a tree in time counts while no directory of it has been left.
func TestMeasureDeepTreeUnfinished(t *testing.T) {
	h, dir := newHarness(t), t.TempDir()
	makeDeep(t, dir, 40_000, "d", nil)
	t.Cleanup(func() { h.must(&world.RemoveTree{Path: dir + "/d"}) })
	for timeout := time.Millisecond; timeout < time.Minute; timeout = timeout * 9 / 8 {
		m, err := disk.MeasureTreeWithin(t.Context(), dir, timeout)
		switch {
		case err != nil && !errors.Is(err, context.DeadlineExceeded):
			t.Fatal(err)
		case err == nil && !m.Unfinished:
			t.Fatalf("measured completely within %v, and never in part on the way down", timeout)
		case err == nil && m.Inodes == 0:
			return
		}
	}
}

// The paths of a deep tree take little memory.
func TestMeasureDeepTreeAllocates(t *testing.T) {
	const levels = 5000
	dir := t.TempDir()
	makeDeep(t, dir, levels, "d", nil)
	t.Cleanup(func() { newHarness(t).must(&world.RemoveTree{Path: dir + "/d"}) })
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := disk.Measure(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if got := (after.TotalAlloc - before.TotalAlloc) / levels; got > 8<<10 {
		t.Errorf("%d bytes are allocated for each level", got)
	}
}

// A directory that is moved out of the tree during a walk does not lead the walk out of the tree.
func TestWalkOfMovedDirectory(t *testing.T) {
	dir := t.TempDir()
	tree := mkdir(t, filepath.Join(dir, "tree"))
	write(t, filepath.Join(mkdir(t, filepath.Join(dir, "outside")), "file"), "")
	makeDeep(t, tree, 200, "d", nil)
	visited := map[string]int{}
	err := disk.Walk(t.Context(), tree, func(name string) error {
		visited[name]++
		if visited[name] > 1 {
			return nil
		}
		// The deepest directory is visited first. The moved one is far above it, and closed.
		return os.Rename(filepath.Join(tree, strings.Repeat("d/", 50)),
			filepath.Join(dir, "outside/moved"))
	})
	worldErr, _ := errors.AsType[*world.Error](err)
	if !worldErr.Has(world.KindExhausted) || !strings.Contains(worldErr.Message, "was moved") {
		t.Errorf("error %v, want one about the moved directory", err)
	}
	if len(visited) != 1 || visited["d"] != 150 {
		t.Errorf("visited %v, want the 150 directories below the moved one", visited)
	}
}
