package main

import (
	"path/filepath"
	"time"

	"k8s.io/klog/v2"

	"seedlet.dev/core"
	"seedlet.dev/realworld/breaker"
	"seedlet.dev/realworld/log"
	"seedlet.dev/realworld/runner"
	"seedlet.dev/world"
)

// A panic of the core ends the process: the state may be half changed, and everything that matters
// is on the disk, in the runtime and at the API server. The service manager starts the next
// process, which sets the pod aside that the panic was about.

// panicsFile is the record of panics, in the root directory.
const panicsFile = "seedlet-panics.json"

// noteTimeout bounds how long a panic waits for its record. The disk may hang.
const noteTimeout = 5 * time.Second

// openBreaker reads the record of panics. Without one the agent starts as well.
func openBreaker(rootDir string) *breaker.Breaker {
	b, err := breaker.Open(filepath.Join(rootDir, panicsFile), time.Now())
	if err != nil {
		klog.ErrorS(err, "the pods over which the agent has panicked are not known")
	}
	return b
}

// withBreaker returns the core as the loop drives it: its panics are logged and noted.
func withBreaker(agent *core.Agent, b *breaker.Breaker) world.Core {
	return reportPanics(agent, agent.CurrentPod, b)
}

func reportPanics(c world.Core, currentPod func() string, b *breaker.Breaker) world.Core {
	return runner.PanicReporter{Core: c, Panicked: func(p runner.Panic) {
		uid := currentPod()
		logPanic(p, uid)
		if uid != "" {
			notePanic(b, uid, p.Place)
		}
		log.Flush()
	}}
}

// logPanic logs a panic; the panic follows. The event's body is not logged: it may hold secrets of
// a pod.
func logPanic(p runner.Panic, uid string) {
	var err error // the event's; a nil *world.Error would be a non-nil error
	if p.Event.Err != nil {
		err = p.Event.Err
	}
	klog.ErrorS(err, "the core panicked while handling an event",
		"event", world.BodyName(p.Event.Body), "op", p.Event.Op, "time", p.Event.Time,
		"podUID", uid, "place", p.Place, "stack", string(p.Stack))
}

// notePanic notes a panic over a pod, if that can be done in time.
func notePanic(b *breaker.Breaker, uid, place string) {
	noted := make(chan struct{})
	go func() {
		defer close(noted)
		panics, err := b.Note(uid, place, time.Now())
		klog.ErrorS(err, "the next run of the agent sets the pod aside", "podUID", uid,
			"panics", panics)
	}()
	select {
	case <-noted:
	case <-time.After(noteTimeout):
		klog.ErrorS(nil, "the panic could not be noted in time", "podUID", uid)
	}
}
