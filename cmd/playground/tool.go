package main

import (
	"context"
	"fmt"
	"os/exec"

	"seedlet.dev/realworld/provision"
)

// tool is a program that a test needs, and the Debian package that has it.
type tool struct{ program, debianPackage, test string }

// tools are installed by `make test`.
var tools = []tool{
	{"chromium", "chromium", "the page of a run"},
	{"mkfs.btrfs", "btrfs-progs", "subvolumes of btrfs"},
	{"mkfs.ext4", "e2fsprogs", "volumes of the CSI driver"},
	{"mkfs.xfs", "xfsprogs", "volumes of the CSI driver"},
	{"ip", "iproute2", "kubeadm"},
	{"losetup", "mount", "volumes of the CSI driver"},
}

// installTool installs a program, unless it is there. Without a machine that can be set up it only
// says so.
func installTool(ctx context.Context, t tool, progress func(line string)) error {
	if _, err := exec.LookPath(t.program); err == nil {
		return nil
	}
	if err := provision.CheckMachine(); err != nil {
		progress(fmt.Sprintf("the test of %s will not run, as there is no %s: %s", t.test, t.program,
			err))
		return nil
	}
	return provision.InstallPackages(ctx, []string{t.debianPackage}, progress)
}
