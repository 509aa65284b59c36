// Package parity holds one conformance suite per port: what the core may rely on, stated as
// tests that run against the simulated port and against the real one. The simulation is worth
// what its likeness is worth, so a case that holds on one side only is a defect of the simulation.
//
// A case talks to a port only by effects and their answers, as the core does. Start reading at
// CRI in cri.go, FileSystem in files.go and Reach in network.go. What a runtime need not have is
// in suites of its own: Exec, Logs and Events.
package parity

import (
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/world"
)

// World carries out one effect at a time, in a simulated or a real world.
type World interface {
	// Call carries out an effect with this body and waits for its answer, for two minutes at
	// most. Exactly one of the results is nil.
	Call(body any) (any, *world.Error)
	// Tell carries out an effect that has no answer, such as *world.Watch.
	Tell(body any)
	// Begin starts an effect without waiting; the function it returns waits for the answer. It
	// is how a case has two operations in flight.
	Begin(body any) (wait func() (any, *world.Error))
	// Sleep lets time pass in this world.
	Sleep(d time.Duration)
	// Now is the time in this world, as the runtime's timestamps see it.
	Now() time.Time
}

// Process is how a container's process behaves. The suite names its containers by it, so that a
// simulation can choose the script by the container's name.
type Process string

// The processes that a Runtime must offer.
const (
	Runs         Process = "runs"          // until TERM, on which it exits with code 143 at once
	Exits3       Process = "exits-3"       // at once, with code 3
	Exits0       Process = "exits-0"       // at once, with code 0
	IgnoresTerm  Process = "ignores-term"  // runs until KILL
	HandlesTerm7 Process = "handles-term7" // runs until TERM, exits with code 7 about 1 s later
)

// Runtime is a world with a container runtime in it.
type Runtime interface {
	World
	// Sandbox returns a new sandbox configuration with all that this runtime needs (an existing
	// log directory, network and cgroup settings). The suite sets Metadata, Labels, Annotations.
	Sandbox() *runtimeapi.PodSandboxConfig
	// Container returns a new configuration whose Image (with UserSpecifiedImage), Command and
	// Args run such a process. The suite sets Metadata, Labels, Annotations, LogPath.
	Container(Process) *runtimeapi.ContainerConfig
	// Images names an image that is not here when the suite begins and can be pulled, and one
	// that does not exist in its registry. The former may be the image of Container, as the suite
	// pulls it before it makes any.
	Images() (pullable, missing string)
}

// Command is something that can be run in a container by ExecSync.
type Command string

// The commands that an Execs must offer.
const (
	Succeeds  Command = "succeeds"   // writes something to its output and exits with 0, at once
	Fails     Command = "fails"      // exits with another code, at once
	Hangs     Command = "hangs"      // runs until it is killed
	NoProgram Command = "no-program" // there is no such program
)

// Execs is a runtime that can run commands in containers.
type Execs interface {
	Runtime
	// Exec returns the command line of a command, and what has to come back from it.
	Exec(Command) (line []string, want *runtimeapi.ExecSyncResponse)
}

// LogFiles is a runtime that writes logs, with somebody who can rename them. Names are log paths
// of containers, relative to the log directory of Sandbox. The process HandlesTerm7 writes
// something when it gets its TERM.
type LogFiles interface {
	Runtime
	RenameLog(from, to string)
	LogBytes(name string) int64 // -1 if there is no such file
}

// Streaming is a runtime whose events can be listened to.
type Streaming interface {
	Runtime
	// Stream begins GetEvents with a deadline. The function it returns waits for the answer.
	Stream(timeout time.Duration) (wait func() (any, *world.Error))
	// Heard returns all events of streams until now, in the order in which they came.
	Heard() []*runtimeapi.ContainerEventResponse
}

// Server is what listens on a port, and what it does with those who come.
type Server string

// The servers that a Network must offer.
const (
	Well      Server = "well"      // HTTP: 200, with a page; gRPC: SERVING, whatever the service
	Unwell    Server = "unwell"    // HTTP: 500; gRPC: NOT_SERVING, whatever the service
	Secret    Server = "secret"    // as Well, but over TLS, with a certificate of nobody known
	Moved     Server = "moved"     // HTTP: redirects to a page of its own, which is there
	Elsewhere Server = "elsewhere" // HTTP: redirects to a page of another host
	Endless   Server = "endless"   // HTTP: 200, with a page that does not end
	Unknown   Server = "unknown"   // gRPC: health is offered, the service is unknown
	Unoffered Server = "unoffered" // gRPC: but health is not offered
	Silent    Server = "silent"    // takes connections and says nothing
	HangsUp   Server = "hangs-up"  // takes connections and closes them
	CutShort  Server = "cut-short" // HTTP: 200, with half of the page that it announces
	NoServer  Server = "no-server" // a port on which nobody listens
)

// Network is a world with servers in it.
type Network interface {
	World
	// CallWithin is Call with another deadline.
	CallWithin(body any, timeout time.Duration) (any, *world.Error)
	// At is where such a server listens; it is the only one there.
	At(Server) (host string, port int32)
}

// Disk is a world with a file system in it.
type Disk interface {
	World
	// Dir is an existing empty directory to work in, its absolute path.
	Dir() string
	// Changed returns the paths of the FileChanged events since the last call of Changed.
	Changed() []string
	// Perms is the mode of what is at a path as chmod has it, permission and set-group-ID bits,
	// and its group. Links are not followed. No effect tells it.
	Perms(path string) (mode uint32, gid int64)
	// Put makes what no effect can make: PathSocket, or PathOther, which is a named pipe.
	Put(path string, kind world.PathKind)
}

// Cluster is a world with an API server in it. What it is told to do it does as the agent of a
// node, whom no other agent serves; somebody else may do everything.
type Cluster interface {
	World
	// Node is the name of the node. The suite makes its Node.
	Node() string
	// Namespace is a namespace for the suite, with a service account "default". The namespaces
	// default and kube-node-lease are there as well.
	Namespace() string
	// Admin carries out what somebody other than the node asks for, as Call.
	Admin(body any) (any, *world.Error)
	// Told returns all that watches have told until now, in the order in which it came.
	Told() []any
}
