package op

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/budget"
	"seedlet.dev/core/timer"
	"seedlet.dev/world"
)

// podComponent is the component in the keys of pods.
const podComponent = "pod"

// Effects collects the effects of one step. It is not part of the state.
type Effects struct {
	table   *Table
	now     time.Time
	wall    *timer.WallClock // nil: the clock agrees with the date
	effects []world.Effect
	pod     string // see WorkOn
	work    int    // see CountWork
}

// Reset starts a step at the given time: it drops the effects of the step before.
func (o *Effects) Reset(table *Table, now time.Time) {
	clear(o.effects)
	o.table, o.now, o.effects, o.work = table, now, o.effects[:0], 0
}

// Now returns the time of the step, for intervals.
func (o *Effects) Now() time.Time { return o.now }

// NextID returns the ID that the next operation will have.
func (o *Effects) NextID() world.OpID { return o.table.LastID + 1 }

// SetWall sets what the dates of times are taken from.
func (o *Effects) SetWall(wall *timer.WallClock) { o.wall = wall }

// Date returns the date of the step, for timestamps that others read.
func (o *Effects) Date() time.Time { return o.wall.Date(o.now) }

// DateOf returns the date of a time.
func (o *Effects) DateOf(at time.Time) time.Time { return o.wall.Date(at) }

// WorkOn notes the UID of the pod that the step works on from now on, empty for no pod alone, and
// returns the one before. The note says which pod a panic is about. A panic leaves it as it is, so
// the previous pod is noted again by a statement, not by a defer.
func (o *Effects) WorkOn(uid string) (previous string) {
	previous, o.pod = o.pod, uid
	return previous
}

// CountWork counts what a plan has built, in bytes, or what takes as long. Only what a pod can make
// large is counted. It depends on the state alone: what is taken from a cache counts as if it were
// built, since a restored agent has to do the same.
func (o *Effects) CountWork(bytes int) { o.work += bytes }

// Work returns what the plans of the step have built.
func (o *Effects) Work() int { return o.work }

// CurrentPod returns the UID that was noted last.
func (o *Effects) CurrentPod() string { return o.pod }

// Issue issues an operation. The effect is added to the step, and a record stays in the table until
// the completion arrives or the timeout has passed. An operation over a bound has no effect, and
// completes with KindExhausted.
func (o *Effects) Issue(owner Owner, subject string, timeout time.Duration, body any) world.OpID {
	return o.issue(issuing{tenant: tenantOf(owner)}, owner, subject, timeout, body)
}

// tenantOf returns the tenant of an owner's operations, see world.Effect; empty for the node.
func tenantOf(owner Owner) string {
	switch {
	case owner.Component == podComponent, owner.Component == "status": // they have the UID of the pod
		return owner.Name
	case tenantComponents[owner.Component]:
		return owner.String()
	}
	return ""
}

// IssueFor is Issue for an operation whose owner is no pod, but whose tenant is known.
func (o *Effects) IssueFor(tenant string, owner Owner, subject string, timeout time.Duration,
	body any) world.OpID {
	return o.issue(issuing{tenant: tenant}, owner, subject, timeout, body)
}

// IssueAt is Issue for an operation on a path of the node that the author of a pod chose, if
// hostPath is not empty. Such a path may be on a file system that hangs.
func (o *Effects) IssueAt(hostPath string, owner Owner, subject string, timeout time.Duration,
	body any) world.OpID {
	return o.issue(issuing{hostPath, tenantOf(owner)}, owner, subject, timeout, body)
}

// IssueAtFor is IssueAt for an operation whose owner is no pod, but whose tenant is known.
func (o *Effects) IssueAtFor(tenant, hostPath string, owner Owner, subject string,
	timeout time.Duration, body any) world.OpID {
	return o.issue(issuing{hostPath, tenant}, owner, subject, timeout, body)
}

// issuing is what an effect has besides its body and its record.
type issuing struct{ hostPath, tenant string }

func (o *Effects) issue(with issuing, owner Owner, subject string, timeout time.Duration,
	body any) world.OpID {
	deadline := o.now.Add(timeout)
	id, mayIssue := o.table.add(Record{
		Owner: owner, Call: world.CallName(body), Subject: subject, IssuedAt: o.now, Deadline: deadline,
	})
	if !mayIssue {
		return id
	}
	effect := world.Effect{Op: id, Body: body, Deadline: deadline, HostPath: with.hostPath,
		Tenant: with.tenant}
	if owner.Component == podComponent {
		effect.Pod = owner.Name
	}
	o.effects = append(o.effects, effect)
	return id
}

// Abandon abandons an operation: its completion will be dropped.
func (o *Effects) Abandon(id world.OpID) { o.table.Remove(id) }

// Cancel abandons an operation, and has it canceled if that is possible: what it does is unknown.
// The slot of a lane that it holds is free soon for what is requested instead.
func (o *Effects) Cancel(id world.OpID) {
	if r, ok := o.table.Records[id]; ok && !r.Refused {
		o.Emit(&world.CancelOperation{Operation: id})
	}
	o.table.Remove(id)
}

// EndEarly has an operation in flight canceled if that is possible, and awaits its completion all
// the same: nothing that it would disturb is issued before.
func (o *Effects) EndEarly(id world.OpID) {
	if r, ok := o.table.Records[id]; ok && !r.Refused {
		o.Emit(&world.CancelOperation{Operation: id})
	}
}

// Find returns the record of an operation; false if it is not in flight.
func (o *Effects) Find(id world.OpID) (Record, bool) {
	r, isInFlight := o.table.Records[id]
	return r, isInFlight
}

// Emit adds an effect that has no completion.
func (o *Effects) Emit(body any) {
	o.effects = append(o.effects, world.Effect{Body: body})
}

// Log adds a log line. Fields are alternating keys and values.
func (o *Effects) Log(level world.Level, message string, fields ...any) {
	o.Emit(&world.Log{Level: level, Message: message, Fields: fields})
}

// RecordEvent adds a Kubernetes Event about a pod or the node, with the reason and message of the
// kubelet if it has such an event. A reason is one word. An Event belongs where a fact changes, not
// into a plan: a plan may run twice.
func (o *Effects) RecordEvent(regarding v1.ObjectReference, kind, reason, format string,
	args ...any) {
	message := format
	if len(args) > 0 {
		message = fmt.Sprintf(format, args...)
	}
	o.Record(&world.RecordEvent{Regarding: regarding, Type: kind, Reason: reason, Message: message})
}

// Record adds a Kubernetes Event, with as much of its message as the API server takes whatever it
// is about.
func (o *Effects) Record(event *world.RecordEvent) {
	event.Message = budget.CutMessage(event.Message)
	o.Emit(event)
}

// List returns the effects of the step. The slice is valid until the next step begins.
func (o *Effects) List() []world.Effect { return o.effects }
