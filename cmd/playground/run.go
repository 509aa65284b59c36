package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

const (
	drawEvery  = 500 * time.Millisecond
	podsEndMax = 3 * time.Minute // for the pods to end after their manifests were removed
	logLines   = 30              // of the agent's log, printed after a failure
)

// run sets everything up, shows the pods until Ctrl-C or until the time is up, checks them in the
// latter case, and removes everything.
func run(interrupted, forced context.Context, s settings) (err error) {
	n, err := openNode(interrupted, s.endpoint)
	if err != nil {
		return orInterrupted(interrupted, err)
	}
	defer func() { err = errors.Join(err, n.close()) }()
	printProgress("starting bin/seedlet on " + n.endpoint)
	a, err := startAgent(n, standalone)
	if err != nil {
		return err
	}
	err = showAndCheck(interrupted, n, a, s.duration)
	err = errors.Join(err, endPods(forced, n, a))
	if err != nil {
		fmt.Fprintf(os.Stderr, "the end of the agent's log:\n%s\n", a.logTail(logLines))
	}
	return err
}

// orInterrupted returns nil instead of an error that follows from an interrupt.
func orInterrupted(interrupted context.Context, err error) error {
	if interrupted.Err() != nil {
		return nil
	}
	return err
}

// showAndCheck shows the pods and, if a duration was given, checks them at its end.
func showAndCheck(interrupted context.Context, n *node, a *agent, duration time.Duration) error {
	if err := a.waitReady(interrupted); err != nil {
		return orInterrupted(interrupted, err)
	}
	if err := copyExamples("examples", a.manifests, n.image); err != nil {
		return err
	}
	var timeUp <-chan time.Time // nil, which never fires, without a duration
	if duration > 0 {
		timeUp = time.After(duration)
	}
	screen, seen := newScreen(os.Stdout), newVerdict()
	tick := time.NewTicker(drawEvery)
	defer tick.Stop()
	for {
		pods, err := fetchPods(interrupted, a.pods)
		if err == nil {
			seen.observe(pods)
			screen.draw(pods, time.Now())
		}
		select {
		case <-interrupted.Done():
			return nil
		case <-a.Exited():
			return errors.New("the agent ended by itself")
		case <-timeUp:
			return seen.check(interrupted, n.runtime())
		case <-tick.C:
		}
	}
}

// endPods ends the pods by removing their manifests, then ends the agent. After a second interrupt
// it does not wait for the pods.
func endPods(forced context.Context, n *node, a *agent) error {
	printProgress("removing the manifests and waiting for the pods to end")
	err := removeExamples(a.manifests)
	if err == nil {
		ctx, cancel := context.WithTimeout(forced, podsEndMax)
		err = n.waitEmpty(ctx)
		cancel()
	}
	if forced.Err() != nil {
		err = nil // by a second interrupt: the node is removed with its pods
	}
	a.Stop()
	return err
}
