package node

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/op"
	"seedlet.dev/core/timer"
	"seedlet.dev/world"
)

// OOMOwner is the key of the timer of the Events about processes that the kernel has ended.
var OOMOwner = timer.Key{Component: "oom"}

// The rate of the Events. client-go passes on 25 Events about one object at once, and then one in
// five minutes (tools/record/events_cache.go): a tenant whose processes are ended all the time
// leaves more than half of that to the other Events of the Node.
const (
	oomEventsBurst   = 10
	oomEventInterval = 10 * time.Minute
)

// OOMs is what is known of the processes that the kernel has ended because the machine was out of
// memory.
type OOMs struct {
	Seen uint64 `json:"seen,omitempty"` // processes, since the agent started
	// PacedUntil is when oomEventsBurst Events may be recorded at once again: each Event moves it on
	// by oomEventInterval.
	PacedUntil time.Time `json:"pacedUntil"`
	// Omitted are the processes since the last Event that have none of their own, OmittedTotal those
	// since the agent started.
	Omitted      uint64 `json:"omitted,omitempty"`
	OmittedTotal uint64 `json:"omittedTotal,omitempty"`
}

// Observe records a process that the kernel has ended: in an Event of its own if the rate allows
// that, and otherwise in the number that the next Event of Plan has.
// The name of a process is chosen by a tenant: only printable ASCII of it is reported, and no more
// than the kernel can have logged of TASK_COMM_LEN bytes. Upstream: Start in
// pkg/kubelet/oom/oom_watcher_linux.go.
func (o *OOMs) Observe(name string, oom *world.SystemOOM, effects *op.Effects) {
	now := effects.Now()
	o.Seen += 1 + oom.Omitted
	o.omit(oom.Omitted)
	if now.Before(o.nextEventAt()) {
		o.omit(1)
		return
	}
	message, process := "", printableName(oom.Process)
	if process != "" && oom.PID != 0 {
		message = fmt.Sprintf(", victim process: %s, pid: %d", process, oom.PID)
	}
	o.record(name, message, effects)
}

// Plan records how many processes have no Event of their own, once the rate allows that. It returns
// when to plan again.
func (o *OOMs) Plan(name string, effects *op.Effects) time.Time {
	if o.Omitted == 0 {
		return time.Time{}
	}
	if next := o.nextEventAt(); effects.Now().Before(next) {
		return next
	}
	o.record(name, fmt.Sprintf(", victim processes without an Event of their own: %d", o.Omitted),
		effects)
	o.Omitted = 0
	return time.Time{}
}

// nextEventAt returns from when on an Event may be recorded.
func (o *OOMs) nextEventAt() time.Time {
	return o.PacedUntil.Add(-(oomEventsBurst - 1) * oomEventInterval)
}

func (o *OOMs) record(name, message string, effects *op.Effects) {
	o.PacedUntil = timer.Later(o.PacedUntil, effects.Now()).Add(oomEventInterval)
	effects.RecordEvent(Reference(name), v1.EventTypeWarning, "SystemOOM",
		"System OOM encountered%s", message)
}

func (o *OOMs) omit(processes uint64) {
	o.Omitted, o.OmittedTotal = o.Omitted+processes, o.OmittedTotal+processes
}
