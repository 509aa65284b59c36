package pod

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/image"
	"seedlet.dev/core/op"
	"seedlet.dev/core/probe"
	"seedlet.dev/core/volume"
)

// The facts about a pod for metrics and log lines. No plan depends on them.

// Counts is the contribution of one pod, or of all pods, to the metrics of the node.
type Counts struct {
	RunningPods int `json:"runningPods,omitempty"` // pods with a ready sandbox
	StaticPods  int `json:"staticPods,omitempty"`  // static pods that are desired
	// Pods that hold resources of the node: those of the API server, and static ones.
	ActivePods       int `json:"activePods,omitempty"`
	ActiveStaticPods int `json:"activeStaticPods,omitempty"`

	// Containers of the runtime by state, and ephemeral containers of the spec.
	CreatedContainers   int `json:"createdContainers,omitempty"`
	RunningContainers   int `json:"runningContainers,omitempty"`
	UnknownContainers   int `json:"unknownContainers,omitempty"`
	ExitedContainers    int `json:"exitedContainers,omitempty"`
	EphemeralContainers int `json:"ephemeralContainers,omitempty"`

	// Pods with a resize that is not allocated, by reason, or that is being carried out.
	ResizesDeferred   int `json:"resizesDeferred,omitempty"`
	ResizesInfeasible int `json:"resizesInfeasible,omitempty"`
	ResizesInProgress int `json:"resizesInProgress,omitempty"`

	// Working has the pods that the agent works on, by Config and Stage.
	Working [configCount][stageCount]int `json:"working,omitzero"`
	// VolumesDesired and VolumesMounted have the volumes of pods, by plugin.
	VolumesDesired [volume.PluginCount]int `json:"volumesDesired,omitzero"`
	VolumesMounted [volume.PluginCount]int `json:"volumesMounted,omitzero"`
}

// Config is where a pod that the agent works on comes from.
type Config int

// The sources of a pod, in the kubelet's terms: an orphaned pod is no longer desired, and of a pod
// that only the runtime has nothing else is known.
const (
	DesiredPod Config = iota
	DesiredStaticPod
	OrphanedPod
	OrphanedStaticPod
	RuntimeOnlyPod
	configCount
)

// ConfigLabels are the kubelet's labels of each Config: config and static.
var ConfigLabels = [configCount][2]string{DesiredPod: {"desired", ""},
	DesiredStaticPod: {"desired", "true"}, OrphanedPod: {"orphan", ""},
	OrphanedStaticPod: {"orphan", "true"}, RuntimeOnlyPod: {"runtime_only", "unknown"}}

// StageLabels are the kubelet's names of the stages, in the order of Counts.Working.
var StageLabels = [stageCount]string{"sync", "terminating", "terminated"}

const stageCount = 3

// config returns where the pod comes from.
func (p *Pod) config() Config {
	switch {
	case p.Spec == nil:
		return RuntimeOnlyPod
	case p.NoLongerDesired && p.IsStatic():
		return OrphanedStaticPod
	case p.NoLongerDesired:
		return OrphanedPod
	case p.IsStatic():
		return DesiredStaticPod
	}
	return DesiredPod
}

// stageIndex returns the index of the pod's stage in StageLabels.
func (p *Pod) stageIndex() int {
	switch p.Stage {
	case Terminating:
		return 1
	case Terminated:
		return 2
	}
	return 0
}

// Add adds another contribution a number of times.
func (c *Counts) Add(other Counts, times int) {
	c.RunningPods += times * other.RunningPods
	c.StaticPods += times * other.StaticPods
	c.ActivePods += times * other.ActivePods
	c.ActiveStaticPods += times * other.ActiveStaticPods
	c.CreatedContainers += times * other.CreatedContainers
	c.RunningContainers += times * other.RunningContainers
	c.UnknownContainers += times * other.UnknownContainers
	c.ExitedContainers += times * other.ExitedContainers
	c.EphemeralContainers += times * other.EphemeralContainers
	c.ResizesDeferred += times * other.ResizesDeferred
	c.ResizesInfeasible += times * other.ResizesInfeasible
	c.ResizesInProgress += times * other.ResizesInProgress
	for config := range other.Working {
		for stage, pods := range other.Working[config] {
			c.Working[config][stage] += times * pods
		}
	}
	for plugin := range volume.PluginCount {
		c.VolumesDesired[plugin] += times * other.VolumesDesired[plugin]
		c.VolumesMounted[plugin] += times * other.VolumesMounted[plugin]
	}
}

// countResizes counts the resizes that the pod's status tells of.
func (p *Pod) countResizes(c *Counts) {
	switch r := &p.Resize; {
	case IsTerminal(p.Status.Phase):
		return
	case r.Pending == nil:
	case r.Pending.Reason == v1.PodReasonInfeasible:
		c.ResizesInfeasible = 1
	default:
		c.ResizesDeferred = 1
	}
	if p.Resize.InProgress != nil {
		c.ResizesInProgress = 1
	}
}

// countVolumes counts the volumes of the pod. Those of a pod that has terminated are not desired
// any more, and those that it has are mounted until they are unmounted together.
func (p *Pod) countVolumes(c *Counts) {
	if p.Spec == nil {
		return
	}
	spec := &p.Spec.Spec
	for i := range spec.Volumes {
		if p.Stage != Terminated {
			c.VolumesDesired[p.Storage.Volumes.PluginOf(&spec.Volumes[i])]++
		}
	}
	if !p.Storage.Unmounted {
		p.Storage.Volumes.ReadyVolumes(spec, func(v *v1.Volume) {
			c.VolumesMounted[p.Storage.Volumes.PluginOf(v)]++
		})
	}
}

// VolumeOperation is the kubelet's name of an operation on a volume.
type VolumeOperation string

// The operations on volumes that are counted.
const (
	VolumeMount   VolumeOperation = "volume_mount"
	VolumeUnmount VolumeOperation = "volume_unmount"
)

func (p *Pod) countVolumeOperation(v *v1.Volume, operation VolumeOperation, took time.Duration,
	failed bool, env *Env) {
	plugin := p.Storage.Volumes.PluginOf(v)
	if env.CountVolumeOperation != nil && plugin != volume.CSIPlugin { // package csi counts its own
		env.CountVolumeOperation(plugin, operation, took, failed)
	}
}

// Counts returns the current contribution of the pod.
func (p *Pod) Counts() Counts {
	var c Counts
	c.Working[p.config()][p.stageIndex()] = 1
	p.countVolumes(&c)
	if p.hasReadySandbox() {
		c.RunningPods = 1
	}
	for i := range p.Containers {
		switch p.Containers[i].State {
		case Created:
			c.CreatedContainers++
		case Running:
			c.RunningContainers++
		case Exited:
			c.ExitedContainers++
		default:
			c.UnknownContainers++
		}
	}
	if p.Spec == nil {
		return c
	}
	p.countResizes(&c)
	if !p.NoLongerDesired {
		c.EphemeralContainers = len(p.Spec.Spec.EphemeralContainers)
	}
	switch static, active := p.IsStatic(), p.usesResources(); {
	case static && active:
		c.ActiveStaticPods = 1
	case active:
		c.ActivePods = 1
	}
	if p.IsStatic() && !p.NoLongerDesired {
		c.StaticPods = 1
	}
	return c
}

// IsBusy reports whether an operation of the pod is in flight, other than a probe or a write of its
// record, or the pod waits for an image without a known problem. A terminating pod is busy until it
// has terminated.
func (p *Pod) IsBusy() bool {
	if p.Op != 0 || !p.StaleSince.IsZero() || p.Stage == Terminating {
		return true
	}
	for i := range p.Containers {
		if p.Containers[i].Op != 0 || p.Containers[i].InspectOp != 0 {
			return true
		}
	}
	for i := range p.Sandboxes {
		if p.Sandboxes[i].Op != 0 || p.Sandboxes[i].InspectOp != 0 {
			return true
		}
	}
	for i := range p.PendingImages {
		if p.PendingImages[i].Problem == nil {
			return true
		}
	}
	return false
}

// IsPulling reports whether an image that the pod waits for is being pulled.
func (p *Pod) IsPulling(images *image.Store) bool {
	for i := range p.PendingImages {
		if since, _ := images.PullInFlight(p.PendingImages[i].Image); !since.IsZero() {
			return true
		}
	}
	return false
}

// RolesAwaitingImage returns the roles of the containers that wait for an image.
func (p *Pod) RolesAwaitingImage(image string) []Role {
	var roles []Role
	for i := range p.PendingImages {
		if p.PendingImages[i].Image == image && p.Spec != nil {
			roles = append(roles, p.roleOf(p.PendingImages[i].Container))
		}
	}
	return roles
}

// OperationRole returns the role of the container that an operation creates or starts.
func (p *Pod) OperationRole(r op.Record) Role {
	if p.Spec == nil {
		return App
	}
	return p.roleOf(p.operationContainer(r))
}

// ProbedContainer returns the name of the container that an operation probes and the kind of the
// probe; false if the operation is no probe or the container was removed.
func (p *Pod) ProbedContainer(r op.Record) (container string, kind probe.Kind, ok bool) {
	id, name := splitSubject(r.Subject)
	c := p.containerByID(id)
	switch kind = probe.Kind(name); kind {
	case probe.Startup, probe.Liveness, probe.Readiness:
		if c != nil {
			return c.Name, kind, true
		}
	}
	return "", "", false
}

// InitDuration returns the total run time of the init containers that the runtime still has.
func (p *Pod) InitDuration() time.Duration {
	var sum time.Duration
	for i := range p.Containers {
		c := &p.Containers[i]
		if p.Spec != nil && c.HasKnownExit() && p.roleOf(c.Name) == Init && !c.StartedAt.IsZero() {
			sum += max(c.FinishedAt.Sub(c.StartedAt), 0)
		}
	}
	return sum
}

// IsStateful reports whether a pod has a volume that outlives it or that other components provide.
// The start latency of such a pod says little about the node.
func IsStateful(spec *v1.Pod) bool {
	for i := range spec.Spec.Volumes {
		v := &spec.Spec.Volumes[i]
		if v.Secret == nil && v.ConfigMap == nil && v.DownwardAPI == nil && v.EmptyDir == nil &&
			v.Projected == nil {
			return true
		}
	}
	return false
}

// AreAllContainersStarted reports whether all app containers of a status are running.
func AreAllContainersStarted(status *v1.PodStatus) bool {
	for i := range status.ContainerStatuses {
		running := status.ContainerStatuses[i].State.Running
		if running == nil || running.StartedAt.IsZero() {
			return false
		}
	}
	return len(status.ContainerStatuses) > 0
}

// CountExits calls count for each run whose exit has become known since the last call. An exit that
// the reported status has was counted by an earlier agent, or by a kubelet, and so was that of a
// run which another one has followed.
func (p *Pod) CountExits(reported *v1.PodStatus, count func(Role, *Container)) {
	var before map[string]bool
	for i := range p.Containers {
		c := &p.Containers[i]
		if c.ExitCounted || !c.HasKnownExit() {
			continue
		}
		c.ExitCounted = true
		if before == nil {
			before = reportedExits(reported)
		}
		if p.NewestStartedRun(c.Name) == c && !before[c.ID] {
			count(p.roleOf(c.Name), c)
		}
	}
}

// reportedExits returns the IDs of the containers whose exit a status has.
func reportedExits(status *v1.PodStatus) map[string]bool {
	ids := map[string]bool{}
	if status == nil {
		return ids
	}
	for _, list := range [][]v1.ContainerStatus{status.InitContainerStatuses,
		status.ContainerStatuses, status.EphemeralContainerStatuses} {
		for i := range list {
			for _, state := range []v1.ContainerState{list[i].State, list[i].LastTerminationState} {
				if state.Terminated != nil {
					ids[RunID(state.Terminated.ContainerID)] = true
				}
			}
		}
	}
	return ids
}

// HasProblemBeforeCreation reports whether a container cannot be created for its images, its
// configuration, or a file or directory that it needs.
func (p *Pod) HasProblemBeforeCreation() bool {
	for i := range p.PendingImages {
		if p.PendingImages[i].Problem != nil {
			return true
		}
	}
	return slices.ContainsFunc(p.Problems, func(pr Problem) bool {
		return pr.Container != "" && (pr.Call == callConfigure ||
			creationSteps[pr.Call] > 0 && creationSteps[pr.Call] < creationSteps["CreateContainer"])
	})
}

// HasUserNamespace reports whether the pod has a user namespace of its own.
func (p *Pod) HasUserNamespace() bool {
	return p.Spec != nil && p.Spec.Spec.HostUsers != nil && !*p.Spec.Spec.HostUsers
}

// ImageVolumes returns for the container that an operation creates how many image volumes it has,
// and how often it mounts them.
func (p *Pod) ImageVolumes(r op.Record) (volumes, mounts int) {
	if p.Spec == nil {
		return 0, 0
	}
	container := p.indexed(p.operationContainer(r)).container
	if container == nil {
		return 0, 0
	}
	images := map[string]bool{} // by name of the volume: whether the container mounts it
	for i := range p.Spec.Spec.Volumes {
		if v := &p.Spec.Spec.Volumes[i]; v.Image != nil {
			images[v.Name] = false
		}
	}
	for i := range container.VolumeMounts {
		name := container.VolumeMounts[i].Name
		mounted, isImage := images[name]
		if !isImage {
			continue
		}
		if !mounted {
			volumes++
		}
		images[name] = true
		mounts++
	}
	return volumes, mounts
}
