// Package truth is the log of what really happened in the simulated world. The simulated ports
// write it at the instant something takes effect, which is not when the agent asked for it and
// not when the agent hears of it; the oracles read it, and never the agent's own opinion.
//
// Start reading at Kind.
package truth

import "time"

// Kind says what happened.
type Kind string

// What happens in the runtime. Every fact about a container names its sandbox and its pod.
const (
	SandboxCreated Kind = "SandboxCreated" // its name is taken; it is not ready yet
	SandboxReady   Kind = "SandboxReady"   // containers can be created in it
	SandboxStopped Kind = "SandboxStopped" // by StopPodSandbox, or died, by Cause; it never comes back
	SandboxRemoved Kind = "SandboxRemoved"

	ContainerCreated Kind = "ContainerCreated"
	ContainerStarted Kind = "ContainerStarted" // its process runs
	ContainerExited  Kind = "ContainerExited"  // its process is gone: ExitCode, Cause
	ContainerRemoved Kind = "ContainerRemoved"
	ContainerLost    Kind = "ContainerLost"  // the runtime does not know its state any more
	ContainerFound   Kind = "ContainerFound" // and knows it again

	StopRequested Kind = "StopRequested" // a StopContainer took effect: TERM was sent; GraceSeconds
	KillRequested Kind = "KillRequested" // KILL was sent, because of Cause

	Asked   Kind = "Asked"   // a probe or a hook has reached a container: Request
	Replied Kind = "Replied" // and has ended, as the container has it: Request, Reply

	ImagePulled      Kind = "ImagePulled"
	RuntimeRestarted Kind = "RuntimeRestarted" // the runtime's process, not what runs under it
)

// What happens on the disk.
const (
	PathMade    Kind = "PathMade"    // a directory
	PathWritten Kind = "PathWritten" // a file
	PathRemoved Kind = "PathRemoved" // with everything below it
	FileSized   Kind = "FileSized"   // a file, by a process, to Bytes
	PathRenamed Kind = "PathRenamed" // Path, To
	Mounted     Kind = "Mounted"     // at Path
	Unmounted   Kind = "Unmounted"   // from Path
	PowerLost   Kind = "PowerLost"
)

// What happens to cgroups. Paths are directories below the root of the hierarchy.
const (
	CgroupMade    Kind = "CgroupMade"    // or set to other Limits; by the runtime, by Cause
	CgroupRemoved Kind = "CgroupRemoved" // with everything below it, and what runs in it
)

// The causes of an exit, a kill or a stop.
const (
	CauseOwn     = "own"     // the process ended by itself
	CauseStop    = "stop"    // it was asked to by StopContainer, or killed when its grace ran out
	CauseKilled  = "killed"  // somebody on the node killed it, by the plan
	CauseSandbox = "sandbox" // its sandbox was stopped or removed
	CauseRemove  = "remove"  // RemoveContainer found it running
	CauseOOM     = "oom"     // the kernel ran out of memory
	CauseRuntime = "runtime" // the runtime failed or lost it
	CauseStart   = "start"   // the runtime could not start it: it has exited without having run
	CauseReboot  = "reboot"  // the machine went down
	CauseUser    = "user"    // of a change on the disk, or of a removal: not by the agent
)

// Reply is how a probe or a hook ends, as far as the container is concerned.
type Reply string

// The replies.
const (
	ReplyGood    Reply = "good"    // exit code 0, HTTP 200, connected, SERVING
	ReplyBad     Reply = "bad"     // exit code 1, HTTP 500, NOT_SERVING
	ReplyRefused Reply = "refused" // nobody listens, the command cannot be run
	ReplyNone    Reply = "none"    // it hung until nobody waited any more, or the process ended

	// Those that only some requests can have; to others they are what they mean.
	ReplyElsewhere Reply = "elsewhere" // of HTTP: a redirect to another host; it means good
	ReplyEndless   Reply = "endless"   // of HTTP: 200, and a page without an end; it means good
	ReplyUnknown   Reply = "unknown"   // of gRPC: there is no such service; it means bad
	ReplyUnoffered Reply = "unoffered" // of gRPC: the call is not offered; it means bad
)

// Replies are all that there are.
var Replies = []Reply{
	ReplyGood, ReplyBad, ReplyRefused, ReplyNone, ReplyElsewhere, ReplyEndless, ReplyUnknown,
	ReplyUnoffered,
}

// Means is which of the first four a reply amounts to.
func (r Reply) Means() Reply {
	switch r {
	case ReplyElsewhere, ReplyEndless:
		return ReplyGood
	case ReplyUnknown, ReplyUnoffered:
		return ReplyBad
	}
	return r
}

// What users are told.
const EventTold Kind = "EventTold" // an Event about a pod or a Container of it: Reason, Message

// Fact is one thing that happened. Fields that do not apply are empty.
type Fact struct {
	Time time.Time
	Kind Kind

	PodUID, PodNamespace, PodName string
	Container                     string // its name in the pod
	ContainerID, SandboxID        string
	Attempt                       uint32 // of the container, or of the sandbox if it is about one
	ExitCode                      int32
	Cause                         string
	GraceSeconds                  int64 // of StopRequested: until KILL

	// Request is what was asked, as "exec cat /ready", "http :8080/healthz", "tcp :80" or
	// "grpc :90/name"; Reply is how that ended.
	Request string
	Reply   Reply
	// Asking tells one request from the others: an Asked has the number of its Replied. Zero if
	// nobody counts.
	Asking uint64

	// Of ContainerExited: what it has written about its end, and the end of what it has written
	// into its log, as far as that is in the file that it had open last.
	Message, LogEnd string

	// Of SandboxCreated: the cgroup that it is to be in, and the ids of its user namespace.
	Cgroup string
	IDs    IDs
	Limits Limits // of CgroupMade
	// Of ContainerCreated: the images that it mounts, and as whom it runs, by number or name.
	ImageMounts []string
	User        string
	Env         map[string]string // and its variables; not to be changed

	Reason string // of EventTold

	Path, To, Image string
	Bytes           int64
	Annotations     map[string]string // of the container or sandbox created; not to be changed

	Write *Write // of an object of the API server

	Token   string // of TokenMade
	Expires time.Time
}

// IDs are ids on the host that a sandbox has to itself; none if it has no user namespace.
type IDs struct{ First, Length uint32 }

// Limits are those of a cgroup; zero is unlimited.
type Limits struct {
	CPUShares            uint64
	CPUQuota             int64
	CPUPeriod            uint64
	MemoryBytes, PidsMax int64
}

// Log passes facts on, in the order in which they happen.
type Log struct {
	subscribers []func(Fact)
	count       uint64
}

// Subscribe has every later fact passed to take, after those who subscribed before.
func (l *Log) Subscribe(take func(Fact)) {
	l.subscribers = append(l.subscribers, take)
}

// Add logs a fact.
func (l *Log) Add(f Fact) {
	l.count++
	for _, take := range l.subscribers {
		take(f)
	}
}

// Count is the number of facts so far.
func (l *Log) Count() uint64 { return l.count }
