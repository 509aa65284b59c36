package replacefile

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
)

func TestWrite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "made", "file")
	for _, text := range []string{"first", "second"} {
		if err := Write(path, []byte(text), 0o750); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != text {
			t.Errorf("%q, %v, want %q", got, err, text)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file is %v, %v", info, err)
	}
	if info, err := os.Stat(filepath.Dir(path)); err != nil || info.Mode().Perm() != 0o750 {
		t.Errorf("the directory is %v, %v", info, err)
	}
}

// A file that cannot be replaced stays, and nothing is left beside it.
func TestFailedWrite(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "directory")
	if err := os.MkdirAll(filepath.Join(path, "within"), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := Write(path, []byte("text"), 0o750); err == nil {
		t.Error("a directory was replaced")
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("the directory has %v, %v", left, err)
	}
}

// The mode is that which is asked for, whatever the file had and what new files may have.
func TestWritePublic(t *testing.T) {
	before := syscall.Umask(0o077)
	defer syscall.Umask(before)
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := WritePublic(path, []byte("text"), 0o750); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("the file is %v, %v", info, err)
	}
}

// A link stays a link, and the file that it refers to is replaced: its readers see no torn content.
func TestWriteThroughLink(t *testing.T) {
	dir := t.TempDir()
	file, link := filepath.Join(dir, "elsewhere", "file"), filepath.Join(dir, "link")
	if err := errors.Join(os.Mkdir(filepath.Dir(file), 0o750), os.WriteFile(file, nil, 0o600),
		os.Symlink("elsewhere/file", filepath.Join(dir, "middle")),
		os.Symlink(filepath.Join(dir, "middle"), link)); err != nil {
		t.Fatal(err)
	}
	old, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := WriteThrough(link, []byte("text"), 0o750); err != nil {
		t.Fatal(err)
	}
	if now, err := os.Stat(file); err != nil || os.SameFile(now, old) {
		t.Errorf("the file was written in its place: %v", err)
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != "text" {
		t.Errorf("%q, %v", got, err)
	}
	if to, err := os.Readlink(link); err != nil || to != filepath.Join(dir, "middle") {
		t.Errorf("the link refers to %q, %v", to, err)
	}
}

// A file that is mounted by itself, as into a container, cannot be replaced by a rename.
func TestWriteToMount(t *testing.T) {
	dir := t.TempDir()
	file, mounted := filepath.Join(dir, "file"), filepath.Join(dir, "mounted")
	if err := errors.Join(os.WriteFile(file, []byte("longer than before"), 0o600),
		os.WriteFile(mounted, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	written := make(chan error)
	go func() {
		runtime.LockOSThread() // its mount namespace ends with it
		err := syscall.Unshare(syscall.CLONE_FS | syscall.CLONE_NEWNS)
		if err == nil {
			err = syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, "")
		}
		if err == nil {
			err = syscall.Mount(file, mounted, "", syscall.MS_BIND, "")
		}
		if err == nil {
			err = Write(mounted, []byte("text"), 0o750)
		}
		written <- err
	}()
	if err := <-written; err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != "text" {
		t.Errorf("%q, %v", got, err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 2 {
		t.Errorf("the directory has %v, %v", left, err)
	}
}

// Other files are not followed through links, nor is what is no file replaced: a drop-in that an
// administrator has masked refers to a device.
func TestLinksThatAreNotFollowed(t *testing.T) {
	dir := t.TempDir()
	pipe, link := filepath.Join(dir, "pipe"), filepath.Join(dir, "link")
	if err := errors.Join(syscall.Mkfifo(pipe, 0o600), os.Symlink(pipe, link)); err != nil {
		t.Fatal(err)
	}
	if err := WriteThrough(link, []byte("text"), 0o750); err == nil {
		t.Error("a pipe was replaced through a link")
	}
	if err := WritePublic(link, []byte("text"), 0o750); err != nil {
		t.Error(err)
	}
	if got, err := os.ReadFile(link); err != nil || string(got) != "text" {
		t.Errorf("%q, %v", got, err)
	}
	if info, err := os.Lstat(pipe); err != nil || info.Mode()&os.ModeNamedPipe == 0 {
		t.Errorf("the pipe is %v, %v", info, err)
	}
}

// The file to which a link refers is made; a link that refers to itself is an error.
func TestDanglingLinks(t *testing.T) {
	dir := t.TempDir()
	link, loop := filepath.Join(dir, "link"), filepath.Join(dir, "loop")
	if err := errors.Join(os.Symlink("data/file", link), os.Symlink("loop", loop)); err != nil {
		t.Fatal(err)
	}
	if err := WriteThrough(link, []byte("text"), 0o750); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(dir, "data", "file"))
	if err != nil || string(got) != "text" {
		t.Errorf("%q, %v", got, err)
	}
	if err := WriteThrough(loop, []byte("text"), 0o750); !errors.Is(err, syscall.ELOOP) {
		t.Errorf("a link to itself: %v", err)
	}
}
