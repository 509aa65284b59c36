package disk_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"seedlet.dev/world"
)

// /dev/zero would be read for ever, and opening some devices sets them going.
func TestReadTailOfDevice(t *testing.T) {
	b, path := newBench(t), filepath.Join(t.TempDir(), "zero")
	if err := unix.Mknod(path, unix.S_IFCHR|0o644, int(unix.Mkdev(1, 5))); err != nil {
		t.Fatal(err)
	}
	b.mustFail(world.KindInvalid, "zero", &world.ReadTail{Path: path, BytesMax: 10})
	got := b.must(&world.StatPath{Path: path}).(*world.PathInfo)
	if got.Kind != world.PathCharDevice {
		t.Errorf("it is %+v", got)
	}
}

func TestShareWithGroupKeepsBits(t *testing.T) {
	b, dir := newBench(t), t.TempDir()
	tool := filepath.Join(dir, "tool")
	write(t, tool, "x")
	if err := os.Chmod(tool, fs.ModeSetuid|0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, fs.ModeSticky|0o777); err != nil {
		t.Fatal(err)
	}
	b.must(&world.ShareWithGroup{Path: dir, GID: 4711})
	for path, want := range map[string]fs.FileMode{ //ordered: independent
		tool: fs.ModeSetuid | 0o775, dir: fs.ModeDir | fs.ModeSticky | fs.ModeSetgid | 0o777,
	} {
		info, err := os.Stat(path)
		if err != nil || info.Mode() != want || info.Sys().(*syscall.Stat_t).Gid != 4711 {
			t.Errorf("%s has mode %v, %v, want %v", path, info.Mode(), err, want)
		}
	}
}

func TestCompressAfterKill(t *testing.T) {
	b, dir := newBench(t), t.TempDir()
	path := filepath.Join(dir, "0.log.20260101-000000")
	write(t, path, "text")
	write(t, filepath.Join(dir, "."+filepath.Base(path)+".gz.new-123"), "half")
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	b.must(&world.Compress{Path: path})
	if all := names(t, dir); all != filepath.Base(path)+".gz" {
		t.Errorf("left %q", all)
	}
	if info, err := os.Stat(path + ".gz"); err != nil || info.Mode() != 0o640 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

// FuzzWriteDir checks that no path leads out of the directory, and that what is answered is so.
func FuzzWriteDir(f *testing.F) {
	for _, seed := range []string{"a", "a/b", "..", "../x", "a/../../x", "/x", "..data/a", "link/x",
		"dir/x", "\x00", "a\n", ".", "", "a//b", ".a", "..."} {
		f.Add(seed, "kept")
		f.Add("kept", seed)
	}
	f.Fuzz(func(t *testing.T, one, two string) {
		b, dir := newBench(t), t.TempDir()
		mkdir(t, filepath.Join(dir, "outside"))
		path := mkdir(t, filepath.Join(dir, "volume"))
		mkdir(t, filepath.Join(path, "dir"))
		if err := os.Symlink("../outside", filepath.Join(path, "link")); err != nil {
			t.Fatal(err)
		}
		_, err := b.do(&world.WriteDir{Path: path, Files: []world.DirFile{
			{Path: one, Data: []byte("1"), Mode: 0o644}, {Path: two, Data: []byte("2"), Mode: 0o644},
		}})
		switch {
		case err == nil:
			for i, p := range []string{one, two} {
				data, err := os.ReadFile(filepath.Join(path, p))
				if err != nil || string(data) != fmt.Sprint(i+1) {
					t.Errorf("%q holds %q, %v", p, data, err)
				}
			}
		case err.Has(world.KindInvalid), err.Has(world.KindExists):
			if all := names(t, path); all != "dir link" {
				t.Errorf("%q, %q: refused, yet there is %q", one, two, all)
			}
		default:
			t.Errorf("%q, %q: %v", one, two, err)
		}
		all := names(t, dir) + " " + names(t, filepath.Join(dir, "outside")) +
			names(t, filepath.Join(path, "dir"))
		if all != "outside volume " {
			t.Errorf("%q, %q: made something outside: %q", one, two, all)
		}
	})
}

// Whatever was written before, and wherever it was killed, the last write is what there is.
func TestWriteDirSequences(t *testing.T) {
	b, memory := newBench(t), filepath.Join(t.TempDir(), "memory") // where forcing costs nothing
	b.must(&world.MountMemory{Path: memory, Mode: 0o755})
	defer b.must(&world.Unmount{Path: memory})
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
			b.must(&world.WriteDir{Path: dir, Files: files})
			for _, p := range paths {
				data, err := os.ReadFile(filepath.Join(dir, p))
				content, there := want[p]
				if there != (err == nil) || string(data) != content {
					r.Fatalf("%s holds %q, %v; want %q", p, data, err, content)
				}
			}
			if all := names(t, dir); strings.Count(all, "..") != 2 {
				r.Fatalf("left %q", all)
			}
			if rapid.Bool().Draw(r, "killed") {
				leaveHalf(r, dir, rapid.SampledFrom(paths).Draw(r, "name"))
			}
		}
	})
}

// leaveHalf leaves what a write that was killed may leave.
func leaveHalf(r *rapid.T, dir, name string) {
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
	case 2: // the link was swapped, nothing shown
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

// A reader that holds on to what the link leads to sees the files of one write, never of two.
func TestWriteDirIsOneInstant(t *testing.T) {
	b, memory := newBench(t), filepath.Join(t.TempDir(), "memory")
	b.must(&world.MountMemory{Path: memory, Mode: 0o755})
	defer b.must(&world.Unmount{Path: memory})
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
		b.must(&world.WriteDir{Path: dir, Files: []world.DirFile{
			{Path: "one", Data: data, Mode: 0o644}, {Path: "sub/two", Data: data, Mode: 0o644},
		}})
	}
	close(stop)
	<-stopped
	if reads == 0 {
		t.Error("nothing was read")
	}
}

// readBoth reads two files of one write; false if it was replaced meanwhile.
func readBoth(dir string) (one, two string, ok bool) {
	root, err := os.OpenRoot(filepath.Join(dir, "..data"))
	if err != nil {
		return "", "", false
	}
	defer root.Close()
	a, errA := root.ReadFile("one")
	b, errB := root.ReadFile("sub/two")
	return string(a), string(b), errA == nil && errB == nil
}
