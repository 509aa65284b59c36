package nodetest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"

	"seedlet.dev/realworld/provision"
)

// Install installs what a version of containerd needs: Debian packages, and for V2 the pinned
// containerd, built into .cache of the checkout. It changes nothing that is installed already, and
// starts no service.
func Install(ctx context.Context, version string, progress func(line string)) error {
	if _, err := findTools(version); err == nil {
		return nil
	}
	if err := provision.CheckMachine(); err != nil {
		return err
	}
	if err := provision.InstallPackages(ctx, missingPackages(version), progress); err != nil {
		return err
	}
	if version == V2 {
		if err := installV2(ctx, progress); err != nil {
			return err
		}
	}
	_, err := findTools(version)
	return err
}

// missingPackages returns the Debian packages of missing executables. It checks executables, not
// packages, because they may be installed in another way (Docker's containerd.io has containerd and
// runc).
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

// installV2 builds the pinned containerd from the Go module proxy.
func installV2(ctx context.Context, progress func(string)) error {
	dir, err := V2Dir()
	if err != nil {
		return err
	}
	progress("building containerd " + v2Version + " (about a minute, once)")
	const module = "github.com/containerd/containerd/v2/cmd/"
	// The daemon is built last: its presence means that all are built.
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
