package loop

import (
	"slices"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/world"
)

// Lane is a class of operations with its own limit on operations in flight. Lanes keep slow
// operations from delaying fast ones: a hundred StopContainer calls that wait for their grace
// periods do not delay a relist. Within a lane, tenants share the slots (slots.go).
type Lane int

// The lanes.
const (
	LaneList       Lane = iota // listing sandboxes and containers in the runtime
	LaneObserve                // reading the status of one object in the runtime
	LaneAct                    // creating, starting and removing in the runtime
	LaneStop                   // stopping containers and sandboxes, which takes up to the grace period
	LanePull                   // pulling images
	LaneFS                     // short file system operations
	LaneRemove                 // removing whole trees
	LaneMeasure                // measuring whole trees
	LaneTree                   // other file system operations on large files or whole trees
	LaneProbe                  // requests to containers by probes and hooks
	LaneStream                 // the stream of container events
	LaneHost                   // cgroups, and private keys that are made at once
	LaneAPI                    // reading and writing API objects
	LaneStatus                 // writing pod statuses, separate so that reads do not delay them
	LaneHeartbeat              // the Node object and its lease, separate so that nothing delays them
	LaneHostPath               // paths of pods' authors and their devices, which may hang
	LaneUnmount                // unmounting them, which ends what hangs, and may hang itself
	LaneStatfs                 // measuring file systems, which may hang
	LanePlugin                 // requests to plugins, which may hang
	LaneCredential             // programs that provide credentials for images, each a process
	LaneCSI                    // calls of CSI drivers, which may take minutes or hang
	LaneKey                    // making RSA keys, each up to seconds of computation
	LaneSCSI                   // commands for disks of a network, each a process that may hang
	laneCount
)

var laneNames = [laneCount]string{"list", "observe", "act", "stop", "pull", "fs", "remove",
	"measure", "tree", "probe", "stream", "host", "api", "status", "heartbeat", "host-path", "unmount",
	"statfs", "plugin", "credential", "csi", "key", "scsi"}

func (l Lane) String() string { return laneNames[l] }

// ParseLane returns the lane with a name, and false if none exists.
func ParseLane(name string) (Lane, bool) {
	i := slices.Index(laneNames[:], name)
	return Lane(i), i >= 0
}

// objectLane returns the lane of an operation on API objects of a resource.
func objectLane(r world.Resource) Lane {
	switch r {
	case world.ResourceNodes, world.ResourceLeases:
		return LaneHeartbeat
	}
	return LaneAPI
}

// mayHang reports whether the operations of a lane may hang because of a file system or device that
// the author of a pod has chosen, such as a share of a server that does not respond.
func (l Lane) mayHang() bool {
	return l == LaneHostPath || l == LaneUnmount || l == LaneStatfs || l == LaneTree ||
		l == LaneSCSI
}

// hostPathLane returns the lane of an operation on a path or device that may hang. What undoes a
// mount does not wait for what hangs on it.
func hostPathLane(body any) Lane {
	switch body.(type) {
	case *world.Unmount, *world.ReleaseDevice:
		return LaneUnmount
	}
	return LaneHostPath
}

// LaneOf returns the lane of an effect.
func LaneOf(eff world.Effect) Lane {
	if eff.HostPath != "" {
		return hostPathLane(eff.Body)
	}
	switch body := eff.Body.(type) {
	case *world.HoldDevice, *world.ReleaseDevice:
		return hostPathLane(body)
	case *world.MeasureFilesystem:
		return LaneStatfs
	case *world.PatchObject:
		if body.Status && body.Resource == world.ResourcePods {
			return LaneStatus
		}
		return objectLane(body.Resource)
	case world.ObjectOperation:
		return objectLane(body.TargetResource())
	case *runtimeapi.StopContainerRequest, *runtimeapi.StopPodSandboxRequest:
		return LaneStop
	case *runtimeapi.PullImageRequest:
		return LanePull
	case *runtimeapi.ListPodSandboxRequest, *runtimeapi.ListContainersRequest:
		return LaneList
	case *runtimeapi.RunPodSandboxRequest, *runtimeapi.CreateContainerRequest,
		*runtimeapi.StartContainerRequest, *runtimeapi.RemoveContainerRequest,
		*runtimeapi.RemovePodSandboxRequest, *runtimeapi.ReopenContainerLogRequest,
		*runtimeapi.RemoveImageRequest:
		return LaneAct
	case *runtimeapi.ExecSyncRequest:
		return LaneProbe
	case *runtimeapi.GetEventsRequest:
		return LaneStream
	case *world.RemoveTree:
		return LaneRemove
	case *world.MeasureTree, *world.MeasureTrees:
		return LaneMeasure
	case *world.ShareWithGroup, *world.Compress:
		return LaneTree
	case *world.MakeKey:
		if body.IsSlow() {
			return LaneKey
		}
		return LaneHost
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
	case world.PortPlugins:
		return LanePlugin
	case world.PortCredentials:
		return LaneCredential
	case world.PortCSI:
		return LaneCSI
	case world.PortSCSI:
		return LaneSCSI
	default:
		return LaneHost
	}
}

// Limits are the bounds of the loop.
type Limits struct {
	Inbox    int            // unsolicited events in the inbox
	InFlight [laneCount]int // operations in flight, for each lane; see slots.go for the shares
}

// defaultLimits allow many reads, which are fast, and as many writes as containerd handles well at
// once. A stop, a probe and a hook mostly wait, and cost a goroutine, a stream and some 20 KiB: far
// less than the container that each is for. Their limits have room for 32 stops and 16 probes of
// each of podsMax pods. An operation on a tree keeps the disk busy, and one on a host path may
// hang; both occupy a thread, so there are fewer. The file systems that are measured are few at a
// time, and a pod has one unmount at a time. Each of world.PluginSocketsMax sockets has one
// request, and more only after its file was replaced. A program that provides credentials is a
// process of its own, and the author of any pod can have it started. The calls of CSI drivers
// mostly wait, one for each volume at a time. An RSA key occupies a CPU while it is made.
var defaultLimits = Limits{
	Inbox: 4096,
	InFlight: [laneCount]int{
		LaneList: 8, LaneObserve: 64, LaneAct: 64, LaneStop: 8192, LanePull: 32, LaneFS: 64,
		LaneRemove: 64, LaneMeasure: 16, LaneTree: 16, LaneProbe: 4096, LaneStream: 2, LaneHost: 64,
		LaneAPI: 64, LaneStatus: 64, LaneHeartbeat: 4, LaneHostPath: 256, LaneUnmount: 64,
		LaneStatfs: 32, LanePlugin: 256, LaneCredential: 16, LaneCSI: 256, LaneKey: 8,
		LaneSCSI: 64,
	},
}

func (l Limits) withDefaults() Limits {
	if l.Inbox == 0 {
		l.Inbox = defaultLimits.Inbox
	}
	for i := range l.InFlight {
		if l.InFlight[i] == 0 {
			l.InFlight[i] = defaultLimits.InFlight[i]
		}
	}
	return l
}
