// Package provision installs what tests on real programs need: Debian packages, and tools that are
// built from pinned versions into .cache of the checkout. It changes nothing that is installed
// already, and starts no service.
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

// ErrCannotInstall is returned on a machine that cannot be set up.
var ErrCannotInstall = errors.New("only a Debian-like machine can be set up, and only by root")

// CheckMachine returns ErrCannotInstall unless this is root on a machine with apt-get.
func CheckMachine() error {
	_, err := exec.LookPath("apt-get")
	if runtime.GOOS != "linux" || os.Geteuid() != 0 || err != nil {
		return ErrCannotInstall
	}
	return nil
}

// Checkout returns the root of the checkout that contains the working directory. Tests run in the
// folder of their package, commands of the Makefile at the root.
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

// CacheDir returns the directory of a pinned tool. The version is part of the path, so that a new
// pin never runs an old binary.
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
