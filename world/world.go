// Package world defines the interface between the node agent's core and everything outside of it:
// what the world reports to the core (Event), what the core requests of the world (Effect), and the
// typed bodies of both, with one file for each port.
//
// The contract between the two sides:
//
//  1. The core handles one Event at a time and returns its Effects in order. Nothing else passes
//     between the two sides.
//  2. An Effect with an OpID is an operation. The world delivers exactly one completion for it: an
//     Event with the same OpID and either a body of the completing type or an Err. The completion
//     may arrive long after the deadline, because an operation that hangs cannot be canceled.
//     One that merely takes long can be, by a CancelOperation, which is no completion.
//     An Effect without an OpID is one-way (a log line, a response to a request) and has no
//     completion.
//  3. An Event without an OpID is unsolicited: the boot, a changed file, a request.
//  4. Event times never go backwards.
//  5. Bodies are immutable once they are handed over. The sender does not change a body afterwards,
//     and the receiver copies it before it changes anything.
//  6. After an error of KindTimeout, and after a deadline without completion, the effect of the
//     operation is unknown. It is also unknown after KindUnavailable and KindInternal: the core has
//     to inspect the object. After every other kind the operation had no effect.
//
// Start reading at Event and Effect, then cancel.go, cri.go, fs.go, api.go, host.go, network.go,
// plugins.go, csi.go, requests.go and log.go.
package world

import "time"

// OpID identifies one operation in flight. Zero means none. The core numbers its operations from
// one in every incarnation; a world that serves several incarnations tells them apart itself.
type OpID uint64

// Event is one message from the world to the core.
type Event struct {
	Time time.Time // never before the time of the previous event
	Op   OpID      // the operation that this event completes; zero: unsolicited
	Body any       // a registered body; nil with Err, and for a wake-up
	Err  *Error    // the error of the operation; nil if it succeeded
}

// Effect is one message from the core to the world.
type Effect struct {
	Op       OpID      // zero: one-way, no completion is expected
	Body     any       // a registered body, never nil
	Deadline time.Time // the core treats the outcome as unknown after it; zero without Op
	// HostPath is the path on the node that the operation accesses, if a pod's author chose that
	// path. It may be on a file system that hangs, so the loop starts no other operation on it
	// meanwhile.
	HostPath string
	// Pod is the UID of the pod that the operation is for; empty if it is for no pod or for
	// several.
	Pod string
	// Tenant shares the loop's lanes with others, so that none of them delays the others: the UID
	// of the pod that caused the operation, or what stands for several pods, such as a namespace.
	// Empty for the node's own operations.
	Tenant string
	// Namespace is that of the pod that is the tenant; empty if it is no pod, or not known any more.
	// The pods of a namespace share the lanes whose operations may hang.
	Namespace string
}

// Core is a deterministic state machine that a loop.Loop drives: the same events lead to the same
// effects.
type Core interface {
	// Step handles one event and returns the resulting effects in order. The slice belongs to the
	// core and is valid until the next Step.
	Step(Event) []Effect
	// NextWake returns when the core has to be called even if no event arrives; the zero time means
	// never. A wake-up is an Event with only a time.
	NextWake() time.Time
}

// Port carries out the effects of one kind. Do must not block: it starts the work, and the
// completion is offered to the loop later as an event.
type Port interface {
	Do(Effect)
}

// PortName names the port that carries out an effect.
type PortName string

// The ports.
const (
	PortCRI         PortName = "cri"
	PortFS          PortName = "fs"
	PortAPI         PortName = "api"
	PortHost        PortName = "host"
	PortNetwork     PortName = "network"
	PortPlugins     PortName = "plugins"
	PortCSI         PortName = "csi"
	PortSCSI        PortName = "scsi"
	PortCredentials PortName = "credentials"
	PortRequests    PortName = "requests"
	PortLog         PortName = "log"
	PortLoop        PortName = "loop" // the loop itself
)
