// Package machine observes the machine while the agent runs: its CPUs, memory, disk size, huge
// pages, and addresses.
//
// The boot event has the first observation. Facts: the observation in flight. Plan: an observation
// every period. A fact that cannot be determined now keeps its last value: a file system that does
// not answer has not lost its size, and a name server that does not answer has not changed the
// node's address. Start reading at Observer.Plan.
package machine

import (
	"cmp"
	"reflect"
	"slices"
	"time"

	"seedlet.dev/core/op"
	"seedlet.dev/core/timer"
	"seedlet.dev/world"
)

const readTimeout = 10 * time.Second

// Owner is the key of the operations and the timer.
var Owner = timer.Key{Component: "machine"}

// Observer is the state of the observations.
type Observer struct {
	// Period is that of the comparisons of the Node's status, with which the kubelet resolves the
	// addresses again (nodestatus/setters.go).
	Period    time.Duration `json:"period"`
	Name      string        `json:"name,omitempty"` // to look up; empty: the addresses are configured
	Op        world.OpID    `json:"op,omitempty"`
	NextAt    time.Time     `json:"nextAt"`
	LastError string        `json:"lastError,omitempty"`
}

// Start begins the observations. The first is that of the boot event.
func (o *Observer) Start(now time.Time) { o.NextAt = now.Add(o.Period) }

// Plan observes the machine if due, and returns when to plan again.
func (o *Observer) Plan(effects *op.Effects) time.Time {
	switch {
	case o.Op != 0:
		return time.Time{}
	case effects.Now().Before(o.NextAt):
		return o.NextAt
	}
	o.Op = effects.Issue(Owner, "", readTimeout, &world.ReadMachine{Name: o.Name})
	return time.Time{}
}

// HandleCompletion applies an observation to the facts of the boot event, and reports whether they
// have changed.
func (o *Observer) HandleCompletion(ev world.Event, boot *world.Boot, effects *op.Effects) bool {
	o.Op, o.NextAt = 0, ev.Time.Add(o.Period)
	read, ok := ev.Body.(*world.MachineRead)
	err := ev.Err
	if err == nil && !ok {
		err = world.Errorf(world.KindInternal, "ReadMachine", "answered without a machine")
	}
	if err != nil {
		if o.LastError == "" {
			effects.Log(world.LevelWarning, "Failed to observe the machine", "err", err.Error())
		}
		o.LastError = err.Error()
		return false
	}
	o.LastError = ""
	before := *boot
	update(boot, read)
	return !reflect.DeepEqual(before, *boot)
}

// update applies an observation.
func update(boot *world.Boot, read *world.MachineRead) {
	boot.CPUs = cmp.Or(read.CPUs, boot.CPUs)
	boot.MemoryBytes = cmp.Or(read.MemoryBytes, boot.MemoryBytes)
	if len(read.Addresses) > 0 {
		boot.Addresses = read.Addresses
	}
	if !read.NameUnknown && !hasSameElements(boot.NameAddresses, read.NameAddresses) {
		boot.NameAddresses = read.NameAddresses // name servers rotate the order
	}
	bytes := cmp.Or(read.Machine.RootDirBytes, boot.Machine.RootDirBytes)
	label := boot.Machine.SELinuxFileLabel // runtimes read it once, too
	boot.Machine = read.Machine
	boot.Machine.RootDirBytes, boot.Machine.SELinuxFileLabel = bytes, label
}

// hasSameElements reports whether two lists differ in their order at most.
func hasSameElements(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}
