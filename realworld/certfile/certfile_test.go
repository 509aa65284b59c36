package certfile_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"seedlet.dev/realworld/certfile"
)

func write(t *testing.T, path, text string) {
	t.Helper()
	temporary := path + ".new"
	if err := os.WriteFile(temporary, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(temporary, path); err != nil {
		t.Fatal(err)
	}
}

// halves parses two files that must have the same content.
func halves(contents [][]byte) (string, error) {
	if string(contents[0]) != string(contents[1]) {
		return "", errors.New("the halves do not match")
	}
	return string(contents[0]), nil
}

func TestChangedFilesAreReloaded(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	write(t, a, "1")
	write(t, b, "1")
	var warnings []string
	k, err := certfile.Open(halves, func(p string) { warnings = append(warnings, p) }, a, b)
	if err != nil {
		t.Fatal(err)
	}
	expect := func(want string, warned int) {
		t.Helper()
		if got := k.Current(); got != want || len(warnings) != warned {
			t.Errorf("content %q after warnings %q, want %q after %d", got, warnings, want, warned)
		}
	}
	expect("1", 0)
	write(t, a, "2")
	expect("1", 1) // only one of the files is replaced
	expect("1", 1)
	write(t, b, "2")
	expect("2", 1)
	if err := os.Remove(a); err != nil {
		t.Fatal(err)
	}
	expect("2", 2)
	write(t, a, "2")
	expect("2", 2)
	write(t, b, "3")
	expect("2", 3) // the problem is reported again, as the files were valid in between
}

// A read of a pipe waits for a writer, and holds the lock that each handshake takes.
func TestOtherThanSmallRegularFilesAreRefused(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	write(t, a, "1")
	write(t, b, "1")
	var warnings []string
	k, err := certfile.Open(halves, func(p string) { warnings = append(warnings, p) }, a, b)
	if err != nil {
		t.Fatal(err)
	}
	expect := func(want string) {
		t.Helper()
		got := k.Current()
		if got != "1" || len(warnings) != 1 || !strings.Contains(warnings[0], want) {
			t.Errorf("%q, warnings %q", got, warnings)
		}
		warnings = nil
	}
	if err := errors.Join(os.Remove(b), syscall.Mkfifo(b, 0o600)); err != nil {
		t.Fatal(err)
	}
	expect(b + " is not a regular file")
	if err := errors.Join(os.Remove(b), os.Symlink("/dev/zero", b)); err != nil {
		t.Fatal(err)
	}
	_ = k.Current() // the same problem is reported once
	warnings = nil
	err = errors.Join(os.Remove(b), os.WriteFile(b, nil, 0o600), os.Truncate(b, 1<<40))
	if err != nil {
		t.Fatal(err)
	}
	expect(b + " is larger than")
}

func TestOpenFails(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ca.crt")
	if _, err := certfile.OpenAuthorities(path, nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	write(t, path, "")
	if _, err := certfile.OpenAuthorities(path, nil); err == nil ||
		!strings.Contains(err.Error(), path) {
		t.Errorf("an empty file: %v", err)
	}
	if _, err := certfile.OpenPair(path, path, nil); err == nil {
		t.Error("an empty file was accepted as a pair")
	}
}
