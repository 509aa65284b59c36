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

// fate is that of every call.
type fate wire.Fate

func (f fate) Fate(string, int, time.Time) wire.Fate { return wire.Fate(f) }

// process listens on port 80 of one host, and replies after a while.
type process struct {
	agenda *agenda.Agenda
	reply  truth.Reply
	takes  time.Duration
	asked  []string
	hungUp int
	done   func(truth.Reply)
}

func (p *process) reach(host string, port int32, text string, done func(truth.Reply)) func() {
	if host != "10.0.0.7" || port != 80 {
		return nil
	}
	p.asked, p.done = append(p.asked, text), done
	if p.reply != truth.ReplyNone {
		p.agenda.After(p.takes, func() { done(p.reply) })
	}
	return func() { p.hungUp++ }
}

// ask sends calls with a deadline of one second and returns the answers.
func ask(p *process, f wire.Fate, then func(*Network), calls ...any) []world.Event {
	p.agenda = agenda.New(start, 1)
	var answers []world.Event
	n := New(Options{Agenda: p.agenda, Seed: 1, Faults: fate(f), Reach: p.reach,
		Answer: func(ev world.Event) { answers = append(answers, ev) }})
	for i, call := range calls {
		n.Do(world.Effect{Op: world.OpID(i + 1), Body: call, Deadline: start.Add(time.Second)})
	}
	if then != nil {
		p.agenda.After(100*time.Millisecond, func() { then(n) })
	}
	for p.agenda.Run() {
	}
	return answers
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
		want  any // a body or a kind of error
	}{
		{get, truth.ReplyGood, &world.HTTPGot{Status: 200, Body: []byte("ok")}},
		{get, truth.ReplyBad, &world.HTTPGot{Status: 500, Body: []byte("not well")}},
		{get, truth.ReplyRefused, refused},
		{get, truth.ReplyNone, world.KindTimeout},
		{connect, truth.ReplyGood, &world.Done{}},
		{connect, truth.ReplyBad, refused},
		{connect, truth.ReplyNone, world.KindTimeout},
		{check, truth.ReplyGood, &world.GRPCChecked{Status: "SERVING"}},
		{check, truth.ReplyBad, &world.GRPCChecked{Status: "NOT_SERVING"}},
		{check, truth.ReplyRefused, refused},
		{&world.TCPConnect{Host: "10.0.0.7", Port: 81}, truth.ReplyGood, refused},
		{&world.TCPConnect{Host: "10.0.0.8", Port: 80}, truth.ReplyGood, refused},
	} {
		got := ask(&process{reply: c.reply}, wire.Fate{}, nil, c.call)
		if len(got) != 1 {
			t.Fatalf("%d answers to %T", len(got), c.call)
		}
		var is any = got[0].Body
		if got[0].Err != nil {
			is = got[0].Err.Kind
		}
		if diff := cmp.Diff(c.want, is); diff != "" {
			t.Errorf("%T, %s (-want +got):\n%s", c.call, c.reply, diff)
		}
	}
}

func TestTexts(t *testing.T) {
	p := &process{reply: truth.ReplyGood}
	ask(p, wire.Fate{}, nil, get, connect, check,
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
	if diff := cmp.Diff(want, p.asked, less); diff != "" {
		t.Error(diff)
	}
}

func TestConnectionsAreTheAgentsOwn(t *testing.T) {
	p := &process{reply: truth.ReplyNone}
	if got := ask(p, wire.Fate{}, (*Network).Disconnect, get); len(got) != 0 || p.hungUp != 1 {
		t.Errorf("%v, hung up %d times", got, p.hungUp)
	}
	p = &process{reply: truth.ReplyGood} // it would have been asked a little later
	ask(p, wire.Fate{EffectDelay: 500 * time.Millisecond}, (*Network).Disconnect, get)
	if p.asked != nil {
		t.Errorf("a dead agent asked %q", p.asked)
	}
}

func TestTheProcessEndsWhileItIsAsked(t *testing.T) {
	p := &process{reply: truth.ReplyNone}
	got := ask(p, wire.Fate{}, func(*Network) { p.done(truth.ReplyNone) }, get)
	if len(got) != 1 || !got[0].Err.Has(world.KindUnavailable) || p.hungUp != 0 {
		t.Errorf("%v, hung up %d times", got, p.hungUp)
	}
}

func TestFaults(t *testing.T) {
	broken := &world.Error{Kind: world.KindExhausted, Message: "broken"}
	late := &world.Error{Kind: world.KindTimeout, Message: "late"}
	for name, c := range map[string]struct { //ordered: each alone
		fate  wire.Fate
		kind  world.ErrorKind
		asked int
		after time.Duration
	}{
		"before": {wire.Fate{Before: broken}, world.KindUnavailable, 0, 0},
		"after":  {wire.Fate{After: broken}, world.KindUnavailable, 1, 0},
		"late":   {wire.Fate{After: late}, world.KindTimeout, 1, 0},
		"lost":   {wire.Fate{Lost: true}, world.KindTimeout, 1, time.Second},
		"slow":   {wire.Fate{EffectDelay: time.Minute}, world.KindTimeout, 0, time.Second},
	} {
		p := &process{reply: truth.ReplyGood}
		got := ask(p, c.fate, nil, get)
		if len(got) != 1 || !got[0].Err.Has(c.kind) || len(p.asked) != c.asked ||
			got[0].Time.Sub(start) != c.after {
			t.Errorf("%s: %v, asked %q", name, got, p.asked)
		}
	}
}
