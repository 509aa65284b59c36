package nodetest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
)

// policyFile is what Debian's packages ask whether they may start a service.
const policyFile = "/usr/sbin/policy-rc.d"

// ErrCannotInstall says that this machine is not one that Install knows how to set up.
var ErrCannotInstall = errors.New("only a Debian-like machine can be set up, and only by root")

// Install makes sure that what a version of containerd needs is there: Debian's packages, and
// for V2 the pinned containerd, built into .cache of the checkout. What is there is left alone.
// No service is started by it.
func Install(ctx context.Context, version string, progress func(line string)) error {
	if _, err := findTools(version); err == nil {
		return nil
	}
	_, err := exec.LookPath("apt-get")
	if runtime.GOOS != "linux" || os.Geteuid() != 0 || err != nil {
		return ErrCannotInstall
	}
	if err := installPackages(ctx, missingPackages(version), progress); err != nil {
		return err
	}
	if version == V2 {
		if err := installV2(ctx, progress); err != nil {
			return err
		}
	}
	_, err = findTools(version)
	return err
}

// missingPackages are the Debian packages that hold what is not there. It goes by executables,
// because they may have come in another way (Docker's containerd.io holds containerd and runc).
func missingPackages(version string) []string {
	var packages []string
	if _, err := findContainerd(Debian); err != nil && version == Debian {
		packages = append(packages, "containerd")
	}
	if _, err := exec.LookPath("runc"); err != nil {
		packages = append(packages, "runc")
	}
	if !slices.ContainsFunc(cniDirs, hasPlugins) {
		packages = append(packages, "containernetworking-plugins")
	}
	return packages
}

// installPackages installs Debian packages, and removes none for them. It asks for fresh package
// lists only when the ones at hand do not do.
func installPackages(ctx context.Context, packages []string, progress func(string)) error {
	if len(packages) == 0 {
		return nil
	}
	release, err := holdServices()
	if err != nil {
		return err
	}
	defer release()
	progress("installing Debian packages " + strings.Join(packages, ", "))
	install := append([]string{"install", "-y", "--no-install-recommends", "--no-remove"},
		packages...)
	if _, err = apt(ctx, install...); err == nil {
		return nil
	}
	progress("updating the package lists")
	if out, err := apt(ctx, "update"); err != nil {
		return fmt.Errorf("updating the package lists: %w\n%s", err, out)
	}
	if out, err := apt(ctx, install...); err != nil {
		return fmt.Errorf("installing %s: %w\n%s", strings.Join(packages, ", "), err, out)
	}
	return nil
}

func apt(ctx context.Context, args ...string) ([]byte, error) {
	// Packages half installed would break the machine for everybody: a Ctrl-C on the terminal
	// reaches this program, which stops after apt-get, not apt-get itself.
	args = append([]string{"-q", "-o", "DPkg::Lock::Timeout=120"}, args...)
	cmd := exec.CommandContext(context.WithoutCancel(ctx), "apt-get", args...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd.CombinedOutput()
}

// holdServices keeps packages from starting services while they are installed, unless the
// machine has a policy of its own, and from being started at the next boot: the project runs a
// private containerd only. The returned function puts everything back.
func holdServices() (release func(), err error) {
	installed := exec.Command("dpkg", "-s", "containerd").Run() == nil
	file, err := os.OpenFile(policyFile, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	own := err == nil
	if err != nil && !errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("keeping packages from starting services: %w", err)
	}
	if own {
		_, err = file.WriteString("#!/bin/sh\n# Of seedlet's set-up, while it installs.\nexit 101\n")
		if err := errors.Join(err, file.Close()); err != nil {
			return nil, errors.Join(err, os.Remove(policyFile))
		}
	}
	return func() {
		if own {
			_ = os.Remove(policyFile) // made above, so it can be removed
		}
		if _, err := os.Stat("/run/systemd/system"); err == nil && !installed {
			// Where this fails, the service starts at the next boot, as its package means it to.
			_ = exec.Command("systemctl", "disable", "containerd").Run()
		}
	}, nil
}

// installV2 builds the pinned containerd from the Go module proxy.
func installV2(ctx context.Context, progress func(string)) error {
	dir, err := v2Dir()
	if err != nil {
		return err
	}
	progress("building containerd " + v2Version + " (about a minute, once)")
	const module = "github.com/containerd/containerd/v2/cmd/"
	// One after the other, the daemon last: its presence says that everything is.
	for _, name := range []string{"containerd-shim-runc-v2", "containerd"} {
		cmd := exec.CommandContext(ctx, "go", "install", module+name+"@"+v2Version)
		cmd.Env = append(os.Environ(), "GOBIN="+dir, "CGO_ENABLED=0", "GOFLAGS=")
		cmd.Dir = "/" // outside the checkout, whose go.mod is not containerd's
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("building %s %s: %w\n%s", name, v2Version, err, out)
		}
	}
	return nil
}
