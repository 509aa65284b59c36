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

// Version is the pinned Kubernetes version, the one in tools/go.mod.
const Version = "v1.36.3"

// kubelet is the program that tests replace by the agent, and the agent by it.
const kubelet = "kubelet"

// metricsServer is the program that metricsserver/go.mod builds.
const metricsServer = "metrics-server"

// The sidecars of CSI drivers, which sidecars/go.mod builds.
const (
	Provisioner = "csi-provisioner"
	Attacher    = "csi-attacher"
	Resizer     = "csi-resizer"
)

// tools are the executables of a cluster.
type tools struct {
	etcd string
	dir  string // has the programs
}

func (t tools) path(program string) string { return filepath.Join(t.dir, program) }

// Program returns the path of a program that Install or InstallKubeadm builds.
func Program(name string) (string, error) {
	t, err := findTools()
	if err != nil {
		return "", err
	}
	path := t.path(name)
	if !provision.Executable(path) {
		return "", fmt.Errorf("no %s", path)
	}
	return path, nil
}

// findTools returns the executables of a cluster, or an error with the reason why none can be
// started.
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
	for _, m := range modules {
		if name := m.missing(dir); name != "" {
			return tools{}, fmt.Errorf("no %s in %s: run `make test`", name, dir)
		}
	}
	if t.etcd, err = exec.LookPath("etcd"); err != nil {
		return tools{}, errors.New("no etcd on the PATH: run `make test` or install package " +
			"etcd-server")
	}
	return t, nil
}

// Install installs the executables of a cluster: etcd from Debian's packages, and the Kubernetes
// components, built into .cache of the checkout. Existing executables are unchanged. It starts no
// service.
func Install(ctx context.Context, progress func(line string)) error {
	if _, err := findTools(); err == nil {
		return nil
	}
	if err := provision.CheckMachine(); err != nil {
		return err
	}
	if _, err := exec.LookPath("etcd"); err != nil {
		if err := provision.InstallPackages(ctx, []string{"etcd-server"}, progress); err != nil {
			return err
		}
	}
	if err := build(ctx, progress); err != nil {
		return err
	}
	_, err := findTools()
	return err
}
