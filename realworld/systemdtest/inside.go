package systemdtest

import (
	"bufio"
	"context"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"seedlet.dev/realworld/provision"
)

// insideEnv is set in the processes of a test on a private machine.
const insideEnv = "SEEDLET_SYSTEMD_TEST"

// Inside reports whether the test runs on a private machine with systemd. If not, it boots one,
// runs the test again on it, fails this one if that one fails or is skipped, and returns false: the
// caller returns. Without Linux, root or the programs the test is skipped with the reason. In CI as
// root, where `make test` has installed everything, a missing program is a failure.
func Inside(t *testing.T) bool {
	t.Helper()
	if os.Getenv(insideEnv) != "" {
		return true
	}
	if testing.Short() {
		t.Skip("no machine is booted with -short")
	}
	if missing := missingPackages(); len(missing) > 0 || os.Geteuid() != 0 {
		if os.Getenv("CI") == "true" && os.Geteuid() == 0 {
			t.Fatalf("CI must run the tests on systemd, and these packages are missing: %q", missing)
		}
		t.Skipf("a machine with systemd needs root and packages; missing: %q; run `make test`", missing)
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	m, err := start(t.Context(), program)
	if err != nil {
		t.Fatalf("booting a machine with systemd: %v", err)
	}
	defer func() {
		if err := m.close(); err != nil {
			t.Error(err)
		}
	}()
	runAgain(t, m)
	return false
}

// runAgain runs the test on the machine, as a service, whose cgroup is below the machine's.
func runAgain(t *testing.T, m *machine) {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"--pipe", "--wait", "--collect", "--quiet", "--working-directory=" + dir,
		"--property=Delegate=yes", "--setenv=" + insideEnv + "=1"}
	for _, name := range []string{"CI", "GOCACHE", "GOFLAGS", "GOMODCACHE", "GOPATH", "GOPROXY",
		"HOME", "PATH"} {
		if value, isSet := os.LookupEnv(name); isSet {
			args = append(args, "--setenv="+name+"="+value)
		}
	}
	args = append(args, "--", "/test", "-test.v", "-test.run=^"+t.Name()+"$")
	if deadline, has := t.Deadline(); has {
		args = append(args, "-test.timeout="+(time.Until(deadline)-time.Minute).String())
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cmd := m.command(ctx, "systemd-run", args...)
	read, write := io.Pipe()
	cmd.Stdout, cmd.Stderr = write, write
	ended := make(chan error, 1)
	go func() {
		err := cmd.Run()
		_ = write.Close() // never fails
		ended <- err
	}()
	lines, hasPassed := bufio.NewScanner(read), false
	for lines.Scan() {
		t.Log(lines.Text())
		hasPassed = hasPassed || strings.HasPrefix(lines.Text(), "--- PASS: "+t.Name()+" ")
		if strings.Contains(lines.Text(), "--- SKIP") {
			t.Error("a part was skipped on the machine")
		}
	}
	if err := lines.Err(); err != nil {
		t.Error(err)
		cancel()
	}
	if err := <-ended; err != nil || !hasPassed {
		t.Errorf("on the machine: passed: %v, %v", hasPassed, err)
	}
}

// Install installs what a machine needs, unless it is there.
func Install(ctx context.Context, progress func(line string)) error {
	missing := missingPackages()
	if len(missing) == 0 {
		return nil
	}
	if err := provision.CheckMachine(); err != nil {
		return err
	}
	return provision.InstallPackages(ctx, missing, progress)
}

// missingPackages returns the Debian packages of missing programs.
func missingPackages() []string {
	var missing []string
	for program, name := range programs {
		if !provision.Executable(program) {
			missing = append(missing, name)
		}
	}
	slices.Sort(missing)
	return missing
}
