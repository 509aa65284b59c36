// Package world holds the nouns that the node agent and everything around it share: what the
// world tells the agent (Event), what the agent asks of the world (Effect), and the typed
// bodies of both, one file per port.
//
// The contract between the two sides:
//
//  1. The core takes one Event at a time and returns the Effects it wants, in order. Nothing
//     else passes between them.
//  2. An Effect with an OpID is a question: the world owes exactly one Event with the same OpID
//     and either a body of the answering type or an Err, be it long after its deadline: what
//     hangs cannot be called back. An Effect without one is a statement
//     (a log line, an answer to a request) and is never answered.
//  3. An Event without an OpID is the world speaking first: the boot, a changed file, a request.
//  4. Event times never go backwards.
//  5. Bodies are data and belong to the receiver's side for reading only: whoever has handed a
//     body over does not change it again, and whoever receives it copies before changing it.
//  6. An error of KindTimeout, and a deadline that passes unanswered, say nothing about whether
//     the operation took effect. Every other kind says that it did not, except KindUnavailable
//     and KindInternal, after which one has to look.
//
// Start reading at Event and Effect, then cri.go, fs.go, api.go, host.go, network.go, requests.go
// and log.go.
package world

import "time"

// OpID names one operation in flight. Zero means none. The core numbers its operations from one
// in every life; a world that serves several lives keeps them apart itself.
type OpID uint64

// Event is one thing the world tells the core.
type Event struct {
	Time time.Time // never earlier than that of the event before it
	Op   OpID      // the operation it completes, zero when the world speaks first
	Body any       // one of the registered bodies, nil with Err and for a bare wake-up
	Err  *Error    // why the operation failed, nil when it succeeded
}

// Effect is one thing the core asks of the world.
type Effect struct {
	Op       OpID      // zero when no answer is expected
	Body     any       // one of the registered bodies, never nil
	Deadline time.Time // after it the core treats the outcome as unknown; zero without an Op
	// HostPath is where on the node the operation goes, if that was chosen by a pod's author: it
	// may be on a file system that hangs. Nothing else is begun there meanwhile.
	HostPath string
	// Pod is the UID of the pod that the operation is for; empty if it is for none, or for many.
	Pod string
}

// Core is a deterministic state machine, driven by a loop.Loop. Same events, same effects.
type Core interface {
	// Step takes one event and returns what the world should do about it, in order. The
	// slice is the core's and is valid until the next Step.
	Step(Event) []Effect
	// NextWake says when the core wants to be called even if nothing happens. The zero time
	// means never. A wake-up is an Event with nothing but a time.
	NextWake() time.Time
}

// Port carries out effects of one kind. Do must not block: it starts the work, and the answer
// comes back later as an event offered to the loop.
type Port interface {
	Do(Effect)
}

// PortName says which port an effect belongs to.
type PortName string

// The ports there are.
const (
	PortCRI      PortName = "cri"
	PortFS       PortName = "fs"
	PortAPI      PortName = "api"
	PortHost     PortName = "host"
	PortNetwork  PortName = "network"
	PortRequests PortName = "requests"
	PortLog      PortName = "log"
)
