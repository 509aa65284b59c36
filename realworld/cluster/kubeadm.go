package cluster

import (
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"seedlet.dev/realworld/provision"
)

// kubeadmPrograms are packages of the module tools, which only `make kubeadm` needs: kubeadm, and
// the etcd that it writes a static pod for. The cluster of this package runs Debian's etcd, which
// is older and refuses some flags of that pod. Each has the module whose version is the program's.
var kubeadmPrograms = []struct{ name, module string }{
	{"kubeadm", "k8s.io/kubernetes"},
	{"etcd", "go.etcd.io/etcd/server/v3"},
}

// InstallKubeadm builds kubeadm and its etcd beside the programs of Install, unless they are there
// in the versions of tools/go.mod. Other processes may do the same at the same time.
func InstallKubeadm(ctx context.Context, progress func(line string)) error {
	if _, err := findTools(); err != nil {
		return err
	}
	return buildKubeadm(ctx, progress)
}

func buildKubeadm(ctx context.Context, progress func(line string)) error {
	root, err := provision.Checkout()
	if err != nil {
		return err
	}
	dir, release, err := lockPrograms()
	if err != nil {
		return err
	}
	defer release()
	source := filepath.Join(root, "realworld/cluster/tools")
	for _, p := range kubeadmPrograms {
		version, err := moduleVersion(ctx, source, p.module)
		if err != nil {
			return err
		}
		if isBuiltWith(filepath.Join(dir, p.name), p.module, version) {
			continue
		}
		progress("building " + p.name + " " + version + " (minutes on two cores, once)")
		if err := buildProgram(ctx, source, p.name, dir, progress); err != nil {
			return fmt.Errorf("building %s: %w", p.name, err)
		}
	}
	return nil
}

// buildProgram builds a package of a module into a directory, in which it replaces an earlier
// program at once: a test may run that. The caller has the lock of the directory, so what is in the
// temporary directory is of a build that was killed.
func buildProgram(ctx context.Context, source, name, dir string, progress func(string)) error {
	var out buildOutput
	stop := out.reportProgress(progress)
	defer stop()
	temporary := dir + ".building"
	if err := os.RemoveAll(temporary); err != nil {
		return err
	}
	built := filepath.Join(temporary, name)
	err := goBuild(ctx, source, &out, "-ldflags", "-s -w"+versionFlags, "-o", built, "./"+name)
	if err == nil {
		err = os.Rename(built, filepath.Join(dir, name))
	}
	return errors.Join(err, os.RemoveAll(temporary))
}

// moduleVersion returns the version of a module that another, in a directory, requires.
func moduleVersion(ctx context.Context, dir, module string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Version}}", module)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off")
	out, err := cmd.Output()
	if exit, is := errors.AsType[*exec.ExitError](err); is {
		return "", fmt.Errorf("the version of %s: %w\n%s", module, err, exit.Stderr)
	}
	if err != nil {
		return "", fmt.Errorf("the version of %s: %w", module, err)
	}
	return strings.TrimSpace(string(out)), nil
}

// isBuiltWith reports whether a file is a program that was built with a version of a module.
func isBuiltWith(path, module, version string) bool {
	if !provision.Executable(path) {
		return false
	}
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return false
	}
	for _, dep := range info.Deps {
		if dep.Path == module {
			return dep.Version == version
		}
	}
	return false
}
