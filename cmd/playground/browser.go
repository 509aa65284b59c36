package main

import (
	"context"
	"os/exec"

	"seedlet.dev/realworld/provision"
)

// installBrowser installs Chromium, unless it is there: the test of the page of a run needs it
// (`make test`). Without a machine that can be set up it only says so.
func installBrowser(ctx context.Context, progress func(line string)) error {
	if _, err := exec.LookPath("chromium"); err == nil {
		return nil
	}
	if err := provision.CheckMachine(); err != nil {
		progress("the test of the page of a run will fail, as there is no Chromium: " + err.Error())
		return nil
	}
	return provision.InstallPackages(ctx, []string{"chromium"}, progress)
}
