package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"seedlet.dev/realworld/provision"
)

// Version is the pinned Kubernetes, the one in tools/go.mod.
const Version = "v1.36.3"

// metricsServer is the program that metricsserver/go.mod builds.
const metricsServer = "metrics-server"

// programs are what is built: the others by tools/go.mod.
var programs = []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl",
	metricsServer}

// tools are the executables that a cluster is made of.
type tools struct {
	etcd string
	dir  string // holds the programs
}

func (t tools) path(program string) string { return filepath.Join(t.dir, program) }

// findTools finds what a cluster needs, or says in one line why none can be started here.
func findTools() (tools, error) {
	if runtime.GOOS != "linux" {
		return tools{}, fmt.Errorf("a real cluster needs linux, this is %s", runtime.GOOS)
	}
	if os.Geteuid() != 0 {
		return tools{}, fmt.Errorf("a real cluster needs root, this is user %d", os.Geteuid())
	}
	dir, err := provision.CacheDir("kubernetes", Version)
	if err != nil {
		return tools{}, err
	}
	t := tools{dir: dir}
	for _, name := range programs {
		if !provision.Executable(t.path(name)) {
			return tools{}, fmt.Errorf("no %s in %s: run `make test`", name, dir)
		}
	}
	if t.etcd, err = exec.LookPath("etcd"); err != nil {
		return tools{}, errors.New("no etcd on the PATH: run `make test` or install package " +
			"etcd-server")
	}
	return t, nil
}

// Install makes sure that what a cluster needs is there: etcd from Debian's packages, and the
// components of Kubernetes, built into .cache of the checkout. What is there is left alone. No
// service is started by it.
func Install(ctx context.Context, progress func(line string)) error {
	if _, err := findTools(); err == nil {
		return nil
	}
	if err := provision.Possible(); err != nil {
		return err
	}
	if _, err := exec.LookPath("etcd"); err != nil {
		if err := provision.Packages(ctx, []string{"etcd-server"}, progress); err != nil {
			return err
		}
	}
	if err := build(ctx, progress); err != nil {
		return err
	}
	_, err := findTools()
	return err
}
