// Playground is the program of `make run`: a whole node with the example pods, watched live. It
// uses an existing container runtime or starts a private one, serves the sample image from a
// registry on loopback, runs bin/seedlet standalone on the manifests of examples/, and shows the
// pods until Ctrl-C or for DURATION. It removes everything that it started.
//
//	playground         run, from the root of the checkout
//	playground cluster start a real control plane with a node of it, until Ctrl-C or for DURATION
//	playground setup   only install what running and testing need
//	playground image   write an image of the agent to bin/seedlet-image.tar
//
// Environment: CONTAINER_RUNTIME_ENDPOINT (a runtime to use, as in unix:///run/x.sock) and
// DURATION (a Go duration; the exit code then depends on whether the pods reached their expected
// state). Exit codes: 0 success, 1 failure, 2 bad input.
//
// Start reading at run in run.go and at runCluster in cluster.go.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"seedlet.dev/realworld/cluster"
	"seedlet.dev/realworld/nodetest"
	"seedlet.dev/realworld/provision"
)

func main() {
	settings, err := readSettings(os.Args[1:], os.Getenv)
	if err != nil {
		fmt.Fprintln(os.Stderr, "playground:", err)
		os.Exit(2)
	}
	interrupted, forced, stop := interrupts()
	defer stop()
	switch settings.command {
	case "setup":
		err = setup(interrupted)
	case "cluster":
		err = runCluster(interrupted, settings)
	case "image":
		err = writeImage(interrupted, os.Getenv("AGENT"))
	default:
		err = run(interrupted, forced, settings)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "playground:", err)
		os.Exit(1)
	}
}

// settings are the arguments and environment of the user.
type settings struct {
	command  string        // setup, cluster, image, or empty
	endpoint string        // empty to look for a runtime
	duration time.Duration // zero: until Ctrl-C
}

func readSettings(args []string, env func(string) string) (settings, error) {
	s := settings{endpoint: env("CONTAINER_RUNTIME_ENDPOINT")}
	switch {
	case len(args) == 1 && slices.Contains([]string{"setup", "cluster", "image"}, args[0]):
		s.command = args[0]
	case len(args) > 0:
		return s, fmt.Errorf("arguments %q: want none, setup, cluster or image", args)
	}
	if text := env("DURATION"); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil || d <= 0 {
			return s, fmt.Errorf("DURATION=%s: want a positive duration, as in 30s", text)
		}
		s.duration = d
	}
	return s, nil
}

// interrupts returns two contexts: the first ends at the first interrupt, the second at the second
// one, when the user does not want to wait.
func interrupts() (interrupted, forced context.Context, stop func()) {
	interrupted, interrupt := context.WithCancel(context.Background())
	forced, force := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		<-signals
		interrupt()
		<-signals
		force()
	}()
	return interrupted, forced, func() { interrupt(); force() }
}

// setup installs every containerd that the tests use, the components of a cluster, a C compiler,
// programs that single tests need, and systemd for machines of tests.
// On a machine that cannot be set up it succeeds: the tests that need a runtime or a cluster are
// skipped there with a reason, and those under the race detector fail.
func setup(ctx context.Context) error {
	for _, t := range tools {
		if err := installTool(ctx, t, printProgress); err != nil {
			return fmt.Errorf("setting up %s: %w", t.program, err)
		}
	}
	if err := installCompiler(ctx, printProgress); err != nil {
		return fmt.Errorf("setting up a C compiler: %w", err)
	}
	if err := installSystemd(ctx, printProgress); err != nil {
		return fmt.Errorf("setting up a machine with systemd: %w", err)
	}
	for _, version := range nodetest.Versions() {
		err := nodetest.Install(ctx, version, printProgress)
		if errors.Is(err, provision.ErrCannotInstall) {
			printProgress("tests on a real runtime or cluster will be skipped: " + err.Error())
			return nil
		}
		if err != nil {
			return fmt.Errorf("setting up containerd (%s): %w", version, err)
		}
	}
	if err := cluster.Install(ctx, printProgress); err != nil {
		return fmt.Errorf("setting up a cluster: %w", err)
	}
	if err := raiseInotifyLimit(); err != nil {
		printProgress("tests may run out of inotify instances: " + err.Error())
	}
	return nil
}

// inotifyMin is how many inotify instances a user needs at least. The tests have a hundred at the
// same time, of machines with systemd, runtimes and agents; the kernel's default is 128.
const inotifyMin = 1024

// raiseInotifyLimit raises fs.inotify.max_user_instances to inotifyMin if it is less.
func raiseInotifyLimit() error {
	const file = "/proc/sys/fs/inotify/max_user_instances"
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	limit, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if limit >= inotifyMin {
		return nil
	}
	printProgress(fmt.Sprintf("raising fs.inotify.max_user_instances to %d", inotifyMin))
	return os.WriteFile(file, []byte(strconv.Itoa(inotifyMin)), 0o644)
}

// printProgress prints a line of progress.
func printProgress(line string) { fmt.Println("· " + line) }
