package apiserver

import (
	"fmt"
	"testing"
	"time"

	"seedlet.dev/sim/agenda"
	"seedlet.dev/sim/truth"
	"seedlet.dev/sim/wire"
	"seedlet.dev/world"
	"seedlet.dev/world/parity"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// simCluster is a simulated API server with the agent of one node as its client.
type simCluster struct {
	agenda      *agenda.Agenda
	server      *Server
	log         *truth.Log
	ops         world.OpID
	completions map[world.OpID]world.Event
	watchEvents []any
}

// varyingLatency injects latencies that vary from call to call.
type varyingLatency struct{}

func (varyingLatency) Decide(id wire.CallID, _ time.Time) wire.Outcome {
	latency := time.Duration(id.Nth*7919%13) * time.Millisecond
	return wire.Outcome{RequestLatency: latency, ResponseLatency: latency}
}

func newCluster(seed uint64) *simCluster {
	c := &simCluster{agenda: agenda.New(start, seed), log: &truth.Log{},
		completions: map[world.OpID]world.Event{}}
	c.server = New(Options{Agenda: c.agenda, Truth: c.log, Seed: seed, Node: "node-1",
		Faults: varyingLatency{}, Deliver: c.deliver})
	return c
}

func (c *simCluster) deliver(ev world.Event) {
	if ev.Op != 0 {
		c.completions[ev.Op] = ev
	} else {
		c.watchEvents = append(c.watchEvents, ev.Body)
	}
}

func (*simCluster) Node() string                         { return "node-1" }
func (*simCluster) Namespace() string                    { return "parity" }
func (c *simCluster) WatchEvents() []any                 { return c.watchEvents }
func (c *simCluster) Now() time.Time                     { return c.agenda.Now() }
func (c *simCluster) Send(body any)                      { c.server.Do(world.Effect{Body: body}) }
func (c *simCluster) Admin(body any) (any, *world.Error) { return c.server.Admin("admin", body) }
func (c *simCluster) Call(body any) (any, *world.Error)  { return c.Begin(body)() }

func (c *simCluster) Begin(body any) func() (any, *world.Error) {
	c.ops++
	op := c.ops
	c.server.Do(world.Effect{Op: op, Body: body, Deadline: c.agenda.Now().Add(2 * time.Minute)})
	return func() (any, *world.Error) {
		for {
			if ev, completed := c.completions[op]; completed {
				return ev.Body, ev.Err
			}
			if !c.agenda.Run() {
				panic(world.CallName(body) + " never completed")
			}
		}
	}
}

func (c *simCluster) Sleep(d time.Duration) {
	awake := false
	c.agenda.After(d, func() { awake = true })
	for !awake {
		c.agenda.Run()
	}
}

func TestParity(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { parity.API(t, newCluster(seed)) })
	}
}
