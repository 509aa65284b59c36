// Package whatif answers what an event on a node does to people's own pods: it takes their
// manifests, simulates one node with the pods of them many times, has the event come at another
// moment each time, and counts how the pods ended and when they were Ready again.
//
// Start reading at Run. Read makes an Input of manifests, plan.go a plan of an Input and a seed,
// watch.go judges one run by the facts of the simulated world, and report.go has the table.
package whatif

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"seedlet.dev/sim"
	"seedlet.dev/sim/plan"
)

// Event is what happens on the node.
type Event string

// The events.
const (
	RuntimeRestart Event = "runtime-restart"
	Reboot         Event = "reboot"
	Drain          Event = "drain"
	NodeShutdown   Event = "node-shutdown"
	MemoryPressure Event = "memory-pressure"
	DiskPressure   Event = "disk-pressure"
	AgentRestart   Event = "agent-restart"
)

// Events are all events.
var Events = []Event{RuntimeRestart, Reboot, Drain, NodeShutdown, MemoryPressure, DiskPressure,
	AgentRestart}

// ParseEvent returns the event of a name.
func ParseEvent(name string) (Event, error) {
	var names []string
	for _, e := range Events {
		if string(e) == name {
			return e, nil
		}
		names = append(names, string(e))
	}
	return "", fmt.Errorf("want one of %s, have %q", strings.Join(names, ", "), name)
}

// Options say what is run.
type Options struct {
	Event Event
	Runs  int
	Seed  uint64 // of the first run; the others have those that follow
	// Each calls a function with every number below n, some of them at once.
	Each func(n int, do func(int))
	// Progress is called after each run, also by several goroutines at once.
	Progress func()
}

// Run runs the event with every seed, and returns what became of the pods. The report depends on
// the input, the event and the seeds only.
func Run(in *Input, o Options) (*Report, error) {
	if err := in.checkSelectors(); err != nil {
		return nil, err
	}
	if err := in.checkUsage(o.Event); err != nil {
		return nil, err
	}
	calm, err := in.rehearse()
	if err != nil {
		return nil, err
	}
	outcomes, errs := make([]outcome, o.Runs), make([]error, o.Runs)
	o.Each(o.Runs, func(i int) {
		seed := o.Seed + uint64(i)
		outcomes[i], errs[i] = in.runOnce(in.plan(seed, o.Event, calm.readyAt))
		o.Progress()
	})
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	rep := newReport(in, o, outcomes)
	rep.Notes = append(slices.Clone(in.Notes), calm.notes...)
	if o.Event == NodeShutdown && in.Node.shutdownPeriod() == 0 {
		rep.Notes = append(rep.Notes, "the node's shutdownGracePeriod is 0, as it is by default: the "+
			"machine goes down at once")
	}
	if note := in.Node.pressureNote(o.Event); note != "" {
		rep.Notes = append(rep.Notes, note)
	}
	rep.readyAt = calm.readyAt
	return rep, nil
}

// rehearsal is the outcome of the run without an event.
type rehearsal struct {
	readyAt time.Duration // when the last pod became Ready
	notes   []string
}

// rehearse runs the pods without an event. Its seed is the same whatever the seeds of the other
// runs are, so that each of them is the same by itself.
func (in *Input) rehearse() (*rehearsal, error) {
	const seed = 1
	result, err := in.runOnce(in.plan(seed, "", 0))
	if err != nil {
		return nil, err
	}
	r := &rehearsal{}
	for w, pods := range result.pods {
		for i, p := range pods {
			if p.firstReady == 0 {
				r.notes = append(r.notes, fmt.Sprintf("pod %s of %s is never Ready, also without an event",
					in.Workloads[w].Pods[i].Name, in.Workloads[w]))
			}
			r.readyAt = max(r.readyAt, p.firstReady)
		}
	}
	if f := result.failure; f != nil {
		r.notes = append(r.notes, fmt.Sprintf("without an event: %s: %s", f.Oracle, f.Message))
	}
	return r, nil
}

// outcome is what became of the pods in one run, by workload and pod.
type outcome struct {
	pods    [][]podOutcome
	failure *sim.Failure // nil: no oracle reported a violation
}

func (in *Input) runOnce(p *plan.Plan) (outcome, error) {
	w := newWatcher(in)
	verdict, err := sim.Run(p, sim.Options{WatchFact: w.fact, WatchHappening: w.happening})
	if err != nil {
		return outcome{}, err
	}
	return outcome{pods: w.finish(), failure: verdict.Failure}, nil
}

// percentile returns the value that a share of all values, in percent, does not exceed. The values
// are sorted, and there is at least one.
func percentile[T cmp.Ordered](sorted []T, percent int) T {
	rank := (len(sorted)*percent + 99) / 100
	return sorted[max(rank, 1)-1]
}
