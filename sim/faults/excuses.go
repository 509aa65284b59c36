package faults

import (
	"slices"
	"time"

	"seedlet.dev/sim/plan"
	"seedlet.dev/sim/runtime"
	"seedlet.dev/world"
)

// Excuses are the times in which calls may have failed because of the plan.
type Excuses struct {
	injector    *Injector
	runtimeDown []interval // the runtime's process is down
	pageBroken  []interval // the manifest URL serves no pod list, or was not fetched again yet
	diskFull    []interval // calls have failed as a file system had no space left
}

// interval is a period in which a fault may affect calls.
type interval struct{ from, to time.Time }

// The bounds of recovery after a fault.
const (
	// refetchMax bounds the time until the agent has fetched a manifest URL that works again.
	refetchMax = 45 * time.Second
	// reconnectMax bounds the time until the agent has recovered from a fault of the API server.
	reconnectMax = 45 * time.Second
	// notYet is later than any run.
	notYet = 100 * 24 * time.Hour
)

// NewExcuses returns the excuses of a run with the windows of an injector.
func NewExcuses(f *Injector) *Excuses { return &Excuses{injector: f} }

// RuntimeRestarted records that the runtime's process is down for a while, from now on.
func (e *Excuses) RuntimeRestarted(now time.Time, down time.Duration) {
	e.runtimeDown = append(e.runtimeDown, interval{now, now.Add(down)})
}

// DiskFull records that a write has failed now as a file system has no space left.
func (e *Excuses) DiskFull(now time.Time) {
	until := now.Add(latencyMost)
	if last := len(e.diskFull) - 1; last >= 0 && !e.diskFull[last].to.Before(now) {
		e.diskFull[last].to = until
		return
	}
	e.diskFull = append(e.diskFull, interval{now, until})
}

// PageBroken records that the manifest URL serves no list of pods from now on.
func (e *Excuses) PageBroken(now time.Time) {
	e.PageMended(now)
	e.pageBroken = append(e.pageBroken, interval{now, now.Add(notYet)})
}

// PageMended records that the manifest URL serves a list of pods again.
func (e *Excuses) PageMended(now time.Time) {
	if last := len(e.pageBroken) - 1; last >= 0 && e.pageBroken[last].to.Sub(now) > refetchMax {
		e.pageBroken[last].to = now.Add(refetchMax)
	}
}

// intervalOf returns when a window may affect a call: while it is open, and afterwards for as long
// as a call may be delayed. The delays of all windows add up that are open meanwhile and apply to
// the call; an empty call is any. It is empty if the window is not open yet.
func (f *Injector) intervalOf(w *window, call string) interval {
	if w.from.IsZero() {
		return interval{}
	}
	delay := latencyMost
	for i := range f.windows {
		v := &f.windows[i]
		if !v.Forever && !v.from.IsZero() && !v.from.After(w.to) && !w.from.After(v.to) &&
			(call == "" || v.applies(call)) {
			delay += 2 * v.Takes.Most // of the request and of the response
		}
	}
	if w.Class == plan.FaultFileEvents {
		delay = fileEventLateMax
	}
	if w.Class.AffectsAPI() || w.Class == plan.FaultAgentStalls {
		delay += reconnectMax
	}
	return interval{w.from, w.to.Add(delay)}
}

// MayHaveFailed reports whether a fault may have affected a call that was in flight between two
// times.
func (e *Excuses) MayHaveFailed(call string, from, to time.Time) bool {
	for i := range e.injector.windows {
		w := &e.injector.windows[i]
		if !w.Forever && w.applies(call) && e.injector.intervalOf(w, call).overlaps(from, to) {
			return true
		}
	}
	for _, i := range e.runtimeDown {
		if i.overlaps(from, to) && isOfRuntime(call) {
			return true
		}
	}
	for _, i := range e.diskFull {
		if i.overlaps(from, to) && (call == "PullImage" || slices.Contains(diskFullCalls, call)) {
			return true
		}
	}
	return call == "FetchManifest" && slices.ContainsFunc(e.pageBroken, func(i interval) bool {
		return i.overlaps(from, to)
	})
}

// HasWindow reports whether a window has started by a time. A window affects calls from its own
// time on; the happening that opens it may be carried out some milliseconds later, if actors have
// priorities.
func (e *Excuses) HasWindow(now time.Time) bool {
	return len(e.diskFull) > 0 || slices.ContainsFunc(e.injector.windows, func(w window) bool {
		return !w.from.IsZero() && !w.from.After(now)
	})
}

// LastFault returns when, at a time, a fault of any kind last applied or may still have had an
// effect; zero if none has yet.
func (e *Excuses) LastFault(now time.Time) time.Time {
	var last time.Time
	look := func(i interval) {
		until := i.to
		if until.After(now) {
			until = now
		}
		if !i.from.After(now) && until.After(last) {
			last = until
		}
	}
	for i := range e.injector.windows {
		if e.injector.windows[i].Forever {
			continue // it is about a pod that oracles do not judge
		}
		look(e.injector.intervalOf(&e.injector.windows[i], ""))
	}
	for _, i := range e.runtimeDown {
		look(i)
	}
	for _, i := range slices.Concat(e.pageBroken, e.diskFull) {
		look(i)
	}
	return last
}

// overlaps reports whether the interval has started and has an instant in common with another one.
// An oracle that does not know since when asks from the zero time on.
func (i interval) overlaps(from, to time.Time) bool {
	return !i.from.IsZero() && !to.Before(i.from) && !from.After(i.to)
}

// diskFullCalls are the calls that fail when the disk is full.
var diskFullCalls = []string{"MakeDir", "MakeFile", "MakeLink", "WriteFile", "WriteDir", "Compress",
	"MountMemory", "BindSubPath", "BindMount"}

// isOfRuntime reports whether a call goes to the runtime, or comes from it: those alone have the
// CRI's messages as their requests.
func isOfRuntime(call string) bool {
	_, isRequest := slices.BinarySearch(bodyNames, call+"Request")
	return isRequest || call == runtime.CallEvent
}

var bodyNames = world.BodyNames()
