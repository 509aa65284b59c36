package loop

import (
	"slices"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/world"
)

// Lane is a class of operations with a bound of its own on how many are in flight, so that slow
// ones never hold up quick ones: a hundred stops that wait out their grace periods must not
// delay a relist.
type Lane int

// The lanes.
const (
	LaneList      Lane = iota // listing what the runtime has
	LaneObserve               // looking at one thing in the runtime
	LaneAct                   // creating, starting and removing in the runtime
	LaneStop                  // stopping containers and sandboxes, each as slow as its grace period
	LanePull                  // pulling images
	LaneFS                    // the file system
	LaneTree                  // walking through whole trees of the file system
	LaneProbe                 // waiting for what a container answers to a probe or a hook
	LaneStream                // the stream of container events
	LaneHost                  // the machine
	LaneAPI                   // reading and changing objects of the API server
	LaneStatus                // what the API server is told of pods, which no reading may delay
	LaneHeartbeat             // the signs of life of the node there, which nothing may delay
	LaneHostPath              // the file system, where a pod's author chose, which may hang
	laneCount
)

var laneNames = [laneCount]string{"list", "observe", "act", "stop", "pull", "fs", "tree", "probe",
	"stream", "host", "api", "status", "heartbeat", "host-path"}

func (l Lane) String() string { return laneNames[l] }

// LaneNamed is the lane with a name; false if there is none.
func LaneNamed(name string) (Lane, bool) {
	i := slices.Index(laneNames[:], name)
	return Lane(i), i >= 0
}

// laneOfObject is the lane of an operation on objects of a resource.
func laneOfObject(r world.Resource) Lane {
	switch r {
	case world.ResourceNodes, world.ResourceLeases:
		return LaneHeartbeat
	}
	return LaneAPI
}

// LaneOf says which lane an effect takes.
func LaneOf(eff world.Effect) Lane {
	if eff.HostPath != "" {
		return LaneHostPath
	}
	switch body := eff.Body.(type) {
	case *world.PatchObject:
		if body.Status && body.Resource == world.ResourcePods {
			return LaneStatus
		}
		return laneOfObject(body.Resource)
	case world.OnObjects:
		return laneOfObject(body.Of())
	case *runtimeapi.StopContainerRequest, *runtimeapi.StopPodSandboxRequest:
		return LaneStop
	case *runtimeapi.PullImageRequest:
		return LanePull
	case *runtimeapi.ListPodSandboxRequest, *runtimeapi.ListContainersRequest:
		return LaneList
	case *runtimeapi.RunPodSandboxRequest, *runtimeapi.CreateContainerRequest,
		*runtimeapi.StartContainerRequest, *runtimeapi.RemoveContainerRequest,
		*runtimeapi.RemovePodSandboxRequest, *runtimeapi.ReopenContainerLogRequest:
		return LaneAct
	case *runtimeapi.ExecSyncRequest:
		return LaneProbe
	case *runtimeapi.GetEventsRequest:
		return LaneStream
	case *world.MeasureTree, *world.ShareWithGroup, *world.Compress:
		return LaneTree
	}
	switch world.PortOf(eff.Body) {
	case world.PortCRI:
		return LaneObserve
	case world.PortFS:
		return LaneFS
	case world.PortNetwork:
		return LaneProbe
	case world.PortAPI:
		return LaneAPI
	default:
		return LaneHost
	}
}

// line is what waits for a place in a lane: first what finishes something, then what begins
// something, each in order. So of many pods that are made at once the first run soon, while all
// would be half made for long otherwise.
type line [2]queue[world.Effect]

func (l *line) len() int { return l[0].len() + l[1].len() }

func (l *line) push(eff world.Effect) {
	switch eff.Body.(type) {
	case *runtimeapi.CreateContainerRequest, *runtimeapi.StartContainerRequest:
		l[0].push(eff)
	default:
		l[1].push(eff)
	}
}

func (l *line) pop() (world.Effect, bool) {
	if eff, ok := l[0].pop(); ok {
		return eff, true
	}
	return l[1].pop()
}

// Limits are the loop's bounds.
type Limits struct {
	Inbox  int            // events that nobody asked for, waiting for their turn
	Flying [laneCount]int // operations in flight, by lane
}

// The defaults: reads are many and quick; writes are as many as containerd carries well at once;
// a stop, a probe and a hook only wait, so there may be one for every container of a full node.
// What hangs only waits as well, but has a thread of its own.
var defaultLimits = Limits{
	Inbox: 4096,
	Flying: [laneCount]int{
		LaneList: 8, LaneObserve: 64, LaneAct: 64, LaneStop: 1024, LanePull: 32, LaneFS: 64,
		LaneTree: 4, LaneProbe: 1024, LaneStream: 2, LaneHost: 64, LaneAPI: 64, LaneStatus: 64,
		LaneHeartbeat: 4, LaneHostPath: 256,
	},
}

func (l Limits) withDefaults() Limits {
	if l.Inbox == 0 {
		l.Inbox = defaultLimits.Inbox
	}
	for i := range l.Flying {
		if l.Flying[i] == 0 {
			l.Flying[i] = defaultLimits.Flying[i]
		}
	}
	return l
}
