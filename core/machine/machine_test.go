package machine

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"seedlet.dev/core/op"
	"seedlet.dev/world"
)

var t0 = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// A fact that cannot be determined, and a failed observation, change nothing.
func TestFactsThatCannotBeDetermined(t *testing.T) {
	known := world.Boot{Seed: 1, CPUs: 4, MemoryBytes: 1 << 30, Addresses: []string{"192.0.2.1"},
		NameAddresses: []string{"192.0.2.2"},
		Machine:       world.Machine{RootDirBytes: 1 << 40, SwapBytes: 1 << 20}}
	less := known
	less.Machine.SwapBytes = 0
	resolved := known
	resolved.NameAddresses = nil
	more := known
	more.CPUs, more.Machine.RootDirBytes, more.Addresses = 8, 2<<40, []string{"192.0.2.3"}
	same := world.MachineRead{CPUs: 4, MemoryBytes: 1 << 30, Addresses: known.Addresses,
		NameAddresses: known.NameAddresses, Machine: known.Machine}
	grown := same
	grown.CPUs, grown.Addresses, grown.Machine.RootDirBytes = 8, more.Addresses, 2<<40
	gone := same
	gone.NameAddresses = nil
	for _, c := range []struct {
		name string
		body any
		err  *world.Error
		want world.Boot
	}{
		{"nothing changed", &same, nil, known},
		{"failed", nil, world.Errorf(world.KindTimeout, "ReadMachine", "too late"), known},
		{"another answer", &world.Done{}, nil, known},
		{"nothing can be determined", &world.MachineRead{NameUnknown: true}, nil, less},
		{"CPUs, disk and address", &grown, nil, more},
		{"the name is in no name server any more", &gone, nil, resolved},
	} {
		effects, table, boot := &op.Effects{}, &op.Table{}, known
		effects.Reset(table, t0)
		o := &Observer{Period: 10 * time.Second, Name: "n1"}
		o.Plan(effects)
		if o.Op == 0 {
			t.Fatalf("%s: no observation", c.name)
		}
		changed := o.HandleCompletion(world.Event{Time: t0, Op: o.Op, Body: c.body, Err: c.err}, &boot,
			effects)
		if d := cmp.Diff(c.want, boot); d != "" || changed == cmp.Equal(known, boot) {
			t.Errorf("%s: changed %v: %s", c.name, changed, d)
		}
		if o.Op != 0 || !o.NextAt.Equal(t0.Add(o.Period)) {
			t.Errorf("%s: the next observation: %+v", c.name, o)
		}
	}
}

// The boot event is the first observation.
func TestFirstObservationIsAPeriodAfterTheBoot(t *testing.T) {
	effects := &op.Effects{}
	effects.Reset(&op.Table{}, t0)
	o := &Observer{Period: 10 * time.Second}
	o.Start(t0)
	if wake := o.Plan(effects); o.Op != 0 || !wake.Equal(t0.Add(o.Period)) {
		t.Errorf("observed at once, or not again: %+v, %s", o, wake)
	}
}
