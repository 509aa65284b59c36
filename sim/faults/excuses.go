package faults

import (
	"slices"
	"time"

	"seedlet.dev/sim/apiserver"
	"seedlet.dev/sim/plan"
)

// Excuses are the times in which calls may have failed because of the plan.
type Excuses struct {
	windows     []interval
	runtimeDown []interval // the runtime's process is down
	urlBroken   []interval // the manifest URL serves no pod list, or was not fetched again yet
}

// interval is a period in which a fault affects calls that are on their way. It is longer than the
// fault's window by the time for which a call may be delayed.
type interval struct {
	window   *window // nil if the interval is not that of a fault window
	from, to time.Time
}

// The bounds of recovery after a fault.
const (
	// refetchMax bounds the time until the agent has fetched a manifest URL that works again.
	refetchMax = 45 * time.Second
	// reconnectMax bounds the time until the agent has recovered from a fault of the API server.
	reconnectMax = 45 * time.Second
)

// NewExcuses returns the excuses of a plan.
func NewExcuses(f *Injector, spec *plan.Spec) *Excuses {
	e := &Excuses{}
	for i := range f.windows {
		w := &f.windows[i]
		delay := 2*w.Takes.Most + latencyMost // of the request and of the response
		if w.Class == plan.FaultFileEvents {
			delay = fileEventLateMax
		}
		if w.Class.AffectsAPI() {
			delay += reconnectMax
		}
		e.windows = append(e.windows, interval{w, w.from, w.to.Add(delay)})
	}
	for _, restart := range spec.RuntimeRestarts {
		from := f.start.Add(time.Duration(restart.At))
		e.runtimeDown = append(e.runtimeDown,
			interval{nil, from, from.Add(time.Duration(restart.Down))})
	}
	for i, c := range spec.Manifests {
		if !c.URL || c.Text == "" {
			continue
		}
		until := spec.Duration
		for _, next := range spec.Manifests[i+1:] {
			if next.URL && next.File == c.File {
				until = next.At
				break
			}
		}
		e.urlBroken = append(e.urlBroken, interval{nil, f.start.Add(time.Duration(c.At)),
			f.start.Add(time.Duration(until) + refetchMax)})
	}
	return e
}

// MayHaveFailed reports whether a fault may have affected a call that was in flight between two
// times.
func (e *Excuses) MayHaveFailed(call string, from, to time.Time) bool {
	for _, i := range e.windows {
		if i.overlaps(from, to) && i.window.applies(call) &&
			(i.window.Class != plan.FaultDiskFull || slices.Contains(diskFullCalls, call)) {
			return true
		}
	}
	for _, i := range e.runtimeDown {
		if i.overlaps(from, to) && !slices.Contains(nonRuntimeCalls, call) &&
			!plan.IsAPICall(call) && call != apiserver.CallObject {
			return true
		}
	}
	return call == "FetchManifest" && slices.ContainsFunc(e.urlBroken, func(i interval) bool {
		return i.overlaps(from, to)
	})
}

// LastFault returns when, at a time, a fault of any kind last applied or may still have had an
// effect; zero if none has yet.
func (e *Excuses) LastFault(now time.Time) time.Time {
	var last time.Time
	for _, all := range [][]interval{e.windows, e.runtimeDown, e.urlBroken} {
		for _, i := range all {
			until := i.to
			if until.After(now) {
				until = now
			}
			if !i.from.After(now) && until.After(last) {
				last = until
			}
		}
	}
	return last
}

func (i *interval) overlaps(from, to time.Time) bool {
	return !to.Before(i.from) && !from.After(i.to)
}

// diskFullCalls are the calls that fail when the disk is full.
var diskFullCalls = []string{"MakeDir", "WriteFile"}

// nonRuntimeCalls are the calls that do not go to the runtime, besides those to the API server.
var nonRuntimeCalls = []string{
	"ReadFiles", "ListDir", "MakeDir", "WriteFile", "RemoveTree", "FileChanged",
	"HTTPGet", "TCPConnect", "GRPCCheck", "FetchManifest",
	"SetCgroup", "RemoveCgroup", "ListCgroups",
}
