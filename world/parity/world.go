// Package parity holds one conformance suite for each port. A suite states what the core may rely
// on, as tests that run against the simulated port and against the real one. The simulation is only
// as good as it is faithful, so a case that passes on one side only is a defect of the simulation.
//
// A case uses a port only through effects and completions, as the core does. Start reading at CRI
// in cri.go, FileSystem in files.go, API in api.go, NetworkPort in network.go and CSIPort in
// csi.go. Optional features of a runtime have their own suites: Exec, Logs and Events.
package parity

import (
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/world"
)

// World carries out single effects in a simulated or a real world.
type World interface {
	// Call carries out an operation with this body and waits up to two minutes for its completion.
	// Exactly one of the results is nil.
	Call(body any) (any, *world.Error)
	// Send carries out a one-way effect, such as *world.Watch.
	Send(body any)
	// Begin starts an operation. The function that it returns waits for the completion. A case uses it
	// to have two operations in flight.
	Begin(body any) (wait func() (any, *world.Error))
	// Sleep lets time pass in this world.
	Sleep(d time.Duration)
	// Now returns the time in this world, by the same clock as the runtime's timestamps.
	Now() time.Time
}

// Process is the behaviour of a container's process. The suite names its containers by it, so that
// a simulation can choose the script by the name of the container.
type Process string

// The processes that a Runtime must provide.
const (
	Runs         Process = "runs"          // until TERM, then exits at once with code 143
	Exits3       Process = "exits-3"       // exits at once with code 3
	Exits0       Process = "exits-0"       // exits at once with code 0
	IgnoresTerm  Process = "ignores-term"  // runs until KILL
	HandlesTerm7 Process = "handles-term7" // runs until TERM, then exits after about 1 s with code 7
)

// Runtime is a world with a container runtime.
type Runtime interface {
	World
	// CancelLast cancels the operation that was started last.
	CancelLast()
	// Sandbox returns a new sandbox configuration with everything that this runtime needs (an existing
	// log directory, network and cgroup settings). The suite sets Metadata, Labels and Annotations.
	Sandbox() *runtimeapi.PodSandboxConfig
	// Container returns a new configuration whose Image (with UserSpecifiedImage), Command and Args
	// run the process. The suite sets Metadata, Labels, Annotations and LogPath.
	Container(Process) *runtimeapi.ContainerConfig
	// Images returns an image that is not present when the suite starts and can be pulled, and one
	// that does not exist in its registry. The first may be the image of Container, because the suite
	// pulls it before it creates containers.
	Images() (pullable, missing string)
	// WaitHandlers waits until the process of a started container, which runs until a signal, handles
	// signals. The container is known by its log path.
	WaitHandlers(logPath string)
}

// Command is a command that ExecSync can run in a container.
type Command string

// The commands that an ExecRuntime must provide.
const (
	Succeeds  Command = "succeeds"   // writes output and exits at once with code 0
	Fails     Command = "fails"      // exits at once with another code
	Hangs     Command = "hangs"      // runs until it is killed
	NoProgram Command = "no-program" // the program does not exist
)

// ExecRuntime is a runtime that can run commands in containers.
type ExecRuntime interface {
	Runtime
	// Exec returns the command line of a command, and the expected response.
	Exec(Command) (line []string, want *runtimeapi.ExecSyncResponse)
}

// LogRuntime is a runtime that writes log files, with access to these files. Names are log paths of
// containers, relative to the log directory of Sandbox. The process HandlesTerm7 writes a line when
// it receives TERM.
type LogRuntime interface {
	Runtime
	RenameLog(from, to string)
	LogBytes(name string) int64 // -1 if the file does not exist
}

// EventRuntime is a runtime with a stream of container events.
type EventRuntime interface {
	Runtime
	// Stream starts a GetEvents operation with a deadline. The function that it returns waits for the
	// completion.
	Stream(timeout time.Duration) (wait func() (any, *world.Error))
	// Events returns the events of all streams so far, in order of arrival.
	Events() []*runtimeapi.ContainerEventResponse
}

// Server is the behaviour of a server that listens on a port.
type Server string

// The servers that a Network must provide.
const (
	Healthy              Server = "well"      // HTTP: 200 with a body; gRPC: SERVING for every service
	Unhealthy            Server = "unwell"    // HTTP: 500; gRPC: NOT_SERVING for every service
	UntrustedTLS         Server = "secret"    // as Healthy, but over TLS with an untrusted certificate
	RedirectsWithinHost  Server = "moved"     // HTTP: redirects to another path of the same host
	RedirectsToOtherHost Server = "elsewhere" // HTTP: redirects to another host
	EndlessBody          Server = "endless"   // HTTP: 200 with an endless body
	UnknownService       Server = "unknown"   // gRPC: the health service does not know the service
	NoHealthService      Server = "unoffered" // gRPC: does not have the health service
	NeverResponds        Server = "silent"    // accepts connections and does not respond
	ClosesConnection     Server = "hangs-up"  // accepts connections and closes them
	TruncatedBody        Server = "cut-short" // HTTP: 200 with half of the announced body
	NoServer             Server = "no-server" // no server listens on the port
)

// Network is a world with servers.
type Network interface {
	World
	// CallWithin is Call with the given deadline.
	CallWithin(body any, timeout time.Duration) (any, *world.Error)
	// Address returns the address of a server. No other server listens there.
	Address(Server) (host string, port int32)
}

// Plugins is a plugins port with plugins of the suite.
type Plugins interface {
	// CallWithin runs an operation with the given timeout.
	CallWithin(body any, timeout time.Duration) (any, *world.Error)
	// Serve has a plugin make a socket with the given name, in place of one that is there. It answers
	// with the info, unless it handles requests wrongly.
	Serve(name string, info *world.PluginInfo, wrong PluginFault)
	// Remove ends the plugin of a socket, which is removed.
	Remove(name string)
	// Path returns the path of a socket.
	Path(name string) string
	// Observed returns the sockets that were reported last, and Notified what a plugin was notified
	// of, the sockets left out.
	Observed() []world.PluginSocket
	Notified(name string) []world.NotifyPluginRegistration
	Sleep(time.Duration)
	Now() time.Time
}

// PluginFault is how a plugin of the suite handles requests wrongly; empty: it does not.
type PluginFault string

// The faults of plugins.
const (
	PluginHangs   PluginFault = "hangs"    // no answer
	PluginFails   PluginFault = "fails"    // an error
	PluginTooLong PluginFault = "too long" // an answer above the bound
	PluginDown    PluginFault = "down"     // the process has ended, and left its socket
)

// CSI is a world with a file system and a CSI driver of the suite, which stages volumes. Call is
// for operations of both ports.
type CSI interface {
	World
	// CallWithin is Call with the given deadline.
	CallWithin(body any, timeout time.Duration) (any, *world.Error)
	// Dir returns the absolute path of an existing empty directory for the suite.
	Dir() string
	// Driver returns the driver, which runs. Restart ends its process; the returned function starts
	// another one.
	Driver() world.CSIDriver
	Restart() (start func())
	// NewVolume returns the handle of a new volume, which has the file system xfs once it is staged.
	NewVolume() string
	// GrowVolume gives a volume more bytes than it has, and returns how many it has then.
	GrowVolume(handle string) int64
	// Fault affects the next call of a name, as in "PublishVolume".
	Fault(call string, fault CSIFault)
}

// CSIFault is what happens to a call of a driver.
type CSIFault string

// The faults of CSI drivers.
const (
	CSIFailsBefore CSIFault = "fails before" // UNAVAILABLE, without an effect
	CSIFailsAfter  CSIFault = "fails after"  // UNAVAILABLE, after the effect
	CSILate        CSIFault = "late"         // the effect and the answer are late by CSILateness
)

// CSILateness is how late the effect of a late call is.
const CSILateness = 700 * time.Millisecond

// Disk is a world with a file system.
type Disk interface {
	World
	// Dir returns the absolute path of an existing empty directory for the suite.
	Dir() string
	// Changed returns the paths of the FileChanged events since the last call of Changed.
	Changed() []string
	// ModeAndGroup returns the mode of a path (permission bits, set-user-ID, set-group-ID and sticky
	// bits) and its group, without following a link. The suite needs it because no operation of the
	// port returns them.
	ModeAndGroup(path string) (mode uint32, gid int64)
	// Owner returns the user that a path belongs to, without following a link; that of the agent's
	// own files is AgentUID.
	Owner(path string) int64
	AgentUID() int64
	// MakeSpecial creates an object that no operation of the port can create: PathSocket, or
	// PathOther, which is a named pipe.
	MakeSpecial(path string, kind world.PathKind)
}

// Cluster is a world with an API server. Call sends requests as the agent of one node, which no
// other agent uses. Admin sends requests as an administrator, who may do everything.
type Cluster interface {
	World
	// Node returns the name of the node. The suite creates the Node object.
	Node() string
	// Namespace returns the namespace for the suite, which has a service account "default". The
	// namespaces default and kube-node-lease exist too.
	Namespace() string
	// Admin carries out an operation as an administrator, like Call.
	Admin(body any) (any, *world.Error)
	// WatchEvents returns all events of watches so far, in order of arrival.
	WatchEvents() []any
}
