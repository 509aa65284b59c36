package disk_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"seedlet.dev/realworld/disk"
	"seedlet.dev/realworld/porttest"
	"seedlet.dev/world"
)

// hostileDir is a written volume, and its hidden directory as a container may have changed it.
func hostileDir(t *testing.T, h *harness) (m *world.WriteDir, hidden string) {
	t.Helper()
	m = &world.WriteDir{Path: filepath.Join(t.TempDir(), "volume"), Files: []world.DirFile{
		{Path: "a", Data: []byte("1"), Mode: 0o644}, {Path: "b/c", Data: []byte("2"), Mode: 0o644},
	}}
	h.must(m)
	target, err := os.Readlink(filepath.Join(m.Path, "..data"))
	if err != nil || !disk.IsWritten(t.Context(), m) {
		t.Fatalf("%s is not written: %v", target, err)
	}
	return m, filepath.Join(m.Path, target)
}

// What a container has put beside the desired files is noticed and written again.
func TestWrittenDirIsCompared(t *testing.T) {
	h := newHarness(t)
	for name, change := range map[string]func(hidden string) error{ //ordered: independent
		"a file more":        func(at string) error { return os.WriteFile(at+"/x", nil, 0o644) },
		"a directory more":   func(at string) error { return os.Mkdir(at+"/x", 0o755) },
		"a file deeper":      func(at string) error { return os.WriteFile(at+"/b/x", nil, 0o644) },
		"a file less":        func(at string) error { return os.Remove(at + "/a") },
		"other content":      func(at string) error { return os.WriteFile(at+"/a", []byte("9"), 0o644) },
		"a larger file":      func(at string) error { return os.Truncate(at+"/a", 1<<40) },
		"another mode":       func(at string) error { return os.Chmod(at+"/a", 0o666) },
		"an open directory":  func(at string) error { return os.Chmod(at+"/b", 0o777) },
		"a pipe":             func(at string) error { return replace(at+"/a", makePipe) },
		"a link":             func(at string) error { return replace(at+"/a", linkTo("b/c")) },
		"a link to the same": func(at string) error { return replace(at+"/b", linkTo("../copy")) },
		"a directory":        func(at string) error { return replace(at+"/a", makeDirectory) },
	} {
		m, hidden := hostileDir(t, h)
		mkdir(t, filepath.Join(m.Path, "copy"))
		write(t, filepath.Join(m.Path, "copy/c"), "2")
		if err := change(hidden); err != nil {
			t.Fatal(err)
		}
		if disk.IsWritten(t.Context(), m) {
			t.Errorf("%s: counts as written", name)
		}
		h.must(m)
		if !disk.IsWritten(t.Context(), m) {
			t.Errorf("%s: not written again", name)
		}
	}
}

// replace replaces a file or directory by another object.
func replace(path string, by func(path string) error) error {
	return errors.Join(os.RemoveAll(path), by(path))
}

func makePipe(path string) error { return syscall.Mkfifo(path, 0o644) }

func makeDirectory(path string) error { return os.Mkdir(path, 0o755) }

func linkTo(target string) func(string) error {
	return func(path string) error { return os.Symlink(target, path) }
}

// The cost of comparing is that of the desired files, not that of the existing ones.
func TestComparisonIsBounded(t *testing.T) {
	h := newHarness(t)
	m, hidden := hostileDir(t, h)
	const links = 50_000
	for i := range links {
		name := fmt.Sprintf("b/%s%d", strings.Repeat("x", 200), i)
		if err := os.Link(filepath.Join(hidden, "a"), filepath.Join(hidden, name)); err != nil {
			t.Fatal(err)
		}
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if disk.IsWritten(t.Context(), m) {
		t.Error("counts as written")
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 2<<20 {
		t.Errorf("allocated %d bytes for %d names", n, links)
	}
}

// A container that replaces a file by a pipe again and again cannot make a comparison wait.
func TestComparisonDoesNotBlock(t *testing.T) {
	h := newHarness(t)
	m, hidden := hostileDir(t, h)
	pipe := filepath.Join(m.Path, "pipe")
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	exchanged := make(chan struct{})
	go func() {
		defer close(exchanged)
		for ctx.Err() == nil {
			_ = makePipe(pipe)
			_ = unix.Renameat2(unix.AT_FDCWD, pipe, unix.AT_FDCWD, filepath.Join(hidden, "b/c"),
				unix.RENAME_EXCHANGE)
		}
	}()
	compared := make(chan struct{})
	go func() {
		defer close(compared)
		for ctx.Err() == nil {
			disk.IsWritten(context.Background(), m)
		}
	}()
	<-exchanged
	select {
	case <-compared:
	case <-time.After(porttest.Patience):
		t.Error("waits for a writer of a pipe")
		for _, name := range []string{pipe, filepath.Join(hidden, "b/c")} { // let it go on
			f, err := os.OpenFile(name, os.O_RDWR|unix.O_NONBLOCK, 0)
			if err == nil {
				time.Sleep(100 * time.Millisecond)
				f.Close()
			}
		}
		<-compared
	}
}

// A ConfigMap may have tens of thousands of keys. None of their files is synced: on a slow disk a
// sync takes many times as long as everything else.
func TestWriteDirOfManyFiles(t *testing.T) {
	h, dir := newHarness(t), t.TempDir()
	m := &world.WriteDir{Path: filepath.Join(dir, "volume")}
	for i := range 5000 {
		m.Files = append(m.Files, world.DirFile{Path: fmt.Sprint("key", i), Data: []byte("x"),
			Mode: 0o644})
	}
	syncs := disk.CountSyncs(t)
	h.must(m)
	if n := syncs.Load(); n != 0 {
		t.Errorf("%d syncs for %d files, want none", n, len(m.Files))
	}
	if !disk.IsWritten(t.Context(), m) {
		t.Error("is not written")
	}
	h.must(&world.WriteFile{Path: filepath.Join(dir, "file"), Data: []byte("x"), Mode: 0o644})
	if n := syncs.Load(); n != 2 { // of the file and its directory
		t.Errorf("%d syncs for one durable file, want 2", n)
	}
	checkSyncsAreCounted(t)
}

// checkSyncsAreCounted checks that the package syncs through its variable only.
func checkSyncsAreCounted(t *testing.T) {
	t.Helper()
	sources, err := filepath.Glob("*.go")
	if err != nil || len(sources) == 0 {
		t.Fatalf("no sources: %v", err)
	}
	for _, name := range sources {
		source, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		isTest := strings.HasSuffix(name, "_test.go")
		if !isTest && regexp.MustCompile(`\.Sync\(|F(data)?sync\(`).Match(source) {
			t.Errorf("%s does not sync by syncFile", name)
		}
	}
}

// Names of a container's own do not keep the agent from writing, however many there are.
func TestWriteDirBesideManyNames(t *testing.T) {
	h, memory := newHarness(t), filepath.Join(t.TempDir(), "memory") // where names are cheap
	h.must(&world.MountMemory{Path: memory, Mode: 0o755})
	defer h.must(&world.Unmount{Path: memory})
	m := &world.WriteDir{Path: memory, Files: []world.DirFile{{Path: "a", Mode: 0o644}}}
	h.must(m)
	for i := range 100_001 {
		if err := os.Symlink("x", filepath.Join(m.Path, fmt.Sprint("link", i))); err != nil {
			t.Fatal(err)
		}
	}
	m.Files[0].Data = []byte("rotated")
	h.must(m)
	if data, err := os.ReadFile(filepath.Join(m.Path, "a")); string(data) != "rotated" {
		t.Errorf("content %q, %v", data, err)
	}
}

func TestWriteDirRefusesLongPaths(t *testing.T) {
	h, path := newHarness(t), filepath.Join(t.TempDir(), "volume")
	h.mustFail(world.KindInvalid, "longer than 4096 bytes", &world.WriteDir{Path: path,
		Files: []world.DirFile{{Path: strings.Repeat("a/", 2048) + "b", Mode: 0o644}}})
}

// A kernel without openat2 does not enter mounts either, not even those of the same file system.
func TestOpenChildOfOldKernel(t *testing.T) {
	dir := t.TempDir()
	parent, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer parent.Close()
	mkdir(t, filepath.Join(dir, "data"))
	bound := mkdir(t, filepath.Join(dir, "bound"))
	if err := linkTo("data")(filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount(filepath.Join(dir, "data"), bound, "", syscall.MS_BIND, ""); err != nil {
		t.Skipf("cannot mount here: %v", err)
	}
	defer syscall.Unmount(bound, 0)
	for name, want := range map[string]error{ //ordered: independent
		"data": nil, "bound": unix.EXDEV, "link": unix.ELOOP, "absent": unix.ENOENT,
	} {
		child, err := disk.OpenChildOfOldKernel(parent, name)
		if !errors.Is(err, want) {
			t.Errorf("%s: error %v, want %v", name, err, want)
		}
		if err == nil {
			child.Close()
		}
	}
}
