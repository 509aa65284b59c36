package systemdtest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
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
	m := bootFor(t)
	if err := runAgain(t, m); err != nil {
		t.Errorf("on the machine: %v", err)
	}
	return false
}

// ReportFile is the file on the machine whose content outlives it.
const ReportFile = "/shared/report"

// UntilPowerOff is Inside for a test that powers its machine off, and ends with it. On this machine
// it returns what the test has written to ReportFile, after the machine has gone down. The test
// fails if that takes longer than a wait.
func UntilPowerOff(t *testing.T, wait time.Duration) (report string, inside bool) {
	t.Helper()
	if os.Getenv(insideEnv) != "" {
		return "", true
	}
	m := bootFor(t)
	ran := runAgain(t, m) // it was ended by the machine
	select {
	case <-m.daemon.Exited():
	case <-time.After(wait):
		t.Errorf("the machine is up; the test on it: %v", ran)
	}
	data, err := os.ReadFile(filepath.Join(m.dir, "shared", filepath.Base(ReportFile)))
	if err != nil {
		t.Fatalf("the report: %v; the test: %v", err, ran)
	}
	return string(data), false
}

// bootFor boots a machine for a test, at whose end it is removed.
func bootFor(t *testing.T) *machine {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	m := &machine{options: []string{"--machine=seedlet-test", "--bind-ro=" + program + ":/test"}}
	m.bootFor(t)
	return m
}

// bootFor boots the machine for a test, at whose end it is removed. It skips a test where none can
// be booted.
func (m *machine) bootFor(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("no machine is booted with -short")
	}
	if err := CheckBootable(); err != nil {
		if os.Getenv("CI") == "true" && os.Geteuid() == 0 {
			t.Fatalf("CI must run the tests on systemd: %v", err)
		}
		t.Skip(err)
	}
	m.startFor(t)
}

// startFor starts the machine for a test, at whose end it is removed.
func (m *machine) startFor(t *testing.T) {
	t.Helper()
	if err := m.start(t.Context()); err != nil {
		t.Fatalf("booting a machine with systemd: %v", err)
	}
	t.Cleanup(func() {
		if err := m.close(); err != nil {
			t.Error(err)
		}
	})
}

// CheckBootable returns an error that names what a machine lacks to be booted.
func CheckBootable() error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("a machine with systemd needs root, this is user %d", os.Geteuid())
	}
	if missing := missingPackages(); len(missing) > 0 {
		return fmt.Errorf("a machine with systemd needs the packages %q: run `make test`", missing)
	}
	return nil
}

// runAgain runs the test on the machine, as a service, whose cgroup is below the machine's. It
// returns an error if the test has not passed.
func runAgain(t *testing.T, m *machine) error {
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
	hasPassed := false
	err = runLines(t.Context(), func(ctx context.Context) *exec.Cmd {
		return m.command(ctx, "systemd-run", args...)
	}, func(line string) {
		if !strings.HasPrefix(line, "=== ") { // which part runs
			t.Log(line)
		}
		hasPassed = hasPassed || strings.HasPrefix(line, "--- PASS: "+t.Name()+" ")
		if strings.Contains(line, "--- SKIP") {
			t.Error("a part was skipped on the machine")
		}
	})
	if errors.Is(err, bufio.ErrTooLong) {
		t.Error(err)
	}
	if err != nil || !hasPassed {
		return fmt.Errorf("passed: %v, %v", hasPassed, err)
	}
	return nil
}

// runLines runs a command, and calls a function with each line that it prints. A line that is too
// long ends the command.
func runLines(ctx context.Context, command func(context.Context) *exec.Cmd,
	each func(line string)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cmd := command(ctx)
	read, write := io.Pipe()
	cmd.Stdout, cmd.Stderr = write, write
	ended := make(chan error, 1)
	go func() {
		err := cmd.Run()
		_ = write.Close() // never fails
		ended <- err
	}()
	lines := bufio.NewScanner(read)
	for lines.Scan() {
		each(lines.Text())
	}
	err := lines.Err()
	if err != nil {
		cancel()
		_ = read.Close() // never fails; what is still printed is not awaited
	}
	return errors.Join(err, <-ended)
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

// missingPackages returns the Debian packages of missing files.
func missingPackages() []string {
	var missing []string
	for path, name := range packages {
		if _, err := os.Stat(path); err != nil {
			missing = append(missing, name)
		}
	}
	slices.Sort(missing)
	return missing
}
