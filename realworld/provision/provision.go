// Package provision gets onto a machine what the tests on real programs need: Debian's packages,
// and tools built from pinned versions into .cache of the checkout. It leaves alone what is
// there, and starts no service.
package provision

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// ErrCannotInstall says that this machine is not one that can be set up.
var ErrCannotInstall = errors.New("only a Debian-like machine can be set up, and only by root")

// Possible returns ErrCannotInstall where it is so.
func Possible() error {
	_, err := exec.LookPath("apt-get")
	if runtime.GOOS != "linux" || os.Geteuid() != 0 || err != nil {
		return ErrCannotInstall
	}
	return nil
}

// Checkout is the checkout that the working directory lies in. Tests run in their package's
// folder, the Makefile's commands at the root.
func Checkout() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("finding the checkout: %w", err)
	}
	for at := dir; ; at = filepath.Dir(at) {
		mod, err := os.ReadFile(filepath.Join(at, "go.mod"))
		if err == nil && strings.HasPrefix(string(mod), "module seedlet.dev\n") {
			return at, nil
		}
		if at == filepath.Dir(at) {
			return "", fmt.Errorf("%s is not inside a checkout of seedlet.dev", dir)
		}
	}
}

// CacheDir is where a pinned tool is kept. The version is part of the path, so that a new pin
// never runs an old binary.
func CacheDir(tool, version string) (string, error) {
	root, err := Checkout()
	if err != nil {
		return "", err
	}
	return filepath.Join(root, ".cache", tool+"-"+version), nil
}

// Executable reports whether a path is a file that can be run.
func Executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0
}
