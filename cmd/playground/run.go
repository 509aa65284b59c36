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
	podsEndMax = 45 * time.Second // for the pods to end once their manifests are gone
	logLines   = 30               // of the agent's log, shown when something went wrong
)

// run plays: it sets everything up, shows the pods until it is asked to stop or the time is
// over, judges them if a time was given, and takes everything away again.
func run(asked, forced context.Context, s settings) (err error) {
	n, err := openNode(asked, s.endpoint)
	if err != nil {
		return orInterrupted(asked, err)
	}
	defer func() { err = errors.Join(err, n.close()) }()
	say("starting bin/seedlet on " + n.endpoint)
	a, err := startAgent(n, standalone)
	if err != nil {
		return err
	}
	err = play(asked, n, a, s.duration)
	err = errors.Join(err, end(forced, n, a))
	if err != nil {
		fmt.Fprintf(os.Stderr, "the end of the agent's log:\n%s\n", a.logTail(logLines))
	}
	return err
}

// orInterrupted turns whatever broke because the user wanted to stop into success.
func orInterrupted(asked context.Context, err error) error {
	if asked.Err() != nil {
		return nil
	}
	return err
}

// play shows the pods and, after a given time, judges them.
func play(asked context.Context, n *node, a *agent, duration time.Duration) error {
	if err := a.waitReady(asked); err != nil {
		return orInterrupted(asked, err)
	}
	if err := copyExamples("examples", a.manifests, n.image); err != nil {
		return err
	}
	var over <-chan time.Time // never, without a duration
	if duration > 0 {
		over = time.After(duration)
	}
	screen, seen := newScreen(os.Stdout), newVerdict()
	tick := time.NewTicker(drawEvery)
	defer tick.Stop()
	for {
		pods, err := fetchPods(asked, a.pods)
		if err == nil {
			seen.observe(pods)
			screen.draw(pods, time.Now())
		}
		select {
		case <-asked.Done():
			return nil
		case <-a.Exited():
			return errors.New("the agent ended by itself")
		case <-over:
			return seen.judge(asked, n.runtime())
		case <-tick.C:
		}
	}
}

// end ends the pods by removing their manifests, then the agent. When the user asks again, it
// does not wait for the pods.
func end(forced context.Context, n *node, a *agent) error {
	say("removing the manifests and waiting for the pods to end")
	err := removeExamples(a.manifests)
	if err == nil {
		ctx, cancel := context.WithTimeout(forced, podsEndMax)
		err = n.waitEmpty(ctx)
		cancel()
	}
	if forced.Err() != nil {
		err = nil // asked for: the node is removed with what is in it
	}
	a.Stop()
	return err
}
