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

// volume is a directory with a volume that containers write to, and a directory outside the volume.
type volume struct {
	*harness
	dir string
}

func newVolume(h *harness, dir string) volume {
	v := volume{harness: h, dir: dir}
	for _, d := range []string{"volume/dir/sub", "outside/secret"} {
		mkdir(h.t, v.path(d))
	}
	write(h.t, v.path("volume/dir/file"), "inside")
	write(h.t, v.path("outside/secret/file"), "outside")
	for name, target := range map[string]string{ //ordered: independent
		"in": "dir", "up": "..", "out": "../outside", "abs": v.path("outside"), "root": "/",
		"dir/back": "..", "dir/out": "../../outside", "nowhere": "dir/none", "loop": "loop",
		"proc": "/proc/self/cwd", "long": "dir/../dir/sub/../../in/file",
	} {
		if err := os.Symlink(target, v.path("volume/"+name)); err != nil {
			h.t.Fatal(err)
		}
	}
	return v
}

func (v volume) path(name string) string { return filepath.Join(v.dir, name) }

func (v volume) bind(subPath string) *world.Error {
	_, err := v.do(&world.BindSubPath{Root: v.path("volume"), SubPath: subPath,
		Target: v.path("target")})
	return err
}

// contains reports whether a file is in a tree, by its inode and not by its name.
func contains(t *testing.T, tree string, file os.FileInfo) bool {
	t.Helper()
	found := false
	err := filepath.Walk(tree, func(_ string, info os.FileInfo, err error) error {
		found = found || err == nil && os.SameFile(info, file)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// FuzzBindSubPath checks that no path escapes a volume that has every kind of link in it.
func FuzzBindSubPath(f *testing.F) {
	for _, seed := range []string{"dir", "in/file", "up", "out/secret", "abs", "root/etc", "dir/back",
		"dir/out/secret", "nowhere/x", "loop", "proc", "../outside", "dir/../..", "/outside",
		"dir//sub/.", "", "long", "in/back/in/new/a", "\x00", "out/new", "..x/y", "dir/file/x"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, subPath string) {
		v := newVolume(newHarness(t), t.TempDir())
		defer v.must(&world.Unmount{Path: v.dir})
		err := v.bind(subPath)
		if err == nil {
			info, err := os.Stat(v.path("target"))
			if err != nil || !contains(t, v.path("volume"), info) {
				t.Errorf("%q escaped the volume (%v)", subPath, err)
			}
		} else if !err.Has(world.KindInvalid) {
			t.Errorf("%q: %v", subPath, err)
		}
		if all := names(t, v.path("outside")) + names(t, v.path("outside/secret")); all !=
			"secretfile" {
			t.Errorf("%q created a file outside: %q", subPath, all)
		}
	})
}

// A container exchanges a directory and a link out of the volume during the mount.
func TestBindSubPathRace(t *testing.T) {
	v := newVolume(newHarness(t), t.TempDir())
	defer v.must(&world.Unmount{Path: v.dir})
	mkdir(t, v.path("volume/x"))
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				_ = unix.Renameat2(unix.AT_FDCWD, v.path("volume/x"), unix.AT_FDCWD,
					v.path("volume/out"), unix.RENAME_EXCHANGE)
			}
		}
	}()
	inside, refused := 0, 0
	for i := range 300 {
		err := v.bind(fmt.Sprintf("x/new%d", i%3))
		if err != nil {
			refused++
			continue
		}
		inside++
		if info, err := os.Stat(v.path("target")); err != nil ||
			contains(t, v.path("outside"), info) {
			t.Fatalf("mounted a file outside the volume (%v)", err)
		}
	}
	close(stop)
	<-stopped
	if all := names(t, v.path("outside")); all != "secret" {
		t.Errorf("created a file outside: %q", all)
	}
	t.Logf("mounted %d times, refused %d times", inside, refused)
}

// A container with access to the volume may create files of other types in it.
func TestBindSubPathOfPipe(t *testing.T) {
	v := newVolume(newHarness(t), t.TempDir())
	defer v.must(&world.Unmount{Path: v.dir})
	if err := unix.Mkfifo(v.path("volume/pipe"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := v.bind("pipe"); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(v.path("target"))
	if err != nil || info.Mode()&os.ModeNamedPipe == 0 {
		t.Errorf("the target is %v, %v", info.Mode(), err)
	}
}

func TestBindSubPathTargetConflict(t *testing.T) {
	v := newVolume(newHarness(t), t.TempDir())
	defer v.must(&world.Unmount{Path: v.dir})
	write(t, v.path("target"), "existing")
	if err := v.bind("dir"); !err.Has(world.KindInvalid) {
		t.Errorf("error %v, want Invalid", err)
	}
	data, err := os.ReadFile(v.path("target"))
	if err != nil || string(data) != "existing" {
		t.Errorf("the target is %q, %v", data, err)
	}
}

func TestBindSubPathKeepsGroup(t *testing.T) {
	v := newVolume(newHarness(t), t.TempDir())
	defer v.must(&world.Unmount{Path: v.dir})
	v.must(&world.ShareWithGroup{Path: v.path("volume"), GID: 4711})
	if err := v.bind("new/dir"); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(v.path("volume/new/dir"))
	if err != nil || info.Mode() != os.ModeDir|os.ModeSetgid|0o775 {
		t.Errorf("the new directory has mode %v, %v", info.Mode(), err)
	}
}

// mountCount returns the number of mounts at or below a path.
func mountCount(t *testing.T, path string) int {
	t.Helper()
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(string(data)) {
		at := strings.Fields(line)[4]
		if at == path || strings.HasPrefix(at, path+"/") {
			n++
		}
	}
	return n
}
