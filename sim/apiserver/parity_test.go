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

// simCluster is a world with a simulated API server, and the agent of a node that asks it.
type simCluster struct {
	agenda  *agenda.Agenda
	server  *Server
	log     *truth.Log
	ops     world.OpID
	answers map[world.OpID]world.Event
	heard   []any
}

// latency is what calls need to and fro.
type latency struct{}

func (latency) Fate(_ string, op int, _ time.Time) wire.Fate {
	takes := time.Duration(op*7919%13) * time.Millisecond
	return wire.Fate{Receive: takes, Answer: takes}
}

func newCluster(seed uint64) *simCluster {
	c := &simCluster{agenda: agenda.New(start, seed), log: &truth.Log{},
		answers: map[world.OpID]world.Event{}}
	c.server = New(Options{Agenda: c.agenda, Truth: c.log, Seed: seed, Node: "node-1",
		Faults: latency{}, Answer: c.take})
	return c
}

func (c *simCluster) take(ev world.Event) {
	if ev.Op != 0 {
		c.answers[ev.Op] = ev
	} else {
		c.heard = append(c.heard, ev.Body)
	}
}

func (*simCluster) Node() string                         { return "node-1" }
func (*simCluster) Namespace() string                    { return "parity" }
func (c *simCluster) Told() []any                        { return c.heard }
func (c *simCluster) Now() time.Time                     { return c.agenda.Now() }
func (c *simCluster) Tell(body any)                      { c.server.Do(world.Effect{Body: body}) }
func (c *simCluster) Admin(body any) (any, *world.Error) { return c.server.Admin("admin", body) }
func (c *simCluster) Call(body any) (any, *world.Error)  { return c.Begin(body)() }

func (c *simCluster) Begin(body any) func() (any, *world.Error) {
	c.ops++
	op := c.ops
	c.server.Do(world.Effect{Op: op, Body: body, Deadline: c.agenda.Now().Add(2 * time.Minute)})
	return func() (any, *world.Error) {
		for {
			if ev, is := c.answers[op]; is {
				return ev.Body, ev.Err
			}
			if !c.agenda.Run() {
				panic(world.Call(body) + " was never answered")
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
