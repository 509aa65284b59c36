package network

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"seedlet.dev/sim/agenda"
	"seedlet.dev/sim/truth"
	"seedlet.dev/sim/wire"
	"seedlet.dev/world"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// sameOutcome is the outcome of every call.
type sameOutcome wire.Outcome

func (f sameOutcome) Decide(wire.CallID, time.Time) wire.Outcome { return wire.Outcome(f) }

// listener listens on port 80 of one host and replies after a delay.
type listener struct {
	agenda    *agenda.Agenda
	reply     truth.Reply
	delay     time.Duration
	requests  []string
	canceled  int
	sendReply func(truth.Reply)
}

func (p *listener) sendRequest(host string, port int32, text string,
	done func(truth.Reply)) func() {
	if host != "10.0.0.7" || port != 80 {
		return nil
	}
	p.requests, p.sendReply = append(p.requests, text), done
	if p.reply != truth.ReplyNone {
		p.agenda.After(p.delay, func() { done(p.reply) })
	}
	return func() { p.canceled++ }
}

// callAll sends calls with a deadline of one second and returns their completions.
func callAll(p *listener, f wire.Outcome, then func(*Network), calls ...any) []world.Event {
	p.agenda = agenda.New(start, 1)
	var completions []world.Event
	n := New(Options{Agenda: p.agenda, Seed: 1, Faults: sameOutcome(f), SendRequest: p.sendRequest,
		Deliver: func(ev world.Event) { completions = append(completions, ev) }})
	for i, call := range calls {
		n.Do(world.Effect{Op: world.OpID(i + 1), Body: call, Deadline: start.Add(time.Second)})
	}
	if then != nil {
		p.agenda.After(100*time.Millisecond, func() { then(n) })
	}
	for p.agenda.Run() {
	}
	return completions
}

var (
	get     = &world.HTTPGet{Scheme: "http", Host: "10.0.0.7", Port: 80, Path: "/ok?x=1"}
	connect = &world.TCPConnect{Host: "10.0.0.7", Port: 80}
	check   = &world.GRPCCheck{Host: "10.0.0.7", Port: 80, Service: "db"}
)

func TestReplies(t *testing.T) {
	refused := world.KindUnavailable
	for _, c := range []struct {
		call  any
		reply truth.Reply
		want  any // a body or an error kind
	}{
		{get, truth.ReplySuccess, &world.HTTPGot{Status: 200, Body: []byte("ok")}},
		{get, truth.ReplyFailure, &world.HTTPGot{Status: 500, Body: []byte("not well")}},
		{get, truth.ReplyRefused, refused},
		{get, truth.ReplyNone, world.KindTimeout},
		{connect, truth.ReplySuccess, &world.Done{}},
		{connect, truth.ReplyFailure, refused},
		{connect, truth.ReplyNone, world.KindTimeout},
		{check, truth.ReplySuccess, &world.GRPCChecked{Status: "SERVING"}},
		{check, truth.ReplyFailure, &world.GRPCChecked{Status: "NOT_SERVING"}},
		{check, truth.ReplyRefused, refused},
		{&world.TCPConnect{Host: "10.0.0.7", Port: 81}, truth.ReplySuccess, refused},
		{&world.TCPConnect{Host: "10.0.0.8", Port: 80}, truth.ReplySuccess, refused},
	} {
		got := callAll(&listener{reply: c.reply}, wire.Outcome{}, nil, c.call)
		if len(got) != 1 {
			t.Fatalf("%d completions of %T", len(got), c.call)
		}
		var result any = got[0].Body
		if got[0].Err != nil {
			result = got[0].Err.Kind
		}
		if diff := cmp.Diff(c.want, result); diff != "" {
			t.Errorf("%T, %s (-want +got):\n%s", c.call, c.reply, diff)
		}
	}
}

func TestRequestTexts(t *testing.T) {
	p := &listener{reply: truth.ReplySuccess}
	callAll(p, wire.Outcome{}, nil, get, connect, check,
		&world.HTTPGet{Scheme: "https", Host: "10.0.0.7", Port: 80, Path: "ok"},
		&world.GRPCCheck{Host: "10.0.0.7", Port: 80})
	want := []string{"http :80/ok?x=1", "tcp :80", "grpc :80/db", "https :80/ok", "grpc :80/"}
	less := cmp.Transformer("set", func(list []string) map[string]bool {
		set := map[string]bool{}
		for _, text := range list {
			set[text] = true
		}
		return set
	})
	if diff := cmp.Diff(want, p.requests, less); diff != "" {
		t.Error(diff)
	}
}

func TestConnectionsDieWithTheAgent(t *testing.T) {
	p := &listener{reply: truth.ReplyNone}
	if got := callAll(p, wire.Outcome{}, (*Network).Disconnect, get); len(got) != 0 ||
		p.canceled != 1 {
		t.Errorf("%v, canceled %d times", got, p.canceled)
	}
	p = &listener{reply: truth.ReplySuccess} // the request would have been sent later
	callAll(p, wire.Outcome{EffectDelay: 500 * time.Millisecond}, (*Network).Disconnect, get)
	if p.requests != nil {
		t.Errorf("a dead agent sent %q", p.requests)
	}
}

func TestProcessEndsDuringARequest(t *testing.T) {
	p := &listener{reply: truth.ReplyNone}
	got := callAll(p, wire.Outcome{}, func(*Network) { p.sendReply(truth.ReplyNone) }, get)
	if len(got) != 1 || !got[0].Err.Has(world.KindUnavailable) || p.canceled != 0 {
		t.Errorf("%v, canceled %d times", got, p.canceled)
	}
}

func TestFaults(t *testing.T) {
	broken := &world.Error{Kind: world.KindExhausted, Message: "broken"}
	late := &world.Error{Kind: world.KindTimeout, Message: "late"}
	for name, c := range map[string]struct { //ordered: each alone
		outcome  wire.Outcome
		kind     world.ErrorKind
		requests int
		after    time.Duration
	}{
		"before": {wire.Outcome{ErrorBefore: broken}, world.KindUnavailable, 0, 0},
		"after":  {wire.Outcome{ErrorAfter: broken}, world.KindUnavailable, 1, 0},
		"late":   {wire.Outcome{ErrorAfter: late}, world.KindTimeout, 1, 0},
		"lost":   {wire.Outcome{ResponseLost: true}, world.KindTimeout, 1, time.Second},
		"slow":   {wire.Outcome{EffectDelay: time.Minute}, world.KindTimeout, 0, time.Second},
	} {
		p := &listener{reply: truth.ReplySuccess}
		got := callAll(p, c.outcome, nil, get)
		if len(got) != 1 || !got[0].Err.Has(c.kind) || len(p.requests) != c.requests ||
			got[0].Time.Sub(start) != c.after {
			t.Errorf("%s: %v, requests %q", name, got, p.requests)
		}
	}
}
