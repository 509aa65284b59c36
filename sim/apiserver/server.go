// Package apiserver is the simulated API server as one node sees it: objects with resource
// versions, authorization, and watches.
//
// Contract: it treats objects as a kube-apiserver of v1.36 does, as far as a node agent can tell.
// Requests of the agent pass the Node authorizer and NodeRestriction. All other clients use Admin,
// which allows everything. A change is atomic, gets the next resource version, is recorded in the
// truth log, and is sent to every watch that covers the object, in order and with a delay. A
// request of the agent takes effect even if the agent has died since, unless its machine has lost
// power before the request was received. Reachability is the state of the connection between the
// agent and the server.
//
// Start reading at execute in calls.go, then watch.go.
package apiserver

import (
	"math/rand/v2"
	"time"

	"seedlet.dev/sim/agenda"
	"seedlet.dev/sim/truth"
	"seedlet.dev/sim/wire"
	"seedlet.dev/world"
)

// Options configure a server.
type Options struct {
	Agenda  *agenda.Agenda
	Truth   *truth.Log
	Seed    uint64
	Node    string            // the node of the agent
	Faults  wire.FaultSource  // nil: no faults
	Deliver func(world.Event) // receives the events of the first incarnation; nil: not connected
	// StatusRoom returns how many bytes the status of a pod may have, by its name; zero: any number.
	// A real server bounds the whole object. Nil: no pod has a bound.
	StatusRoom func(name string) int
	// TokenAudiences are audiences for which the node may request tokens of any pod.
	TokenAudiences []string
}

// Server is a simulated API server. It is for use by one goroutine.
type Server struct {
	opts                Options
	wire                *wire.Wire
	deliver             func(world.Event) // nil while the agent is dead
	incarnation         int               // number of the agent's current incarnation
	lastPoweredOff      int               // the newest incarnation that a loss of power has ended
	reachability        Reachability
	reachabilityChanges int // how often reachability has changed
	delayed             []delayedRequest
	store               store
	uids                *rand.Rand
	issued              map[string]issued // tokens, by their values
	jitter              *rand.Rand        // of watches and of retransmissions
	watches             []*watcher        // of the current incarnation, in order of their start
}

// New returns a server without objects.
func New(opts Options) *Server {
	s := &Server{
		opts: opts, store: newStore(), uids: wire.Stream(opts.Seed, "uids"),
		jitter: wire.Stream(opts.Seed, "watches"),
		wire:   wire.New(wire.Options{Agenda: opts.Agenda, Faults: opts.Faults, Seed: opts.Seed}),
	}
	if opts.Deliver != nil {
		s.Connect(opts.Deliver)
	}
	return s
}

// Connect starts an incarnation of the agent, which receives all events from now on.
func (s *Server) Connect(deliver func(world.Event)) {
	s.incarnation++
	s.deliver = deliver
	s.wire.Connect(deliver)
}

// Disconnect ends an incarnation of the agent and its watches. Requests that it has sent still
// arrive: the kernel sends what a killed process has left in the buffers of its sockets, and
// repeats what the network has dropped.
func (s *Server) Disconnect() {
	s.deliver = nil
	s.watches = nil
	s.wire.Disconnect()
}

// LosePower drops the requests that no incarnation so far has got to the server: a machine that
// has lost power sends nothing again. The agent must be disconnected.
func (s *Server) LosePower() {
	s.lastPoweredOff = s.incarnation
	s.delayed = nil
}

// InFlight returns the calls that the agent waits for, as wire.InFlight does.
func (s *Server) InFlight() []*wire.Call { return s.wire.InFlight() }

// Reseed makes every later call draw from another seed.
func (s *Server) Reseed(seed uint64) { s.wire.Reseed(seed) }

// Do implements world.Port.
func (s *Server) Do(eff world.Effect) {
	switch body := eff.Body.(type) {
	case *world.WatchObjects:
		s.watch(body)
	case *world.UnwatchObjects:
		s.unwatch(body.Watch)
	case *world.RecordEvent:
		s.opts.Truth.Add(EventFact(body, s.opts.Agenda.Now()))
	default:
		by := requester{incarnation: s.incarnation, sentAt: s.opts.Agenda.Now()}
		s.wire.Send(eff, func(call *wire.Call) { s.receive(call, by) })
	}
}

// requester identifies the client of a request: an incarnation of the agent, with the time of the
// request, or another client by name.
type requester struct {
	incarnation int
	sentAt      time.Time
	name        string
}

func (a requester) isNode() bool { return a.incarnation > 0 }

// receive handles a request of the agent at the network and, if it arrives, at the server.
func (s *Server) receive(call *wire.Call, by requester) {
	switch {
	case by.incarnation <= s.lastPoweredOff: // was lost with its machine's power
	case s.reachability == ServerDown:
		call.Fail(world.Errorf(world.KindUnavailable, call.Name, "connection refused"))
	case s.reachability == NetworkDown:
		if call.Draw()&1 == 0 { // retransmitted until the network is restored
			again := func() { s.receive(call, by) }
			s.delayed = append(s.delayed, delayedRequest{s.opts.Agenda.Now(), again})
		}
	case s.reachability == Unauthorized:
		call.Fail(world.Errorf(world.KindRefused, call.Name, "Unauthorized"))
	case call.Outcome.ErrorBefore != nil:
		call.Fail(call.Outcome.ErrorBefore)
	default:
		call.Execute(func() { s.serve(call, by) })
	}
}

// serve executes a request and sends the response.
func (s *Server) serve(call *wire.Call, by requester) {
	response, err := s.execute(by, call.Effect.Body)
	switch {
	case s.reachability == NetworkDown:
		call.Outcome.ResponseLost = true // the response is dropped
	case err != nil:
		call.Fail(err)
	default:
		call.Reply(response)
	}
}

// Admin executes a request of a client other than the node, without latency.
func (s *Server) Admin(by string, body any) (any, *world.Error) {
	return s.execute(requester{name: by}, body)
}

// Object returns one object, and an empty Object if it does not exist.
func (s *Server) Object(r world.Resource, namespace, name string) world.Object {
	return s.store.objects[key{r, namespace, name}]
}

// Objects returns all objects of a resource, sorted by namespace and name. They must not be
// modified.
func (s *Server) Objects(r world.Resource) []world.Object { return s.store.list(r) }
