// Playground is what `make run` runs: a whole node with the example pods, watched live. It
// chooses a container runtime or starts a private one, serves the sample image from a loopback
// registry, runs bin/seedlet standalone on the manifests of examples/, and shows the pods until
// Ctrl-C or for DURATION. Whatever it started is gone when it ends.
//
//	playground         run, from the root of the checkout
//	playground cluster start a real control plane with a node of it, until Ctrl-C or for DURATION
//	playground setup   only install what running and testing need
//
// Environment: CONTAINER_RUNTIME_ENDPOINT (a runtime to use, as in unix:///run/x.sock) and
// DURATION (a Go duration; afterwards the exit code says whether the pods reached what they
// should). Exit codes: 0 good, 1 it went wrong, 2 bad input.
//
// Start reading at run in run.go and at runCluster in cluster.go.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
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
	asked, forced, stop := interrupts()
	defer stop()
	switch settings.command {
	case "setup":
		err = setup(asked)
	case "cluster":
		err = runCluster(asked, settings)
	default:
		err = run(asked, forced, settings)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "playground:", err)
		os.Exit(1)
	}
}

// settings are what the user may choose.
type settings struct {
	command  string        // setup, cluster, or empty
	endpoint string        // empty to look for a runtime
	duration time.Duration // zero to go on until asked to stop
}

func readSettings(args []string, env func(string) string) (settings, error) {
	s := settings{endpoint: env("CONTAINER_RUNTIME_ENDPOINT")}
	switch {
	case len(args) == 1 && (args[0] == "setup" || args[0] == "cluster"):
		s.command = args[0]
	case len(args) > 0:
		return s, fmt.Errorf("arguments %q: want none, setup or cluster", args)
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

// interrupts returns two contexts: the first ends when the user asks to stop, the second when
// they ask again and want it at once.
func interrupts() (asked, forced context.Context, stop func()) {
	asked, ask := context.WithCancel(context.Background())
	forced, force := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		<-signals
		ask()
		<-signals
		force()
	}()
	return asked, forced, func() { ask(); force() }
}

// setup installs every containerd that the tests use, and the components of a cluster. A machine
// that cannot be set up is no failure: the tests there skip, and say why.
func setup(ctx context.Context) error {
	for _, version := range nodetest.Versions() {
		err := nodetest.Install(ctx, version, say)
		if errors.Is(err, provision.ErrCannotInstall) {
			say("tests on a real runtime or cluster will be skipped: " + err.Error())
			return nil
		}
		if err != nil {
			return fmt.Errorf("setting up containerd (%s): %w", version, err)
		}
	}
	if err := cluster.Install(ctx, say); err != nil {
		return fmt.Errorf("setting up a cluster: %w", err)
	}
	return nil
}

// say prints a line of progress.
func say(line string) { fmt.Println("· " + line) }
