package nodetest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"seedlet.dev/realworld/provision"
)

// The versions of containerd that the project is tested with.
const (
	Debian = "debian" // the Debian package, 1.6 on Debian 12
	V2     = "2.x"    // v2Version, built by `go install`
)

// v2Version is the pinned containerd 2.x.
const v2Version = "v2.4.2"

// Versions returns all versions, oldest first.
func Versions() []string { return []string{Debian, V2} }

// cniDirs are the directories of CNI plugins: Debian's, then the upstream one.
var cniDirs = []string{"/usr/lib/cni", "/opt/cni/bin"}

// tools are the executables of a node.
type tools struct {
	containerd string
	shimDir    string // holds containerd-shim-runc-v2
	runc       string
	cniDir     string // holds bridge, host-local and loopback
}

// findTools returns the executables for a version, or an error of one line why no node can be
// started here.
func findTools(version string) (tools, error) {
	if runtime.GOOS != "linux" {
		return tools{}, fmt.Errorf("a real node needs linux, this is %s", runtime.GOOS)
	}
	if os.Geteuid() != 0 {
		return tools{}, fmt.Errorf("a real node needs root, this is user %d", os.Geteuid())
	}
	containerd, err := findContainerd(version)
	if err != nil {
		return tools{}, err
	}
	t := tools{containerd: containerd, shimDir: filepath.Dir(containerd)}
	if !provision.Executable(filepath.Join(t.shimDir, "containerd-shim-runc-v2")) {
		return tools{}, fmt.Errorf("no containerd-shim-runc-v2 beside %s", containerd)
	}
	if t.runc, err = exec.LookPath("runc"); err != nil {
		return tools{}, fmt.Errorf("no runc on the PATH: run `make test` or install package runc")
	}
	for _, dir := range cniDirs {
		if hasPlugins(dir) {
			t.cniDir = dir
			return t, nil
		}
	}
	return tools{}, fmt.Errorf("no CNI plugins in %s: run `make test` or install package "+
		"containernetworking-plugins", strings.Join(cniDirs, " or "))
}

// Check returns an error that names what this machine lacks for a real node with a version of
// containerd.
func Check(version string) error {
	_, err := findTools(version)
	return err
}

func findContainerd(version string) (string, error) {
	switch version {
	case Debian:
		path := "/usr/bin/containerd"
		if !provision.Executable(path) {
			return "", fmt.Errorf("no %s: run `make test` or install package containerd", path)
		}
		return path, nil
	case V2:
		dir, err := V2Dir()
		if err != nil {
			return "", err
		}
		path := filepath.Join(dir, "containerd")
		if !provision.Executable(path) {
			return "", fmt.Errorf("no containerd %s in %s: run `make test`", v2Version, dir)
		}
		return path, nil
	}
	if !filepath.IsAbs(version) || !provision.Executable(version) {
		return "", fmt.Errorf("containerd version %q: want %q, %q or the path of a binary",
			version, Debian, V2)
	}
	return version, nil
}

// V2Dir returns the directory of the pinned containerd.
func V2Dir() (string, error) { return provision.CacheDir("containerd", v2Version) }

func hasPlugins(dir string) bool {
	for _, name := range []string{"bridge", "host-local", "loopback"} {
		if !provision.Executable(filepath.Join(dir, name)) {
			return false
		}
	}
	return true
}
