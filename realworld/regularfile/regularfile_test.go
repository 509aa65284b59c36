package regularfile_test

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"seedlet.dev/realworld/regularfile"
)

func TestRead(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := errors.Join(os.WriteFile(at("file"), []byte("12345"), 0o600),
		os.Symlink("file", at("link")), os.Symlink("nowhere", at("dangling")),
		syscall.Mkfifo(at("pipe"), 0o600), os.Mkdir(at("dir"), 0o700)); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("unix", at("socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	for _, name := range []string{"file", "link"} {
		if data, err := regularfile.Read(at(name), 5); err != nil || string(data) != "12345" {
			t.Errorf("%s: %q, %v", name, data, err)
		}
	}
	for path, want := range map[string]error{
		at("dangling"): fs.ErrNotExist, at("pipe"): regularfile.ErrNotRegular,
		at("dir"): regularfile.ErrNotRegular, at("socket"): regularfile.ErrNotRegular,
		"/dev/zero": regularfile.ErrNotRegular, "/proc/self/environ": nil,
	} {
		_, err := regularfile.Read(path, 1<<20)
		if !errors.Is(err, want) || err != nil && !strings.Contains(err.Error(), path) {
			t.Errorf("%s: got %v, want %v", path, err, want)
		}
	}
	_, err = regularfile.Read(at("file"), 4)
	if want := at("file") + " is larger than 4 bytes"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
