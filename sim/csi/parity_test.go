package csi

import (
	"fmt"
	"testing"
	"time"

	"seedlet.dev/sim/agenda"
	"seedlet.dev/sim/disk"
	"seedlet.dev/sim/plan"
	"seedlet.dev/sim/truth"
	"seedlet.dev/sim/wire"
	"seedlet.dev/world"
	"seedlet.dev/world/parity"
)

var begin = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// driver is that of the tests.
var driver = world.CSIDriver{Name: "driver.test", Endpoint: "/csi/driver.sock"}

// testWorld has a disk and the drivers of it, with a client.
type testWorld struct {
	agenda      *agenda.Agenda
	disk        *disk.Disk
	drivers     *Drivers
	facts       []truth.Fact
	ops         world.OpID
	completions map[world.OpID]world.Event
	volumes     map[string]bool
	faults      map[string]wire.Outcome // of the next call, by its name
}

func newTestWorld(seed uint64, is *plan.CSIDriver) *testWorld {
	w := &testWorld{agenda: agenda.New(begin, seed), completions: map[world.OpID]world.Event{},
		volumes: map[string]bool{}, faults: map[string]wire.Outcome{}}
	log := &truth.Log{}
	log.Subscribe(func(f truth.Fact) { w.facts = append(w.facts, f) })
	deliver := func(ev world.Event) { w.completions[ev.Op] = ev }
	w.disk = disk.New(disk.Options{Agenda: w.agenda, Truth: log, Seed: seed, Deliver: deliver})
	w.drivers = New(Options{Agenda: w.agenda, Truth: log, Seed: seed, Deliver: deliver, Disk: w.disk,
		Node: "node", Faults: w,
		HasVolume: func(_, handle string) bool { return w.volumes[handle] }})
	w.drivers.Start(driver.Name, driver.Endpoint, is)
	w.disk.CreateSpecial("/parity", world.PathDirectory)
	return w
}

// Decide implements wire.FaultSource.
func (w *testWorld) Decide(id wire.CallID, _ time.Time) wire.Outcome {
	outcome := w.faults[id.Name]
	delete(w.faults, id.Name)
	outcome.RequestLatency, outcome.ResponseLatency = time.Millisecond, time.Millisecond
	return outcome
}

func (w *testWorld) Fault(call string, fault parity.CSIFault) {
	failure := world.Errorf(world.KindUnavailable, call, "by the test")
	w.faults[call] = map[parity.CSIFault]wire.Outcome{
		parity.CSIFailsBefore: {ErrorBefore: failure}, parity.CSIFailsAfter: {ErrorAfter: failure},
		parity.CSILate: {EffectDelay: parity.CSILateness},
	}[fault]
}

func (w *testWorld) begin(body any, timeout time.Duration) func() (any, *world.Error) {
	w.ops++
	op := w.ops
	eff := world.Effect{Op: op, Body: body, Deadline: w.agenda.Now().Add(timeout)}
	if world.PortOf(body) == world.PortCSI {
		w.drivers.Do(eff)
	} else {
		w.disk.Do(eff)
	}
	return func() (any, *world.Error) {
		for {
			if ev, completed := w.completions[op]; completed {
				return ev.Body, ev.Err
			}
			if !w.agenda.Run() {
				panic(world.CallName(body) + " never completed")
			}
		}
	}
}

func (w *testWorld) Begin(body any) func() (any, *world.Error) {
	return w.begin(body, 2*time.Minute)
}

func (w *testWorld) Call(body any) (any, *world.Error) { return w.Begin(body)() }

func (w *testWorld) CallWithin(body any, timeout time.Duration) (any, *world.Error) {
	return w.begin(body, timeout)()
}

func (w *testWorld) Send(any) { panic("csi: no effect is one-way") }

func (w *testWorld) Sleep(d time.Duration) {
	awake := false
	w.agenda.After(d, func() { awake = true })
	for !awake {
		w.agenda.Run()
	}
}

func (w *testWorld) Now() time.Time { return w.agenda.Now() }

func (w *testWorld) Dir() string { return "/parity" }

func (w *testWorld) Driver() world.CSIDriver { return driver }

func (w *testWorld) Restart() func() {
	is := w.drivers.running[driver.Endpoint].is
	w.drivers.Stop(driver.Endpoint)
	return func() { w.drivers.Start(driver.Name, driver.Endpoint, is) }
}

func (w *testWorld) NewVolume() string {
	handle := fmt.Sprint("volume-", len(w.volumes))
	w.volumes[handle] = true
	return handle
}

func (w *testWorld) GrowVolume(handle string) int64 {
	w.drivers.Grow(driver.Name, handle, 2*volumeBytes)
	return 2 * volumeBytes
}

func TestParity(t *testing.T) {
	for seed := range uint64(10) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			parity.CSIPort(t, func(*testing.T) parity.CSI {
				return newTestWorld(seed, &plan.CSIDriver{MultiWriter: true, Condition: true})
			})
		})
	}
}
