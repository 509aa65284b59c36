// Package csi is the node's side of the volumes of CSI drivers: which drivers the node tells the
// cluster about, and what is staged and published on the node.
//
// Its parts have a key and a plan each, so that a change is as much work as what has changed:
//
//   - A driver (driver.go): a plugin that registers is asked for its node, and is notified that it
//     is registered once the cluster knows of it.
//   - The CSINode (csinode.go): the object of the API server that names the drivers of the node.
//   - A volume (volume.go): one record for each pair of driver and handle, whatever number of pods
//     share it.
//   - The search (search.go): what earlier agents left on the disk and in the mount table.
//
// Facts of a volume: its uses, which pods declare (Node.Use) and take back (Node.Release); its
// staging; its publications, one for each pod; what the API server says of its attachment; and the
// one operation in flight. Uses are what is desired, staging and publications are what is, or may
// be, on the node. Plan (plan.go), each part only when the one before is done:
//
//  1. Nothing is done for a volume before the search has looked at everything once.
//  2. A publication that no use desires is unpublished (release.go), and its directory removed. A
//     pod waits for that before its own directory goes.
//  3. A volume with uses is attached (attach.go): the Node says durably that the volume is in use,
//     then the cluster says that it is attached. It is staged (stage.go), then published for each
//     use (publish.go). The file vol_data.json is durable before the call that it describes.
//  4. A volume without uses and publications is unstaged, and its directory removed. So is one
//     whose uses all need another SELinux label (selinux.go) than it is mounted with: it has one
//     label at a time.
//
// A state is uncertain from the moment a call is issued until it has succeeded: whatever happens
// to the call or to the agent, it is repeated or undone. So a volume is one call at a time, and
// all calls are idempotent by the CSI specification.
//
// After a start of the agent a publication that is found mounted, and whose pod has containers in
// its sandbox, stays as it is without a call: the pod got its containers after its volumes. Any
// other one may be half done, and is published again. Nothing that was found is undone before all
// sources of pods and one complete relist are known. The directories, the names and the keys of
// vol_data.json are those of a kubelet, so each takes over the other's volumes.
//
// Upstream: pkg/volume/csi, pkg/volume/csi/nodeinfomanager, pkg/kubelet/volumemanager. Start
// reading at Node, then Node.planVolume.
package csi

import (
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"seedlet.dev/core/objectcache"
	"seedlet.dev/core/op"
	"seedlet.dev/core/selinux"
	"seedlet.dev/core/timer"
	"seedlet.dev/core/volumeop"
	"seedlet.dev/world"
)

// Node is all that the agent knows of the drivers and volumes of its node. Nothing is done on a
// node without an API server: it has no volume that could be resolved.
type Node struct {
	Enabled bool `json:"enabled,omitempty"`
	// LabelsAllModes is the feature gate SELinuxMount; see selinux.Node.
	LabelsAllModes bool   `json:"labelsAllModes,omitempty"`
	Name           string `json:"name"`    // of the node
	RootDir        string `json:"rootDir"` // of the kubelet
	PodsDir        string `json:"podsDir"`
	Dir            string `json:"dir"` // of what is staged

	Drivers map[string]*Driver `json:"drivers,omitempty"` // by name
	Object  Object             `json:"object,omitzero"`   // the CSINode
	Search  Search             `json:"search,omitzero"`
	Volumes map[string]*Volume `json:"volumes,omitempty"` // by UniqueName
	Owners  volumeop.Owners    `json:"owners,omitempty"`  // names of volumes, by UID of the pods
	Names   NamesOfNode        `json:"names,omitzero"`
	// Full is set if a pod was refused a volume because the node has too many.
	Full bool `json:"full,omitempty"`
}

// NewNode returns the state of a node before anything is known.
func NewNode(name, rootDir string, hasAPIServer bool) Node {
	return Node{Enabled: hasAPIServer, Name: name, RootDir: rootDir, PodsDir: rootDir + "/pods",
		Dir: rootDir + "/plugins/kubernetes.io/csi"}
}

// Env is what the plans need besides their own state.
type Env struct {
	Effects *op.Effects
	Objects *objectcache.Store
	Enqueue func(timer.Key)
	// Object is the Node as the API server has it; nil if it is not known.
	Object *v1.Node
	// IsWriting reports whether a write that may still take effect changes what the Node has of a
	// driver; nil: none does.
	IsWriting func(driver string) bool
	// Named are the volumes that Object names.
	Named *NamedVolumes
	// SaysInUse reports whether the Node says that a volume is in use, and no write of the agent may
	// be about to take that back.
	SaysInUse func(name string) bool
	// CleansUp reports whether all sources of pods and the runtime were listed. IsKnownPod reports
	// whether a pod is known, or may become known.
	CleansUp   bool
	IsKnownPod func(uid string) bool
	SELinux    selinux.Node
	// Count counts an operation on a volume of a driver; nil to count nothing.
	Count func(o Counted)
	// CountLabel counts an event about the SELinux label of a volume; nil to count nothing.
	CountLabel func(o selinux.Counted)
	// EnqueuePod plans a pod, EnqueuePods all of them.
	EnqueuePod  func(uid string)
	EnqueuePods func()
	// ReportsInUse has the status of the Node compared, which names the volumes in use.
	ReportsInUse func()
	// AttachDetach is set if the attach-detach controller attaches volumes to this node.
	AttachDetach bool
}

// AllDrivers are the CSIDriver objects of the cluster, all of which are watched.
var AllDrivers = world.WatchTarget{Resource: world.ResourceCSIDrivers}

// driverObject returns the CSIDriver of a driver, nil if there is none, and whether that is known.
func (e *Env) driverObject(name string) (*storagev1.CSIDriver, bool) {
	w := e.Objects.Watch(AllDrivers)
	if w == nil || !w.Listed {
		return nil, false
	}
	return w.Objects["/"+name].CSIDriver, true
}

const (
	callTimeout = 2 * time.Minute // csiTimeout upstream
	fsTimeout   = 2 * time.Minute
	apiTimeout  = time.Minute
	// listedPeriod is how often a volume that was found looks whether all pods were listed.
	listedPeriod = 10 * time.Second
	// groupTimeout has room for a tree of millions of files, which a kubelet walks without a bound.
	groupTimeout = 30 * time.Minute
)
