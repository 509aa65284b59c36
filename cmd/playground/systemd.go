package main

import (
	"context"
	"errors"

	"seedlet.dev/realworld/provision"
	"seedlet.dev/realworld/systemdtest"
)

// installSystemd installs what the tests on machines with systemd need, unless it is there
// (`make test`). Without a machine that can be set up it only says so.
func installSystemd(ctx context.Context, progress func(line string)) error {
	err := systemdtest.Install(ctx, progress)
	if errors.Is(err, provision.ErrCannotInstall) {
		progress("tests on a machine with systemd will be skipped: " + err.Error())
		return nil
	}
	return err
}
