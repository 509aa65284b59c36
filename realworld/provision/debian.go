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

// policyFile is what Debian's packages ask whether they may start a service.
const policyFile = "/usr/sbin/policy-rc.d"

// services are those that come with packages. The project runs private ones only.
var services = map[string]string{"containerd": "containerd", "etcd-server": "etcd",
	"prometheus": "prometheus"}

// Packages installs Debian packages, and removes none for them. It asks for fresh package lists
// only when the ones at hand do not do. No service is started by it, now or at the next boot.
func Packages(ctx context.Context, packages []string, progress func(string)) error {
	if len(packages) == 0 {
		return nil
	}
	release, err := holdServices(packages)
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
// machine has a policy of its own, and those that were not there from being started at the next
// boot. The returned function puts everything back.
func holdServices(packages []string) (release func(), err error) {
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
			_ = os.Remove(policyFile) // made above, so it can be removed
		}
		for _, service := range held {
			// Where this fails, the service starts at the next boot, as its package means it to.
			_ = disable(service).Run()
		}
	}, nil
}

// disable keeps a service from being started at the next boot.
func disable(service string) *exec.Cmd {
	if _, err := os.Stat("/run/systemd/system"); err == nil {
		return exec.Command("systemctl", "disable", service)
	}
	return exec.Command("update-rc.d", service, "disable")
}
