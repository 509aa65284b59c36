package provision

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
)

// policyFile is the program that Debian's packages run to decide whether to start a service.
const policyFile = "/usr/sbin/policy-rc.d"

// services are the services of packages, by package. The project runs private instances only.
var services = map[string]string{"containerd": "containerd", "etcd-server": "etcd",
	"prometheus": "prometheus"}

// InstallPackages installs Debian packages and removes none. It updates the package lists only if
// the present ones do not suffice. It starts no service, now or at the next boot.
func InstallPackages(ctx context.Context, packages []string, progress func(string)) error {
	if len(packages) == 0 {
		return nil
	}
	release, err := preventServiceStarts(packages)
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
	// Half-installed packages would break the machine. So apt-get has its own process group: a
	// Ctrl-C on the terminal reaches this program only, which stops after apt-get has ended.
	args = append([]string{"-q", "-o", "DPkg::Lock::Timeout=120"}, args...)
	cmd := exec.CommandContext(context.WithoutCancel(ctx), "apt-get", args...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd.CombinedOutput()
}

// preventServiceStarts keeps packages from starting services during their installation, unless the
// machine has a policy of its own. The returned function removes the policy, and disables the
// services that were not installed before, so that they do not start at the next boot.
func preventServiceStarts(packages []string) (release func(), err error) {
	var held []string
	for _, name := range packages {
		service, has := services[name]
		if has && exec.Command("dpkg", "-s", name).Run() != nil {
			held = append(held, service)
		}
	}
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
			_ = os.Remove(policyFile) // created above
		}
		for _, service := range held {
			// If this fails, the service starts at the next boot: the default of its package.
			_ = disable(service).Run()
		}
	}, nil
}

// disable returns the command that keeps a service from starting at the next boot.
func disable(service string) *exec.Cmd {
	if _, err := os.Stat("/run/systemd/system"); err == nil {
		return exec.Command("systemctl", "disable", service)
	}
	return exec.Command("update-rc.d", service, "disable")
}
