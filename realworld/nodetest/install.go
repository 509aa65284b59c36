package nodetest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"

	"seedlet.dev/realworld/provision"
)

// Install makes sure that what a version of containerd needs is there: Debian's packages, and
// for V2 the pinned containerd, built into .cache of the checkout. What is there is left alone.
// No service is started by it.
func Install(ctx context.Context, version string, progress func(line string)) error {
	if _, err := findTools(version); err == nil {
		return nil
	}
	if err := provision.Possible(); err != nil {
		return err
	}
	if err := provision.Packages(ctx, missingPackages(version), progress); err != nil {
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
