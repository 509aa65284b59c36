// Package apiserver is the simulated API server, as one node sees it: objects with versions, what
// a node may do to them, and watches.
//
// Contract: it does to objects what a kube-apiserver of v1.36 does as far as a node agent can
// tell, with the Node authorizer and NodeRestriction in front of the agent; whoever else acts,
// acts through Admin, which permits everything. A change is atomic, gets the next version, is in
// the truth log, and goes to every watch that is about it, in order and late. What the agent asked
// for happens even if the agent has died since. Reach says whether the agent gets through at all.
//
// Start reading at perform in calls.go, then watch.go.
package apiserver

import (
	"math/rand/v2"

	"seedlet.dev/sim/agenda"
	"seedlet.dev/sim/truth"
	"seedlet.dev/sim/wire"
	"seedlet.dev/world"
)

// Options are what a server is made of.
type Options struct {
	Agenda *agenda.Agenda
	Truth  *truth.Log
	Seed   uint64
	Node   string            // whose agent asks
	Faults wire.FaultSource  // nil: nothing goes wrong
	Answer func(world.Event) // takes what the first life is told; nil: nobody is there yet
}

// Server is an API server. It is for one goroutine.
type Server struct {
	opts    Options
	wire    *wire.Wire
	tell    func(world.Event) // to the agent that lives now; nil: none does
	life    int               // how many there were
	reach   Reach
	outage  int // how often reach has changed
	held    []request
	store   store
	uids    *rand.Rand
	jitter  *rand.Rand  // of watches and of what was held up
	watches []*watching // of this life, in the order in which they began
}

// New makes a server without objects.
func New(opts Options) *Server {
	s := &Server{
		opts: opts, store: newStore(), uids: wire.Stream(opts.Seed, "uids"),
		jitter: wire.Stream(opts.Seed, "watches"),
		wire:   wire.New(wire.Options{Agenda: opts.Agenda, Faults: opts.Faults, Seed: opts.Seed}),
	}
	if opts.Answer != nil {
		s.Connect(opts.Answer)
	}
	return s
}

// Connect begins a life of the agent: answers go to it from now on.
func (s *Server) Connect(answer func(world.Event)) {
	s.life++
	s.tell = answer
	s.wire.Connect(answer)
}

// Disconnect ends a life of the agent, and its watches. What it has sent arrives all the same.
func (s *Server) Disconnect() {
	s.tell = nil
	s.watches = nil
	s.wire.Disconnect()
}

// Do implements world.Port.
func (s *Server) Do(eff world.Effect) {
	switch body := eff.Body.(type) {
	case *world.WatchObjects:
		s.watch(body)
	case *world.UnwatchObjects:
		s.unwatch(body.Watch)
	case *world.RecordEvent:
		s.opts.Truth.Add(Told(body, s.opts.Agenda.Now()))
	default:
		who := author{life: s.life}
		s.wire.Send(eff, func(call *wire.Call) { s.arrive(call, who) })
	}
}

// author is who does something: a life of the agent, or somebody by name.
type author struct {
	life int
	name string
}

func (a author) isNode() bool { return a.life > 0 }

// arrive takes a request that has come through the network, if it has.
func (s *Server) arrive(call *wire.Call, who author) {
	switch {
	case s.reach == Refused:
		call.Fail(world.Errorf(world.KindUnavailable, call.Name, "connection refused"))
	case s.reach == Silent:
		if call.Draw()&1 == 0 { // what was sent is sent again until it comes through
			s.held = append(s.held, request{s.opts.Agenda.Now(), func() { s.arrive(call, who) }})
		}
	case s.reach == Unauthorized:
		call.Fail(world.Errorf(world.KindRefused, call.Name, "Unauthorized"))
	case call.Fate.Before != nil:
		call.Fail(call.Fate.Before)
	default:
		call.Begin(func() { s.serve(call, who) })
	}
}

// serve carries a request out and answers it.
func (s *Server) serve(call *wire.Call, who author) {
	answer, err := s.perform(who, call.Effect.Body)
	switch {
	case s.reach == Silent:
		call.Fate.Lost = true // on its way back
	case err != nil:
		call.Fail(err)
	default:
		call.Reply(answer)
	}
}

// Admin carries out at once what somebody other than the node asks for.
func (s *Server) Admin(by string, body any) (any, *world.Error) {
	return s.perform(author{name: by}, body)
}

// Object is one object; an empty one if there is none.
func (s *Server) Object(r world.Resource, namespace, name string) world.Object {
	return s.store.objects[key{r, namespace, name}]
}

// Objects are all objects of a resource, by namespace and name. They are not to be changed.
func (s *Server) Objects(r world.Resource) []world.Object {
	return s.store.list(func(o *world.Object) bool { return o.Of() == r })
}
