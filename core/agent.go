package core

import (
	"cmp"
	"path"
	"time"

	v1 "k8s.io/api/core/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"seedlet.dev/core/admission"
	"seedlet.dev/core/allocation"
	"seedlet.dev/core/cgroup"
	"seedlet.dev/core/config"
	"seedlet.dev/core/containergc"
	"seedlet.dev/core/credentials"
	"seedlet.dev/core/criconfig"
	"seedlet.dev/core/csi"
	"seedlet.dev/core/devicemount"
	"seedlet.dev/core/eviction"
	"seedlet.dev/core/hostfile"
	"seedlet.dev/core/housekeeping"
	"seedlet.dev/core/image"
	"seedlet.dev/core/imagegc"
	"seedlet.dev/core/lease"
	"seedlet.dev/core/logs"
	"seedlet.dev/core/machine"
	"seedlet.dev/core/manifest"
	"seedlet.dev/core/mirror"
	nodeobject "seedlet.dev/core/node"
	"seedlet.dev/core/objectcache"
	"seedlet.dev/core/op"
	"seedlet.dev/core/pleg"
	"seedlet.dev/core/plugins"
	"seedlet.dev/core/pod"
	"seedlet.dev/core/poddirs"
	"seedlet.dev/core/pullrecord"
	"seedlet.dev/core/qos"
	"seedlet.dev/core/runtime"
	"seedlet.dev/core/scsi"
	"seedlet.dev/core/shutdown"
	"seedlet.dev/core/statuswriter"
	"seedlet.dev/core/timer"
	"seedlet.dev/core/userns"
	"seedlet.dev/core/volumestats"
	"seedlet.dev/world"
)

// Options are the settings of an agent. They do not change while it runs.
type Options struct {
	Config       *kubeletconfig.KubeletConfiguration // defaulted and validated
	NodeName     string                              // in lower case
	RootDir      string                              // of the kubelet, such as /var/lib/kubelet
	ManifestPath string                              // of the static pods; empty for none
	LinksDir     string                              // such as /var/log/containers, the default
	HasAPIServer bool                                // the node has an API server
	Node         nodeobject.Options                  // what the agent registers as its Node
	IDs          userns.Range                        // set apart for pods; empty: the default
	Credentials  credentials.Settings                // of the node, for images
}

// State is everything that the agent knows. It is plain data: a snapshot is its JSON.
type State struct {
	BootedAt     time.Time               `json:"bootedAt"` // zero before the boot event
	Boot         world.Boot              `json:"boot"`     // the machine's facts as observed last
	Machine      machine.Observer        `json:"machine"`
	Node         pod.Node                `json:"node"`
	Ops          op.Table                `json:"ops"`
	Timers       timer.Queue[timer.Key]  `json:"timers"`
	Manifests    manifest.Sources        `json:"manifests"`
	Relist       pleg.Relist             `json:"relist"`
	EventStream  pleg.Stream             `json:"eventStream"`
	Runtime      runtime.Runtime         `json:"runtime"`
	Images       image.Store             `json:"images"`
	ImageGC      imagegc.Collector       `json:"imageGC"`
	ContainerGC  containergc.Rounds      `json:"containerGC"`
	PodDirs      poddirs.Listing         `json:"podDirs"`
	QOS          qos.Cgroups             `json:"qos"`
	Shutdown     shutdown.Manager        `json:"shutdown"` // of the machine
	Eviction     eviction.Manager        `json:"eviction"`
	OOMs         nodeobject.OOMs         `json:"ooms"`
	Certificates nodeobject.Certificates `json:"certificates"`
	Plugins      plugins.Registry        `json:"plugins,omitzero"`
	CSI          csi.Node                `json:"csi,omitzero"`
	SCSI         scsi.Node               `json:"scsi"`
	VolumeStats  volumestats.Stats       `json:"volumeStats"`
	Allocation   allocation.Store        `json:"allocation"`
	Housekeeping housekeeping.Cleanup    `json:"housekeeping"`
	Devices      devicemount.Devices     `json:"devices"` // of local volumes
	Blocks       devicemount.Blocks      `json:"blocks"`  // devices of local volumes for containers
	LogRotation  logs.Rotation           `json:"logRotation"`
	LogLinks     logs.Links              `json:"logLinks"`
	Pods         map[string]*pod.Pod     `json:"pods"` // by UID
	// StaticRejections are the static pods that are desired but not run, by UID, with the reason.
	StaticRejections map[string]Rejection `json:"staticRejections,omitempty"`
	HasAPIServer     bool                 `json:"hasAPIServer"`
	// Without an API server the fields from here to APIRejections are not used.
	Objects      objectcache.Store   `json:"objects"`
	StatusWriter statuswriter.Writer `json:"statusWriter"`
	Mirrors      mirror.Writer       `json:"mirrors"`
	NodeObject   nodeobject.Node     `json:"nodeObject"` // the Node at the API server
	Lease        lease.Lease         `json:"lease"`
	// APIPodUIDs holds, by full name, the UIDs of the pods that the API server has bound to this node.
	// MirroredPodUIDs holds, by full name, the UIDs of the static pods that have a mirror there.
	APIPodUIDs      map[string]string    `json:"apiPodUIDs,omitempty"`
	MirroredPodUIDs map[string]string    `json:"mirroredPodUIDs,omitempty"`
	APIRejections   map[string]Rejection `json:"apiRejections,omitempty"` // by UID
	PodsMax         int                  `json:"podsMax"`
	// PendingAPIPods are the full names in a long list of the API server that are still to be applied.
	// APIPodsApplied is set once the first list has been applied.
	PendingAPIPods []string `json:"pendingAPIPods,omitempty"`
	APIPodsApplied bool     `json:"apiPodsApplied,omitempty"`
	// SetAside holds, by UID, the pods over which earlier runs of the agent have panicked.
	SetAside map[string]*SetAside `json:"setAside,omitempty"`
	// PodsLeft is set if the last step has left pods to the next because of its work.
	PodsLeft bool `json:"podsLeft,omitempty"`
	// ResizesLeft are the UIDs of the pods whose resizes are looked at next, because all of them were
	// too much work for one step. ResizesAgain is set if all have to be looked at again then.
	ResizesLeft  []string `json:"resizesLeft,omitempty"`
	ResizesAgain bool     `json:"resizesAgain,omitempty"`
	// AllowedUnsafeSysctls are the patterns of the kernel parameters that pods may set besides the
	// safe ones.
	AllowedUnsafeSysctls []string `json:"allowedUnsafeSysctls,omitempty"`
	// ChecksFeatures reports whether a pod is rejected that needs a feature which the node does not
	// declare.
	ChecksFeatures bool      `json:"checksFeatures,omitempty"`
	Metrics        Metrics   `json:"metrics"`
	Now            time.Time `json:"now"` // the time of the newest event
	Steps          uint64    `json:"steps"`
}

// Agent is the node agent. It implements world.Core and is used by one goroutine only.
type Agent struct {
	state State

	// The fields below are derived from the state, or are reset by each step.
	podUIDs       []string            // the keys of state.Pods, sorted
	podUIDsByName map[string][]string // by full name, sorted
	objectOwners  map[string]string   // by ID of a sandbox or container: see objectOwner
	waiting       waitingPods         // of state.APIRejections
	requests      admission.Requests  // of the pods that use resources
	servedPods    map[string]*v1.Pod  // by UID: the cache of servedPod, dropped when a pod is planned
	shares        map[string]podShare // by UID: the cache of countShare
	resizing      map[string]bool     // the UIDs of the pods with a resize that is not allocated
	activeInLoop  activePods          // of the loop in updateEachAPIPod
	namedVolumes  *csi.NamedVolumes   // the cache of volumesNamedBy
	hasRoom       bool                // set if a pod holds less since the last planAdmission
	effects       op.Effects
	queue         planQueue
	podEnv        pod.Env
}

// New returns an agent. The agent does nothing before its boot event.
func New(o Options) *Agent {
	c := o.Config
	root := path.Clean(o.RootDir)
	links := path.Clean(cmp.Or(o.LinksDir, logs.LinksDirDefault))
	a := &Agent{objectOwners: map[string]string{}, state: State{
		EventStream: pleg.Stream{Enabled: c.FeatureGates["EventedPLEG"]},
		Node: pod.Node{
			Node: criconfig.Node{
				PodsDir: root + "/pods", LogsDir: c.PodLogsDir, Cgroups: cgroup.LayoutFromConfig(c),
				DNS:    criconfig.DNS{Servers: c.ClusterDNS, Domain: c.ClusterDomain},
				Resolv: hostfile.File{Path: resolvConf(c)}, Hosts: hostfile.File{Path: "/etc/hosts"},
				NoEnvFiles: !config.EnvFilesEnabled(c), SeccompDefault: *c.SeccompDefault,
			},
			Name: o.NodeName, LogLinksDir: links, IDs: userns.LayoutFromConfig(c, o.IDs),
			RuntimeTimeout: c.RuntimeRequestTimeout.Duration, BackoffMax: config.RestartBackoffMax(c),
			RestartAllContainers: config.RestartAllContainersEnabled(c),
			PodCertificates:      config.PodCertificatesEnabled(c),
			NoStorageLimits:      !*c.LocalStorageCapacityIsolation,
		},
		Manifests:    manifest.NewSources(c, o.ManifestPath, o.NodeName),
		QOS:          qos.Cgroups{Settings: qos.SettingsFromConfig(c)},
		Allocation:   allocation.Store{Dir: root},
		Shutdown:     shutdown.New(c, root+"/"+shutdown.FileName),
		Eviction:     eviction.New(c, root, o.Node.IgnoreThresholds),
		PodDirs:      poddirs.Listing{Dir: root + "/pods"},
		Housekeeping: housekeeping.Cleanup{PodsDir: root + "/pods", LogsDir: c.PodLogsDir},
		CSI:          csi.NewNode(o.NodeName, root, o.HasAPIServer),
		SCSI:         scsi.NewNode(root),
		VolumeStats: volumestats.Stats{Period: c.VolumeStatsAggPeriod.Duration,
			Health: config.VolumeHealthEnabled(c)},
		Devices: devicemount.Devices{RootDir: root, Dir: criconfig.DevicesDir(root)},
		Blocks:  devicemount.Blocks{Dir: criconfig.BlocksDir(root), PodsDir: root + "/pods"},
		Images: image.Store{Limits: image.LimitsFromConfig(c),
			Node: credentials.Node{Settings: o.Credentials},
			Records: pullrecord.Store{Settings: pullRecordSettings(c),
				Dir: root + "/" + pullrecord.DirName}},
		ImageGC:      imagegc.Collector{Settings: imagegc.SettingsFromConfig(c)},
		LogRotation:  logs.NewRotation(c),
		LogLinks:     logs.Links{Dir: links, LogsDir: path.Clean(c.PodLogsDir)},
		Pods:         map[string]*pod.Pod{},
		PodsMax:      int(c.MaxPods),
		HasAPIServer: o.HasAPIServer,
		NodeObject:   nodeobject.Node{Settings: nodeobject.SettingsFromConfig(c, o.NodeName, o.Node)},
		Lease: lease.Lease{Node: o.NodeName,
			Duration: time.Duration(c.NodeLeaseDurationSeconds) * time.Second},
		AllowedUnsafeSysctls: c.AllowedUnsafeSysctls,
		ChecksFeatures:       config.ChecksDeclaredFeatures(c),
		Objects: objectcache.Store{Strategy: objectcache.StrategyFromConfig(c),
			SyncPeriod: c.SyncFrequency.Duration},
	}}
	a.state.CSI.LabelsAllModes = config.SELinuxMountEnabled(c)
	if !o.HasAPIServer { // the field is for nodes without a cluster; a cluster assigns the ranges
		a.state.Runtime.PodCIDR.Wanted = c.PodCIDR
	}
	return a
}

func (a *Agent) handleBoot(boot *world.Boot, now time.Time) {
	s := &a.state
	s.Boot, s.BootedAt = *boot, now
	s.Node.Seed = boot.Seed
	s.Machine = machine.Observer{Period: s.NodeObject.Settings.CheckPeriod,
		Name: s.NodeObject.Settings.NameToResolve(s.Node.Name)}
	s.Machine.Start(now)
	a.applyMachine()
	a.effects.Log(world.LevelInfo, "Starting seedlet", "node", s.Node.Name, "path",
		s.Manifests.File.Path)
	nodeobject.RecordStart(s.Node.Name, &boot.Machine, &a.effects)
	a.setAsideAtBoot(boot, now)
	for _, key := range []timer.Key{machine.Owner, poddirs.Owner, manifest.Owner,
		manifest.URLOwner, pleg.Owner, pleg.StreamOwner, runtime.Owner, runtime.CIDROwner,
		shutdown.Owner, imagegc.Owner, containergc.Owner, eviction.Owner, pullrecord.Owner,
		s.Node.Resolv.Key(), s.Node.Hosts.Key()} {
		a.queue.enqueue(key)
	}
	for _, key := range allocation.Keys() {
		a.queue.enqueue(key)
	}
	a.startWatches()
	a.startSCSI(boot.HasSCSIVolumes)
}

// hasAppliedEverything reports whether everything is listed, and no pod of a long list waits to be
// applied.
func (a *Agent) hasAppliedEverything() bool {
	return a.hasListedEverything() && len(a.state.PendingAPIPods) == 0
}

// hasListedEverything reports whether every source of pods and the runtime have been listed once,
// and what is allocated to pods was read, for which those of the API server wait. Nothing is
// cleaned up before that: a pod that is unknown may only be unknown so far.
func (a *Agent) hasListedEverything() bool {
	return a.state.Manifests.Ready() && a.hasListedAPIPods() && !a.state.Relist.AsOf.IsZero() &&
		a.state.Allocation.IsLoaded()
}

// isKnownPod reports whether the agent has a pod with the UID, other than one that is set aside.
func (a *Agent) isKnownPod(uid string) bool { return a.state.Pods[uid] != nil }

// hostFile returns the file of the node that has the given key.
func (a *Agent) hostFile(key timer.Key) *hostfile.File {
	if key == a.state.Node.Hosts.Key() {
		return &a.state.Node.Hosts
	}
	return &a.state.Node.Resolv
}

// handleFirstHostFile applies that a file of the node has been read for the first time. As the
// kubelet does, the agent checks the resolv.conf once: its bounds do not depend on a pod.
func (a *Agent) handleFirstHostFile(file *hostfile.File) {
	a.enqueuePods() // pods wait until the file is read
	if file != &a.state.Node.Resolv {
		return
	}
	if message := a.state.Node.CheckResolvConf(); message != "" {
		a.warnOfNode("CheckLimitsForResolvConf", message)
	}
}

// warnOfNode records a warning Event of the Node.
func (a *Agent) warnOfNode(reason, message string) {
	a.effects.RecordEvent(nodeobject.Reference(a.state.Node.Name), v1.EventTypeWarning, reason, "%s",
		message)
}

// resolvConf returns the path of the node's resolv.conf; empty if the configuration has none.
func resolvConf(c *kubeletconfig.KubeletConfiguration) string {
	if c.ResolverConfig == nil {
		return ""
	}
	return *c.ResolverConfig
}

var _ world.Core = (*Agent)(nil)
