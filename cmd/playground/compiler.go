package main

import (
	"context"
	"os/exec"
	"strings"

	"seedlet.dev/realworld/provision"
)

// installCompiler installs gcc with the headers of the C library, unless both are there: the race
// detector needs them (`make test`). Without a machine that can be set up it only says so.
func installCompiler(ctx context.Context, progress func(line string)) error {
	if compiles(ctx) {
		return nil
	}
	if err := provision.CheckMachine(); err != nil {
		progress("tests with the race detector will fail, as there is no gcc: " + err.Error())
		return nil
	}
	return provision.InstallPackages(ctx, []string{"gcc", "libc6-dev"}, progress)
}

// compiles reports whether gcc compiles a program that uses the C library. Package gcc is installed
// without the headers if nothing else asks for them.
func compiles(ctx context.Context) bool {
	cmd := exec.CommandContext(ctx, "gcc", "-fsyntax-only", "-x", "c", "-")
	cmd.Stdin = strings.NewReader("#include <stdlib.h>\n")
	return cmd.Run() == nil
}
