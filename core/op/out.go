package op

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/world"
)

// podComponent is the component part of the keys of pods.
const podComponent = "pod"

// Out collects the effects of one step. It lives for that step only and is no part of the state.
type Out struct {
	table   *Table
	now     time.Time
	effects []world.Effect
}

// Begin starts the collection of a step at the given time, reusing memory.
func (o *Out) Begin(table *Table, now time.Time) {
	clear(o.effects)
	o.table, o.now, o.effects = table, now, o.effects[:0]
}

// Now is the time of the step.
func (o *Out) Now() time.Time { return o.now }

// Ask begins an operation: the effect is handed out and a record of it is kept until it is
// answered or its timeout has passed.
func (o *Out) Ask(owner Owner, subject string, timeout time.Duration, body any) world.OpID {
	return o.AskAt("", owner, subject, timeout, body)
}

// AskAt is Ask for an operation at a path of the node that a pod's author chose, if there is one.
func (o *Out) AskAt(hostPath string, owner Owner, subject string, timeout time.Duration,
	body any) world.OpID {
	deadline := o.now.Add(timeout)
	id := o.table.begin(Record{
		Owner: owner, Call: world.Call(body), Subject: subject, Began: o.now, Deadline: deadline,
	})
	effect := world.Effect{Op: id, Body: body, Deadline: deadline, HostPath: hostPath}
	if owner.Component == podComponent {
		effect.Pod = owner.Name
	}
	o.effects = append(o.effects, effect)
	return id
}

// Forget gives up on an operation: what it answers no longer matters.
func (o *Out) Forget(id world.OpID) { o.table.Forget(id) }

// Tell hands out an effect that is never answered.
func (o *Out) Tell(body any) {
	o.effects = append(o.effects, world.Effect{Body: body})
}

// Log hands out a log line. Fields are key, value, key, value.
func (o *Out) Log(level world.Level, message string, fields ...any) {
	o.Tell(&world.Log{Level: level, Message: message, Fields: fields})
}

// Event tells users that something has happened to a pod or to the node, in the kubelet's words
// where it has any. Reasons are one word. It belongs where a fact changes: a plan that is made
// twice must not tell twice.
func (o *Out) Event(regarding v1.ObjectReference, kind, reason, format string, args ...any) {
	message := format
	if len(args) > 0 {
		message = fmt.Sprintf(format, args...)
	}
	o.Tell(&world.RecordEvent{Regarding: regarding, Type: kind, Reason: reason, Message: message})
}

// Take returns the effects of the step. They are valid until the next Begin.
func (o *Out) Take() []world.Effect { return o.effects }
