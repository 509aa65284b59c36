// Package parity holds one conformance suite per port: what the core may rely on, stated as
// tests that run against the simulated port and against the real one. The simulation is worth
// what its likeness is worth, so a case that holds on one side only is a defect of the simulation.
//
// A case talks to a port only by effects and their answers, as the core does. Start reading at
// CRI in cri.go and FileSystem in files.go.
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
