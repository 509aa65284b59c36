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

// parityServers is a network with the suite's servers, each on its own host.
type parityServers struct {
	agenda      *agenda.Agenda
	network     *Network
	ops         world.OpID
	completions map[world.OpID]world.Event
}

// replies are the replies of the servers. A redirect within the host is followed before the reply.
var replies = map[parity.Server]truth.Reply{
	parity.Healthy: truth.ReplySuccess, parity.Unhealthy: truth.ReplyFailure,
	parity.UntrustedTLS:        truth.ReplySuccess,
	parity.RedirectsWithinHost: truth.ReplySuccess, parity.RedirectsToOtherHost: truth.ReplyRedirect,
	parity.EndlessBody: truth.ReplyEndless, parity.UnknownService: truth.ReplyUnknownService,
	parity.NoHealthService: truth.ReplyUnimplemented, parity.NeverResponds: "",
	parity.ClosesConnection: truth.ReplyNone,
	parity.TruncatedBody:    truth.ReplyNone,
}

// pages are the states of the servers' URLs. The certificate of Secret is not trusted.
var pages = map[parity.Server]Page{
	parity.Healthy: {Status: 200, Data: []byte("ok")}, parity.Unhealthy: {Status: 500},
	parity.RedirectsWithinHost: {Status: 200, Data: []byte("here")},
	parity.EndlessBody:         {Status: 200, Data: bytes.Repeat([]byte("x"), 1<<20)},
	parity.TruncatedBody:       {Status: 200, Truncated: true},
	parity.NeverResponds:       {Hangs: true},
}

// hostOf returns the host of a URL such as http://HOST:80/.
func hostOf(url string) string {
	_, rest, _ := strings.Cut(url, "://")
	host, _, _ := strings.Cut(rest, ":")
	return host
}

// varyingLatency injects latencies that vary from call to call.
type varyingLatency struct{}

func (varyingLatency) Decide(id wire.CallID, _ time.Time) wire.Outcome {
	latency := time.Duration(id.Nth%7) * time.Millisecond
	return wire.Outcome{RequestLatency: latency, ResponseLatency: latency}
}

func newServers(seed uint64) *parityServers {
	s := &parityServers{agenda: agenda.New(start, seed), completions: map[world.OpID]world.Event{}}
	s.network = New(Options{Agenda: s.agenda, Seed: seed, Faults: varyingLatency{},
		SendRequest: s.sendRequest,
		Page:        func(url string) Page { return pages[parity.Server(hostOf(url))] },
		Deliver:     func(ev world.Event) { s.completions[ev.Op] = ev }})
	return s
}

func (s *parityServers) sendRequest(host string, _ int32, _ string, done func(truth.Reply)) func() {
	reply, found := replies[parity.Server(host)]
	if !found {
		return nil
	}
	if reply != "" {
		s.agenda.After(time.Millisecond, func() { done(reply) })
	}
	return func() {}
}

func (*parityServers) Address(s parity.Server) (string, int32) { return string(s), 80 }

func (s *parityServers) CallWithin(body any, timeout time.Duration) (any, *world.Error) {
	return s.beginWithin(body, timeout)()
}

func (s *parityServers) Call(body any) (any, *world.Error) { return s.Begin(body)() }
func (s *parityServers) Now() time.Time                    { return s.agenda.Now() }

func (s *parityServers) Send(body any) { s.network.Do(world.Effect{Body: body}) }

func (s *parityServers) Begin(body any) func() (any, *world.Error) {
	return s.beginWithin(body, 2*time.Minute)
}

func (s *parityServers) beginWithin(body any, timeout time.Duration) func() (any, *world.Error) {
	s.ops++
	op := s.ops
	s.network.Do(world.Effect{Op: op, Body: body, Deadline: s.agenda.Now().Add(timeout)})
	return func() (any, *world.Error) {
		for {
			if ev, completed := s.completions[op]; completed {
				return ev.Body, ev.Err
			}
			if !s.agenda.Run() {
				panic(world.CallName(body) + " never completed")
			}
		}
	}
}

func (s *parityServers) Sleep(d time.Duration) {
	awake := false
	s.agenda.After(d, func() { awake = true })
	for !awake {
		s.agenda.Run()
	}
}

func TestParity(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { parity.NetworkPort(t, newServers(seed)) })
	}
}
