package disk_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"seedlet.dev/world"
)

// Reading /dev/zero would never end, and opening some devices has side effects.
func TestReadTailOfDevice(t *testing.T) {
	h, path := newHarness(t), filepath.Join(t.TempDir(), "zero")
	if err := unix.Mknod(path, unix.S_IFCHR|0o644, int(unix.Mkdev(1, 5))); err != nil {
		t.Fatal(err)
	}
	h.mustFail(world.KindInvalid, "zero", &world.ReadTail{Path: path, BytesMax: 10})
	got := h.must(&world.StatPath{Path: path}).(*world.PathInfo)
	if got.Kind != world.PathCharDevice {
		t.Errorf("got %+v", got)
	}
}

func TestShareWithGroupKeepsBits(t *testing.T) {
	h, dir := newHarness(t), t.TempDir()
	tool := filepath.Join(dir, "tool")
	write(t, tool, "x")
	if err := os.Chmod(tool, fs.ModeSetuid|0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, fs.ModeSticky|0o777); err != nil {
		t.Fatal(err)
	}
	h.must(&world.ShareWithGroup{Path: dir, GID: 4711})
	for path, want := range map[string]fs.FileMode{ //ordered: independent
		tool: fs.ModeSetuid | 0o775, dir: fs.ModeDir | fs.ModeSticky | fs.ModeSetgid | 0o777,
	} {
		info, err := os.Stat(path)
		if err != nil || info.Mode() != want || info.Sys().(*syscall.Stat_t).Gid != 4711 {
			t.Errorf("%s has mode %v, %v, want %v", path, info.Mode(), err, want)
		}
	}
}

// Files that refuse to be changed do not keep a pod from the others.
func TestShareWithGroupOfImmutableFile(t *testing.T) {
	var warnings []string
	h := newHarness(t)
	h.warn = func(problem string) { warnings = append(warnings, problem) }
	dir := t.TempDir()
	fixed, free := filepath.Join(dir, "a-fixed"), filepath.Join(dir, "free")
	write(t, fixed, "x")
	write(t, free, "x")
	setImmutable(t, fixed, true)
	defer setImmutable(t, fixed, false)
	h.must(&world.ShareWithGroup{Path: dir, GID: 4711})
	for path, want := range map[string]uint32{fixed: 0, free: 4711, dir: 4711} {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if gid := info.Sys().(*syscall.Stat_t).Gid; gid != want {
			t.Errorf("%s has group %d, want %d", path, gid, want)
		}
	}
	want := fmt.Sprintf("1 files of %s cannot be shared with group 4711, such as %q: "+
		"operation not permitted", dir, fixed)
	if !slices.Equal(warnings, []string{want}) {
		t.Errorf("warned of %q, want %q", warnings, want)
	}
}

func TestCompressAfterKill(t *testing.T) {
	h, dir := newHarness(t), t.TempDir()
	path := filepath.Join(dir, "0.log.20260101-000000")
	write(t, path, "text")
	write(t, filepath.Join(dir, "."+filepath.Base(path)+".gz.new-123"), "half")
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	h.must(&world.Compress{Path: path})
	if all := names(t, dir); all != filepath.Base(path)+".gz" {
		t.Errorf("the directory has %q", all)
	}
	if info, err := os.Stat(path + ".gz"); err != nil || info.Mode() != 0o640 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

// FuzzWriteDir checks that no path escapes the directory, and that the result is true.
func FuzzWriteDir(f *testing.F) {
	for _, seed := range []string{"a", "a/b", "..", "../x", "a/../../x", "/x", "..data/a", "link/x",
		"dir/x", "\x00", "a\n", ".", "", "a//b", ".a", "..."} {
		f.Add(seed, "kept")
		f.Add("kept", seed)
	}
	f.Fuzz(func(t *testing.T, one, two string) {
		h, dir := newHarness(t), t.TempDir()
		mkdir(t, filepath.Join(dir, "outside"))
		path := mkdir(t, filepath.Join(dir, "volume"))
		mkdir(t, filepath.Join(path, "dir"))
		if err := os.Symlink("../outside", filepath.Join(path, "link")); err != nil {
			t.Fatal(err)
		}
		_, err := h.do(&world.WriteDir{Path: path, Files: []world.DirFile{
			{Path: one, Data: []byte("1"), Mode: 0o644}, {Path: two, Data: []byte("2"), Mode: 0o644},
		}})
		switch {
		case err == nil:
			for i, p := range []string{one, two} {
				data, err := os.ReadFile(filepath.Join(path, "..data", p))
				if err != nil || string(data) != fmt.Sprint(i+1) {
					t.Errorf("%q has content %q, %v", p, data, err)
				}
			}
		case err.Has(world.KindInvalid), err.Has(world.KindExists):
			if all := names(t, path); all != "dir link" {
				t.Errorf("%q, %q: refused, but the directory has %q", one, two, all)
			}
		default:
			t.Errorf("%q, %q: %v", one, two, err)
		}
		all := names(t, dir) + " " + names(t, filepath.Join(dir, "outside")) +
			names(t, filepath.Join(path, "dir"))
		if all != "outside volume " {
			t.Errorf("%q, %q: created a file outside: %q", one, two, all)
		}
	})
}

// The content is that of the last write, whatever was written before and wherever a write was
// killed.
func TestWriteDirSequences(t *testing.T) {
	h, memory := newHarness(t), filepath.Join(t.TempDir(), "memory") // where a sync is cheap
	h.must(&world.MountMemory{Path: memory, Mode: 0o755})
	defer h.must(&world.Unmount{Path: memory})
	paths := []string{"a", "b", "c/d", "c/e", "f/g/h"}
	rapid.Check(t, func(r *rapid.T) {
		dir, err := os.MkdirTemp(memory, "")
		if err != nil {
			r.Fatal(err)
		}
		for range rapid.IntRange(1, 5).Draw(r, "writes") {
			want := map[string]string{}
			var files []world.DirFile
			for _, p := range paths {
				if rapid.Bool().Draw(r, p) {
					want[p] = rapid.SampledFrom([]string{"", "1", "2"}).Draw(r, "content")
					files = append(files, world.DirFile{Path: p, Data: []byte(want[p]), Mode: 0o644})
				}
			}
			h.must(&world.WriteDir{Path: dir, Files: files})
			for _, p := range paths {
				data, err := os.ReadFile(filepath.Join(dir, p))
				content, there := want[p]
				if there != (err == nil) || string(data) != content {
					r.Fatalf("%s has content %q, %v; want %q", p, data, err, content)
				}
			}
			if all := names(t, dir); strings.Count(all, "..") != 2 {
				r.Fatalf("the directory has %q", all)
			}
			if rapid.Bool().Draw(r, "killed") {
				leavePartialWrite(r, dir, rapid.SampledFrom(paths).Draw(r, "name"))
			}
		}
	})
}

// leavePartialWrite creates the leftovers of a killed write.
func leavePartialWrite(r *rapid.T, dir, name string) {
	name, _, _ = strings.Cut(name, "/")
	hidden := filepath.Join(dir, "..2020_01_01_00_00_00.000000001")
	err := os.Mkdir(hidden, 0o700)
	if err == nil {
		err = os.WriteFile(filepath.Join(hidden, name), []byte("half"), 0o600)
	}
	switch rapid.IntRange(0, 3).Draw(r, "killed at") {
	case 0:
		return
	case 1:
		err = os.Symlink(filepath.Base(hidden), filepath.Join(dir, "..data_tmp"))
	case 2: // after the swap, before the visible names
		beside := filepath.Join(dir, "..data_tmp")
		if err = os.Symlink(filepath.Base(hidden), beside); err == nil {
			err = os.Rename(beside, filepath.Join(dir, "..data"))
		}
	case 3:
		_ = os.Remove(filepath.Join(dir, name))
	}
	if err != nil {
		r.Fatal(err)
	}
}

// A reader that holds the link's target open sees the files of one write, never of two.
func TestWriteDirIsAtomic(t *testing.T) {
	h, memory := newHarness(t), filepath.Join(t.TempDir(), "memory")
	h.must(&world.MountMemory{Path: memory, Mode: 0o755})
	defer h.must(&world.Unmount{Path: memory})
	dir := filepath.Join(memory, "volume")
	stop, stopped := make(chan struct{}), make(chan struct{})
	reads := 0
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
			}
			if one, two, ok := readBoth(dir); ok {
				reads++
				if one != two {
					t.Errorf("read %q and %q", one, two)
				}
			}
		}
	}()
	for i := range 300 {
		data := []byte(fmt.Sprint(i))
		h.must(&world.WriteDir{Path: dir, Files: []world.DirFile{
			{Path: "one", Data: data, Mode: 0o644}, {Path: "sub/two", Data: data, Mode: 0o644},
		}})
	}
	close(stop)
	<-stopped
	if reads == 0 {
		t.Error("nothing was read")
	}
}

// readBoth reads two files of one write; false if the write was replaced meanwhile.
func readBoth(dir string) (one, two string, ok bool) {
	root, err := os.OpenRoot(filepath.Join(dir, "..data"))
	if err != nil {
		return "", "", false
	}
	defer root.Close()
	a, errA := root.ReadFile("one")
	h, errB := root.ReadFile("sub/two")
	return string(a), string(h), errA == nil && errB == nil
}
