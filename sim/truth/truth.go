// Package truth is the log of what really happened in a simulated run. A simulated port adds a fact
// at the instant at which a change takes effect, which is neither when the agent requests the
// change nor when the agent observes it. The oracles read facts, and never the agent's state.
//
// Start reading at Kind.
package truth

import (
	"slices"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Kind is what a fact is about.
type Kind string

// Kinds of facts about the runtime. A fact about a container names its sandbox and its pod.
const (
	SandboxCreated Kind = "SandboxCreated" // its name is reserved; it is not ready yet
	SandboxReady   Kind = "SandboxReady"   // containers can be created in it
	SandboxStopped Kind = "SandboxStopped" // or has died, by Cause; it never becomes ready again
	SandboxRemoved Kind = "SandboxRemoved"

	ContainerCreated Kind = "ContainerCreated"
	ContainerStarted Kind = "ContainerStarted" // its process runs
	ContainerExited  Kind = "ContainerExited"  // its process has exited: ExitCode, Cause
	ContainerRemoved Kind = "ContainerRemoved"
	ContainerLost    Kind = "ContainerLost"  // the runtime no longer knows its state
	ContainerFound   Kind = "ContainerFound" // the runtime knows its state again

	ContainerResized Kind = "ContainerResized" // it has other Limits
	LimitRefused     Kind = "LimitRefused"     // a limit of memory below the Bytes that it uses
	LayerResized     Kind = "LayerResized"     // its writable layer has Bytes
	LayerFreed       Kind = "LayerFreed"       // after its removal, which has the same Bytes

	StopRequested Kind = "StopRequested" // StopContainer took effect: TERM was sent; GraceSeconds
	KillRequested Kind = "KillRequested" // KILL was sent, for Cause

	HandlerRequested Kind = "Asked"   // a probe or hook has reached a container: Request
	HandlerEnded     Kind = "Replied" // it has ended, by the container's view: Request, Reply

	ImagePulled      Kind = "ImagePulled"
	ImageRemoved     Kind = "ImageRemoved"
	RuntimeRestarted Kind = "RuntimeRestarted" // the runtime's process, not the containers
)

// Kinds of facts about the disk.
const (
	PathCreated Kind = "PathMade"    // a directory
	PathWritten Kind = "PathWritten" // a file
	PathRemoved Kind = "PathRemoved" // with everything below it
	FileResized Kind = "FileSized"   // a process has resized a file to Bytes
	TreeGrown   Kind = "TreeGrown"   // a process has made a tree of many names at Path
	PathRenamed Kind = "PathRenamed" // Path, To
	Mounted     Kind = "Mounted"     // at Path: To of the file system Source
	Unmounted   Kind = "Unmounted"   // from Path
	PowerLost   Kind = "PowerLost"

	DeviceHeld     Kind = "DeviceHeld" // at Path: it is kept open
	DeviceReleased Kind = "DeviceReleased"

	// Kinds of facts about disks of a network: Source is a target, Path the portal of a session and
	// NewPath its interface; of a disk Path is its device, and Source where it leads.
	SessionTried    Kind = "SessionTried" // a login, with the Settings of its record
	SessionOpened   Kind = "SessionOpened"
	SessionClosed   Kind = "SessionClosed"
	SessionRepeated Kind = "SessionRepeated" // a login to one that exists
	DiskAppeared    Kind = "DiskAppeared"
	DiskRemoved     Kind = "DiskRemoved"
)

// Kinds of facts about cgroups. Paths are directories below the root of the hierarchy.
const (
	CgroupCreated Kind = "CgroupMade"    // or given other Limits; Cause, if the runtime did
	CgroupRemoved Kind = "CgroupRemoved" // with everything below it, and the processes in it
)

// Kinds of facts about shutdowns of the machine. PowerLost says that it has gone down.
const (
	ShutdownAnnounced Kind = "ShutdownAnnounced"
	ShutdownRepeated  Kind = "ShutdownRepeated" // it is announced once more
	ShutdownCancelled Kind = "ShutdownCancelled"
	ShutdownDelayed   Kind = "ShutdownDelayed"   // the agent has taken the lock that delays shutdowns
	ShutdownPermitted Kind = "ShutdownPermitted" // the lock is released; Cause, if the agent has died
)

// SystemOOM is the kind of the fact that the kernel has ended a process because the machine was out
// of memory: Message is what the kubelet's Event says of it.
const SystemOOM Kind = "SystemOOM"

// KeyMade is the kind of the fact that the machine has made a private key: Token.
const KeyMade Kind = "KeyMade"

// Kinds of facts about plugins, whose sockets are at Path.
const (
	PluginStarted  Kind = "PluginStarted"  // it has made its socket: Plugin
	PluginEnded    Kind = "PluginEnded"    // its socket is gone, or is about to be replaced
	PluginAsked    Kind = "PluginAsked"    // what it is; Cause, if it answers wrongly
	PluginNotified Kind = "PluginNotified" // IsRegistered, Message; Cause, if it responds wrongly
)

// Kinds returns the kinds of facts.
func Kinds() []Kind { return slices.Clone(kinds) }

var kinds = []Kind{
	SandboxCreated, SandboxReady, SandboxStopped, SandboxRemoved, ContainerCreated, ContainerStarted,
	ContainerExited, ContainerRemoved, ContainerLost, ContainerFound, ContainerResized, LimitRefused,
	StopRequested, KillRequested,
	HandlerRequested, HandlerEnded, ImagePulled, RuntimeRestarted, PathCreated, PathWritten,
	PathRemoved, FileResized, TreeGrown, PathRenamed, Mounted, Unmounted, PowerLost, CgroupCreated,
	CgroupRemoved, EventRecorded, ObjectCreated, ObjectUpdated, ObjectDeleted, TokenIssued,
	WroteNothing, ShutdownAnnounced, ShutdownCancelled, ShutdownDelayed, ShutdownPermitted,
	ShutdownRepeated, KeyMade, ImageRemoved, LayerResized, LayerFreed, SystemOOM,
	PluginStarted, PluginEnded, PluginAsked, PluginNotified,
	DriverStarted, DriverEnded, VolumeStaged, VolumeUnstaged, VolumePublished, VolumeUnpublished,
	VolumeNotPublished, VolumeExpanded, DeviceHeld, DeviceReleased,
	SessionTried, SessionOpened, SessionClosed, SessionRepeated, DiskAppeared, DiskRemoved,
}

// Causes of an exit, a kill or a stop.
const (
	CauseSelf          = "own"       // the process exited by itself
	CauseStop          = "stop"      // StopContainer sent TERM, or KILL after the grace period
	CauseKilled        = "killed"    // an administrator on the node killed it, by the plan
	CauseSandbox       = "sandbox"   // its sandbox was stopped or removed
	CauseRemove        = "remove"    // RemoveContainer found it running
	CauseOOM           = "oom"       // the OOM killer
	CauseRuntime       = "runtime"   // the runtime failed or lost it
	CauseStart         = "start"     // the runtime could not start it: it has exited without running
	CauseReboot        = "reboot"    // the machine went down
	CauseLost          = "lost"      // the path to a disk was lost
	CauseUnasked       = "unasked"   // a disk that nothing had asked for was found as well
	CauseUnwatched     = "unwatched" // it is not announced to the agent
	CausePlugin        = "plugin"    // a plugin handles requests wrongly, by the plan
	CauseAdministrator = "user"      // an administrator changed the disk, or removed a sandbox
)

// Reply is how a probe or hook ends, by the container's view.
type Reply string

// Replies to any request.
const (
	ReplySuccess Reply = "good"    // exit code 0, HTTP 200, connected, SERVING
	ReplyFailure Reply = "bad"     // exit code 1, HTTP 500, NOT_SERVING
	ReplyRefused Reply = "refused" // no listener, or a command that cannot be run
	ReplyNone    Reply = "none"    // no response before the timeout, or before the process exited

	// Replies that only some requests can have. Other requests have what they mean instead.
	ReplyRedirect       Reply = "elsewhere" // of HTTP: a redirect to another host; means good
	ReplyEndless        Reply = "endless"   // of HTTP: 200 with an endless body; means good
	ReplyUnknownService Reply = "unknown"   // of gRPC: unknown service; means bad
	ReplyUnimplemented  Reply = "unoffered" // of gRPC: unimplemented method; means bad
)

// Replies has every reply.
var Replies = []Reply{
	ReplySuccess, ReplyFailure, ReplyRefused, ReplyNone, ReplyRedirect, ReplyEndless,
	ReplyUnknownService,
	ReplyUnimplemented,
}

// Class returns which of the first four replies a reply amounts to.
func (r Reply) Class() Reply {
	switch r {
	case ReplyRedirect, ReplyEndless:
		return ReplySuccess
	case ReplyUnknownService, ReplyUnimplemented:
		return ReplyFailure
	}
	return r
}

// EventRecorded is the kind of the fact that an Event was recorded, about a pod or a Container of
// it: Reason, Message.
const EventRecorded Kind = "EventRecorded"

// Fact is one change in the simulated world. Fields that do not apply are empty.
type Fact struct {
	Time time.Time
	Kind Kind
	// Origin is what led to the fact. Only sim.Options.WatchFact gets it: oracles judge what is so,
	// whatever has caused it.
	Origin Origin

	PodUID, PodNamespace, PodName string
	Container                     string // its name in the pod
	ContainerID, SandboxID        string
	Attempt                       uint32 // of the container; of the sandbox if the fact is about one
	ExitCode                      int32
	Cause                         string
	GraceSeconds                  int64 // of StopRequested: until KILL

	// Request is that of a probe or hook: "exec cat /ready", "http :8080/healthz", "tcp :80" or
	// "grpc :90/name". Reply is how it ended.
	Request string
	Reply   Reply
	// RequestNumber is the number of a request: HandlerRequested and its HandlerEnded have the same.
	// Zero if requests are not numbered.
	RequestNumber uint64

	// Of ContainerExited: the termination message, and the last lines of the log, as far as they
	// are in the file that the container had open last.
	Message, LogTail string

	Addresses []string `json:",omitempty"` // of SandboxReady: those in a network of its own

	// Of SandboxCreated: the sandbox's cgroup, and the IDs of its user namespace.
	Cgroup string
	IDs    IDs
	Limits Limits // of CgroupCreated, ContainerCreated and ContainerResized
	// Of ContainerCreated: the image volumes, the other mounts, the user by number or name, and the
	// variables.
	ImageMounts []string
	Mounts      []Mount
	User        string
	Env         map[string]string // must not be changed

	ContainerConfig *runtimeapi.ContainerConfig  // of ContainerCreated; must not be changed
	SandboxConfig   *runtimeapi.PodSandboxConfig // of SandboxCreated; must not be changed

	Reason string // of EventRecorded

	Path, NewPath, Image string
	// Source is the source of a mount, as in the mount table. NewPath is the path in that file system.
	Source      string `json:",omitempty"`
	IsReadOnly  bool   `json:",omitempty"` // of a mount
	Label       string `json:",omitempty"` // of a mount: the SELinux label of all its files
	Bytes       int64
	IsPinned    bool              `json:",omitempty"` // of an image that was removed
	Annotations map[string]string // of the created container or sandbox; must not be changed

	Write *Write // of ObjectCreated, ObjectUpdated and ObjectDeleted

	Settings map[string]string `json:",omitempty"` // of SessionTried; must not be changed

	Plugin       *Plugin `json:",omitempty"` // of PluginStarted; must not be changed
	IsRegistered bool    `json:",omitempty"` // of PluginNotified: what the plugin is notified of

	Driver *Driver `json:",omitempty"` // of facts about a CSI driver; must not be changed
	Volume *Volume `json:",omitempty"` // of facts about a CSI volume; must not be changed

	// Token and Audience are of TokenIssued, which names the pod that the token is bound to. The Token
	// of KeyMade is the private key.
	Token, Audience string
	Expires         time.Time
}

// Origin is the number of an effect of the agent or of a happening of the plan (sim.EffectOrigin,
// sim.HappeningOrigin); zero: neither.
type Origin uint64

// IDs is the range of host IDs of a sandbox's user namespace; empty if it has none.
type IDs struct{ First, Length uint32 }

// Plugin is what a plugin answers, and the file that it has made.
type Plugin struct {
	File, Type, Name string
	Versions         []string
	StaysWrong       bool // it handles requests wrongly for ever
	// NodeID and Topology are what a CSI driver answers of its node; no ID: the name of the node.
	NodeID   string
	Topology map[string]string
}

// Mount is a path of the node that a container sees at a path of its own.
type Mount struct {
	HostPath, ContainerPath string
	ReadOnly                bool
}

// Limits are those of a cgroup; zero: unlimited.
type Limits struct {
	CPUShares            uint64
	CPUQuota             int64
	CPUPeriod            uint64
	MemoryBytes, PidsMax int64
	MemoryMin, MemoryLow int64
	// HugePages are "2MB 4194304, 1GB 0, 64KB -1": by the size of a page, -1 for unlimited.
	HugePages string
	// Of a container: its memory and swap together, and "memory.swap.max 0" and other files of its
	// cgroup, sorted, with commas.
	SwapBytes int64
	Files     string
}

// Log passes facts to its subscribers, in the order in which they happen.
type Log struct {
	subscribers []func(Fact)
	count       uint64
}

// Subscribe passes every later fact to a function, after the functions that subscribed before.
func (l *Log) Subscribe(handle func(Fact)) {
	l.subscribers = append(l.subscribers, handle)
}

// Add passes a fact to all subscribers.
func (l *Log) Add(f Fact) {
	l.count++
	for _, handle := range l.subscribers {
		handle(f)
	}
}

// Count returns the number of facts so far.
func (l *Log) Count() uint64 { return l.count }
