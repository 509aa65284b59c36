// Package containergc reports that the garbage collection of containers fails.
//
// The collection itself is part of the plans of pods (core/pod: old runs, the containers of pods
// that have ended or are gone, their sandboxes) and of core/housekeeping (directories of logs).
// What fails there is a fact of each: a Failure, since when and how.
//
// Facts of this package: when the last round was. Plan: a round every minute, which records an
// event of the Node if anything has failed for longer than a round and still fails. Upstream:
// StartGarbageCollection in pkg/kubelet/kubelet.go; there, failed lists are events, and failed
// removals are only in the log. Start reading at Rounds.Plan.
package containergc

import (
	"fmt"
	"strings"
	"time"

	"seedlet.dev/core/op"
	"seedlet.dev/core/timer"
	"seedlet.dev/world"
)

// Owner is the key of the timer.
var Owner = timer.Key{Component: "containergc"}

const (
	period       = time.Minute         // ContainerGCPeriod of the kubelet
	reasonFailed = "ContainerGCFailed" // of the event (pkg/kubelet/events)
	messagesMax  = 8                   // in one event
)

// Failure is that a step of the collection fails; the zero value: it does not.
type Failure struct {
	Since   time.Time `json:"since"`
	Last    time.Time `json:"last"` // when it failed last
	Message string    `json:"message,omitempty"`
}

// Note records that the step has failed.
func (f *Failure) Note(now time.Time, message string) {
	if f.Since.IsZero() {
		f.Since = now
	}
	f.Last, f.Message = now, message
}

// Rounds is the state of the reports.
type Rounds struct {
	LastAt time.Time `json:"lastAt"`           // of the last round; zero: the agent has just started
	Failed bool      `json:"failed,omitempty"` // it had something to report
}

// Env is what the plan depends on besides the facts.
type Env struct {
	Effects  *op.Effects
	Failures func() []Failure             // of all steps, in a fixed order
	Warn     func(reason, message string) // records a warning event of the Node
}

// Plan reports the failures of the last minute, and returns when to plan again. A step that has
// failed only once, or whose first failure is younger than a round, may succeed at the next try.
func (r *Rounds) Plan(env *Env) time.Time {
	now := env.Effects.Now()
	if r.LastAt.IsZero() {
		r.LastAt = now
	}
	if next := r.LastAt.Add(period); now.Before(next) {
		return next
	}
	var messages []string
	isKnown := map[string]bool{}
	for _, f := range env.Failures() {
		if f.Last.After(r.LastAt) && now.Sub(f.Since) >= period && !isKnown[f.Message] {
			isKnown[f.Message] = true
			messages = append(messages, f.Message)
		}
	}
	message := join(messages)
	if message != "" {
		env.Warn(reasonFailed, message)
		env.Effects.Log(world.LevelError, "Container garbage collection failed", "err", message)
	} else if r.Failed {
		env.Effects.Log(world.LevelInfo, "Container garbage collection succeeded")
	}
	r.LastAt, r.Failed = now, message != ""
	return now.Add(period)
}

// join returns several messages as one, as the kubelet's aggregate of errors does, bounded.
func join(messages []string) string {
	if len(messages) <= 1 {
		return strings.Join(messages, "")
	}
	more := ""
	if n := len(messages) - messagesMax; n > 0 {
		messages, more = messages[:messagesMax], fmt.Sprintf(", and %d more", n)
	}
	return "[" + strings.Join(messages, ", ") + more + "]"
}
