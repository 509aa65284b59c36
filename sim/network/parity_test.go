package network

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"seedlet.dev/sim/agenda"
	"seedlet.dev/sim/truth"
	"seedlet.dev/sim/wire"
	"seedlet.dev/world"
	"seedlet.dev/world/parity"
)

// servers is a network with the suite's servers in it, each on a host of its own.
type servers struct {
	agenda  *agenda.Agenda
	network *Network
	ops     world.OpID
	answers map[world.OpID]world.Event
}

// replies are what the servers do. Whoever is redirected within a host sees the other page only.
var replies = map[parity.Server]truth.Reply{
	parity.Well: truth.ReplyGood, parity.Unwell: truth.ReplyBad, parity.Secret: truth.ReplyGood,
	parity.Moved: truth.ReplyGood, parity.Elsewhere: truth.ReplyElsewhere,
	parity.Endless: truth.ReplyEndless, parity.Unknown: truth.ReplyUnknown,
	parity.Unoffered: truth.ReplyUnoffered, parity.Silent: "", parity.HangsUp: truth.ReplyNone,
	parity.CutShort: truth.ReplyNone,
}

// pages are what is at the URLs of the servers. The certificate of Secret is nobody's.
var pages = map[parity.Server]Page{
	parity.Well: {Status: 200, Data: []byte("ok")}, parity.Unwell: {Status: 500},
	parity.Moved:    {Status: 200, Data: []byte("here")},
	parity.Endless:  {Status: 200, Data: bytes.Repeat([]byte("x"), 1<<20)},
	parity.CutShort: {Status: 200, Cut: true},
	parity.Silent:   {Silent: true},
}

// hostOf is the host of http://HOST:80/ and the like.
func hostOf(url string) string {
	_, rest, _ := strings.Cut(url, "://")
	host, _, _ := strings.Cut(rest, ":")
	return host
}

// latency is what calls need to and fro.
type latency struct{}

func (latency) Fate(_ string, op int, _ time.Time) wire.Fate {
	takes := time.Duration(op%7) * time.Millisecond
	return wire.Fate{Receive: takes, Answer: takes}
}

func newServers(seed uint64) *servers {
	s := &servers{agenda: agenda.New(start, seed), answers: map[world.OpID]world.Event{}}
	s.network = New(Options{Agenda: s.agenda, Seed: seed, Faults: latency{}, Reach: s.reach,
		Page:   func(url string) Page { return pages[parity.Server(hostOf(url))] },
		Answer: func(ev world.Event) { s.answers[ev.Op] = ev }})
	return s
}

func (s *servers) reach(host string, _ int32, _ string, done func(truth.Reply)) func() {
	reply, there := replies[parity.Server(host)]
	if !there {
		return nil
	}
	if reply != "" {
		s.agenda.After(time.Millisecond, func() { done(reply) })
	}
	return func() {}
}

func (*servers) At(s parity.Server) (string, int32) { return string(s), 80 }

func (s *servers) CallWithin(body any, timeout time.Duration) (any, *world.Error) {
	return s.begin(body, timeout)()
}

func (s *servers) Call(body any) (any, *world.Error) { return s.Begin(body)() }
func (s *servers) Tell(body any)                     { s.network.Do(world.Effect{Body: body}) }
func (s *servers) Now() time.Time                    { return s.agenda.Now() }

func (s *servers) Begin(body any) func() (any, *world.Error) {
	return s.begin(body, 2*time.Minute)
}

func (s *servers) begin(body any, timeout time.Duration) func() (any, *world.Error) {
	s.ops++
	op := s.ops
	s.network.Do(world.Effect{Op: op, Body: body, Deadline: s.agenda.Now().Add(timeout)})
	return func() (any, *world.Error) {
		for {
			if ev, is := s.answers[op]; is {
				return ev.Body, ev.Err
			}
			if !s.agenda.Run() {
				panic(world.Call(body) + " was never answered")
			}
		}
	}
}

func (s *servers) Sleep(d time.Duration) {
	awake := false
	s.agenda.After(d, func() { awake = true })
	for !awake {
		s.agenda.Run()
	}
}

func TestParity(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { parity.Reach(t, newServers(seed)) })
	}
}
