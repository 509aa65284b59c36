package core

import (
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/csi"
	"seedlet.dev/core/image"
	"seedlet.dev/core/metrics"
	"seedlet.dev/core/op"
	"seedlet.dev/core/pod"
	"seedlet.dev/core/probe"
	"seedlet.dev/core/pullrecord"
	"seedlet.dev/core/selinux"
	"seedlet.dev/core/statuswriter"
	"seedlet.dev/core/volume"
	"seedlet.dev/world"
)

// Recording of what the metrics count. Each event, operation and plan of a pod records its own
// share, so nothing here walks over all pods.

// Metrics is what this run of the agent has counted.
type Metrics struct {
	Pods  map[string]*PodMetrics `json:"pods,omitempty"` // by UID
	Total pod.Counts             `json:"total"`          // the sum over Pods

	PodsStarted uint64 `json:"podsStarted,omitempty"` // attempts to run a sandbox
	PodsFailed  uint64 `json:"podsFailed,omitempty"`  // those that failed
	// Attempts to run a sandbox with a user namespace, and those after which the sandbox or a
	// container failed.
	UserNamespacesStarted uint64 `json:"userNamespacesStarted,omitempty"`
	UserNamespacesFailed  uint64 `json:"userNamespacesFailed,omitempty"`
	// Image volumes of containers that were created, and their mounts by outcome.
	ImageVolumesRequested uint64 `json:"imageVolumesRequested,omitempty"`
	ImageVolumesMounted   uint64 `json:"imageVolumesMounted,omitempty"`
	ImageVolumesFailed    uint64 `json:"imageVolumesFailed,omitempty"`

	PodsRestarted metrics.Counters `json:"podsRestarted,omitempty"` // by "true" for static pods
	Orphans       uint64           `json:"orphans,omitempty"`       // pods that only the runtime had
	// Attempts to start a container by type, and those that failed by type and reason.
	ContainersStarted metrics.Counters `json:"containersStarted,omitempty"`
	ContainersFailed  metrics.Counters `json:"containersFailed,omitempty"`
	Rejected          metrics.Counters `json:"rejected,omitempty"`      // pods, by reason
	Preempted         metrics.Counters `json:"preempted,omitempty"`     // pods, by resource
	Evicted           metrics.Counters `json:"evicted,omitempty"`       // pods, by eviction signal
	HTTPFallbacks     uint64           `json:"httpFallbacks,omitempty"` // hooks for HTTPS sent by HTTP

	SleepsShortened uint64 `json:"sleepsShortened,omitempty"` // of hooks
	// Runs of containers that have ended, by type, exit code and reason.
	ContainersTerminated metrics.Counters `json:"containersTerminated,omitempty"`
	ImageRequests        metrics.Counters `json:"imageRequests,omitempty"` // by policy and decision
	ImageAccess          metrics.Counters `json:"imageAccess,omitempty"`   // by its kind
	// VolumeLabels are events about SELinux labels of volumes, by selinux.Event and its labels.
	VolumeLabels metrics.Counters `json:"volumeLabels,omitempty"`

	OverBudget metrics.Counters `json:"overBudget,omitempty"` // refusals, by name of the bound

	// Resizes of containers that were asked for by resource, requirement and operation; those that
	// can never be allocated by reason; those that were deferred and then allocated by what had them
	// looked at again. ResizeTrigger is that for the next look; empty for the regular one.
	ResizesRequested  metrics.Counters   `json:"resizesRequested,omitempty"`
	ResizesInfeasible metrics.Counters   `json:"resizesInfeasible,omitempty"`
	ResizesAccepted   metrics.Counters   `json:"resizesAccepted,omitempty"`
	ResizeTrigger     string             `json:"resizeTrigger,omitempty"`
	ResizeDuration    metrics.Histograms `json:"resizeDuration,omitempty"` // by success

	ContainersPerPod metrics.Histogram `json:"containersPerPod"` // a second is a container

	PodStart       metrics.Histogram  `json:"podStart"`      // from FirstSeen to Running
	PodStartTotal  metrics.Histogram  `json:"podStartTotal"` // from creation until all containers run
	PodStartSLI    metrics.Histogram  `json:"podStartSLI"`   // without image pulls and init containers
	StatusSync     metrics.Histogram  `json:"statusSync"`    // from a change until it was written
	WorkerStart    metrics.Histogram  `json:"workerStart"`   // from FirstSeen to the first operation
	WorkerDuration metrics.Histograms `json:"workerDuration,omitempty"`
	ImagePulls     metrics.Histograms `json:"imagePulls,omitempty"` // by class of image size
	// VolumeOperations are by plugin, operation and status.
	VolumeOperations metrics.Histograms `json:"volumeOperations,omitempty"`
	// VolumesMeasured are the measurements of volumes, by what was asked.
	VolumesMeasured metrics.Histograms `json:"volumesMeasured,omitempty"`
	// FirstNetworkPodStart is the first duration in PodStartSLI of a pod with a network of its own;
	// nil before that.
	FirstNetworkPodStart *time.Duration `json:"firstNetworkPodStart,omitempty"`

	// EvictionStatsAge is by signal.
	EvictionStatsAge metrics.Histograms `json:"evictionStatsAge,omitempty"`

	Relist         metrics.Histogram `json:"relist"`
	RelistInterval metrics.Histogram `json:"relistInterval"`
	RelistIssued   time.Time         `json:"relistIssued"` // of the relist before
}

// PodMetrics is what is counted for one pod.
type PodMetrics struct {
	Counts    pod.Counts  `json:"counts"`
	FirstSeen time.Time   `json:"firstSeen"` // when this agent first saw the pod
	Phase     v1.PodPhase `json:"phase,omitempty"`

	// WorkSince is since when operations for the pod are in flight without a break, zero if none are;
	// WorkKind is their kind, one of the constants below.
	WorkSince   time.Time `json:"workSince"`
	WorkKind    string    `json:"workKind,omitempty"`
	HasWorked   bool      `json:"hasWorked,omitempty"`   // there were operations before
	SpecChanged bool      `json:"specChanged,omitempty"` // the desired state changed since the last
	// ContainersCounted holds once the pod is in Metrics.ContainersPerPod.
	ContainersCounted bool `json:"containersCounted,omitempty"`
	// UserNamespaceStarting holds while the work goes on in which a sandbox with a user namespace was
	// created, until something of it fails.
	UserNamespaceStarting bool `json:"userNamespaceStarting,omitempty"`

	// Starting holds for a pod of the API server until the server shows that it has started. PullTime
	// is the part of its start that was spent pulling images, PullStarted is when the current pull
	// started.
	Starting    bool          `json:"starting,omitempty"`
	PullTime    time.Duration `json:"pullTime,omitempty"`
	PullStarted time.Time     `json:"pullStarted"`

	Probes map[string]*ProbeMetrics `json:"probes,omitempty"` // by container and kind of probe
}

// ProbeMetrics counts the results of one probe of the containers of one name.
type ProbeMetrics struct {
	Successful uint64            `json:"successful,omitempty"`
	Failed     uint64            `json:"failed,omitempty"`
	Unknown    uint64            `json:"unknown,omitempty"`
	Duration   metrics.Histogram `json:"duration"` // of probes that did not fail
}

// The kubelet's types of pod worker operations.
const (
	workCreate     = "create"
	workUpdate     = "update"
	workSync       = "sync"
	workKill       = "kill"
	workTerminated = "terminated"
)

// forPod returns the counts of a pod.
func (t *Metrics) forPod(uid string) *PodMetrics {
	if t.Pods == nil {
		t.Pods = map[string]*PodMetrics{}
	}
	if t.Pods[uid] == nil {
		t.Pods[uid] = &PodMetrics{}
	}
	return t.Pods[uid]
}

// recordPodAdded starts the counts of a pod.
func (a *Agent) recordPodAdded(p *pod.Pod) {
	t := a.state.Metrics.forPod(p.UID)
	*t = PodMetrics{FirstSeen: a.state.Now}
	if p.Spec == nil {
		a.state.Metrics.Orphans++
		return
	}
	t.Starting = !p.IsStatic() && p.Spec.Status.StartTime == nil &&
		!statuswriter.IsTerminal(&p.Spec.Status)
}

// recordPodRemoved drops the counts of a pod.
func (a *Agent) recordPodRemoved(uid string) {
	t := a.state.Metrics.forPod(uid)
	a.state.Metrics.Total.Add(t.Counts, -1)
	delete(a.state.Metrics.Pods, uid)
}

// recordSpecChange notes that the desired state of a pod has changed.
func (a *Agent) recordSpecChange(uid string) { a.state.Metrics.forPod(uid).SpecChanged = true }

// recordPodPlan records what a plan of a pod has changed.
func (a *Agent) recordPodPlan(p *pod.Pod) {
	t, counted, now := &a.state.Metrics, a.state.Metrics.forPod(p.UID), a.state.Now
	counts := p.Counts()
	t.Total.Add(counted.Counts, -1)
	t.Total.Add(counts, 1)
	counted.Counts = counts
	if p.Spec != nil && !p.WaitingForName && !p.OverBudget && !counted.ContainersCounted {
		counted.ContainersCounted = true
		t.ContainersPerPod.Observe(containersPerPodBounds,
			time.Duration(len(p.Spec.Spec.Containers))*time.Second)
	}
	if p.HasProblemBeforeCreation() {
		t.recordUserNamespaceFailure(p.UID)
	}
	a.recordPodWork(p, counted)
	if p.Status.Reportable {
		a.recordTerminations(p)
		if counted.Phase == v1.PodPending && p.Status.Phase == v1.PodRunning {
			t.PodStart.Observe(podStartBounds, now.Sub(counted.FirstSeen))
		}
		counted.Phase = p.Status.Phase
	}
	switch pulling := counted.Starting && p.IsPulling(&a.state.Images); {
	case pulling && counted.PullStarted.IsZero():
		counted.PullStarted = now
	case !pulling && !counted.PullStarted.IsZero():
		counted.PullTime, counted.PullStarted = counted.PullTime+now.Sub(counted.PullStarted), time.Time{}
	}
}

// recordPodWork records for how long a pod had operations in flight without a break. This duration
// corresponds to one sync of the kubelet's pod worker, which takes as long as the calls that it
// waits for.
func (a *Agent) recordPodWork(p *pod.Pod, counted *PodMetrics) {
	t, now, busy := &a.state.Metrics, a.state.Now, p.IsBusy()
	kind := workSync
	switch {
	case p.Stage == pod.Terminating:
		kind = workKill
	case p.Stage == pod.Terminated:
		kind = workTerminated
	case counted.WorkKind == workCreate, counted.WorkKind == workUpdate:
		kind = counted.WorkKind
	case !counted.HasWorked && len(p.Sandboxes) == 0:
		kind = workCreate
	case counted.SpecChanged:
		kind = workUpdate
	}
	if !counted.WorkSince.IsZero() && (!busy || kind != counted.WorkKind) {
		t.WorkerDuration.Observe(counted.WorkKind, defaultBounds, now.Sub(counted.WorkSince))
		counted.WorkSince, counted.WorkKind = time.Time{}, ""
		counted.UserNamespaceStarting = false
	}
	if !busy || !counted.WorkSince.IsZero() {
		return
	}
	if kind == workCreate {
		t.WorkerStart.Observe(defaultBounds, now.Sub(counted.FirstSeen))
	}
	counted.WorkSince, counted.WorkKind = now, kind
	counted.HasWorked, counted.SpecChanged = true, false
}

// recordPodStart records how long a pod took to start, once the API server has the status that
// shows it: only then can users of the pod know.
func (a *Agent) recordPodStart(object *v1.Pod, now time.Time) {
	t, counted := &a.state.Metrics, a.state.Metrics.Pods[string(object.UID)]
	switch {
	case counted == nil || !counted.Starting:
		return
	case statuswriter.IsTerminal(&object.Status):
		counted.Starting = false
		return
	case object.Status.Phase != v1.PodRunning || !pod.AreAllContainersStarted(&object.Status):
		return
	}
	counted.Starting = false
	took := a.state.Node.Wall.Date(now).Sub(object.CreationTimestamp.Time)
	t.PodStartTotal.Observe(podStartBounds, took)
	if p := a.state.Pods[string(object.UID)]; p != nil && !pod.IsStateful(object) {
		took -= counted.PullTime + p.InitDuration()
		t.PodStartSLI.Observe(podStartBounds, took)
		if !object.Spec.HostNetwork && t.FirstNetworkPodStart == nil {
			t.FirstNetworkPodStart = &took
		}
	}
}

// recordTerminations records the runs of a pod's containers whose end has become known.
func (a *Agent) recordTerminations(p *pod.Pod) {
	var reported *v1.PodStatus
	if e := a.state.StatusWriter.Entries[p.UID]; e != nil {
		reported = &e.Stored.Status
	}
	p.CountExits(reported, func(role pod.Role, c *pod.Container) {
		a.state.Metrics.ContainersTerminated.Increment(containerTypes[role] + " " +
			exitCodeLabel(c.ExitCode) + " " + exitReasonLabel(c.Reason))
	})
}

// exitCodeMax is the largest exit code of a process. A runtime may report any number of 32 bits.
const exitCodeMax = 255

// exitCodeLabel returns the label of an exit code. No number outside the range of exit codes is a
// label of its own, so that there is an end to them.
func exitCodeLabel(code int32) string {
	if code < 0 || code > exitCodeMax {
		return metrics.Other
	}
	return strconv.Itoa(int(code))
}

// exitReasons are the reasons of exits that containerd and CRI-O report; a runtime may report none.
var exitReasons = []string{"", "Completed", "ContainerCannotRun", "ContainerStatusUnknown", "Error",
	"OOMKilled", "StartError", "Unknown", "seccomp killed"}

func exitReasonLabel(reason string) string {
	if slices.Contains(exitReasons, reason) {
		return reason
	}
	return metrics.Other
}

// recordImageRequest records a container's request for an image. Any other policy than the two is
// treated as IfNotPresent.
func (t *Metrics) recordImageRequest(policy v1.PullPolicy, result *image.Result) {
	label := "ifnotpresent"
	switch policy {
	case v1.PullAlways:
		label = "always"
	case v1.PullNever:
		label = "never"
	}
	t.ImageRequests.Increment(label + " " + string(result.Decision))
	if result.Access != pullrecord.Unknown {
		t.ImageAccess.Increment(string(result.Access))
	}
}

// recordVolumeOperation records an operation on a volume that no CSI driver serves.
func (t *Metrics) recordVolumeOperation(plugin volume.Plugin, operation pod.VolumeOperation,
	took time.Duration, failed bool) {
	t.recordOperation(volume.PluginLabels[plugin], string(operation), took, failed, false)
}

// recordCSIOperation records an operation on a volume of a CSI driver.
func (a *Agent) recordCSIOperation(o csi.Counted) {
	a.state.Metrics.recordOperation(volume.PluginLabels[volume.CSIPlugin]+":"+a.driverLabel(o.Driver),
		string(o.Operation), o.Took, o.Failed, o.Migrated)
}

// recordLabel records an event about the SELinux label of a volume.
func (a *Agent) recordLabel(o selinux.Counted) {
	labels := o.AccessMode
	if o.Event == selinux.Admitted || o.Event == selinux.OfVolume {
		plugin := o.Plugin
		if plugin == "" {
			plugin = volume.PluginLabels[volume.CSIPlugin] + "/" + a.driverLabel(o.Driver)
		}
		labels = plugin + " " + labels
	}
	a.state.Metrics.VolumeLabels.Increment(string(o.Event) + " " + labels)
}

// driverLabel returns the label of a CSI driver. The author of a pod may write any name, and every
// volume of a driver that the node does not have fails: such names have no label of their own.
func (a *Agent) driverLabel(name string) string {
	if !a.state.CSI.HasDriver(name) {
		return metrics.Other
	}
	return name
}

func (t *Metrics) recordOperation(plugin, operation string, took time.Duration, failed,
	isMigrated bool) {
	status := "success"
	if failed {
		status = "fail-unknown"
	}
	label := plugin + " " + operation + " " + status + " " + strconv.FormatBool(isMigrated)
	t.VolumeOperations.Observe(label, volumeOperationBounds, took)
}

// recordVolumeMeasured records how long the measurement of a volume took, by what was asked: "du"
// for a tree of files, "statfs" for a file system, "block" for a device, or the name of a CSI
// driver.
func (t *Metrics) recordVolumeMeasured(source string, r op.Record, now time.Time) {
	t.VolumesMeasured.Observe(source, defaultBounds, now.Sub(r.IssuedAt))
}

// recordStatusWrite records that a change of a pod's status was written.
func (t *Metrics) recordStatusWrite(changed, now time.Time) {
	if !changed.IsZero() {
		t.StatusSync.Observe(statusSyncBounds, now.Sub(changed).Truncate(time.Millisecond))
	}
}

// recordCompletion records the completion of an operation of a pod, before the pod handles it. An
// operation that was canceled before it was carried out does not count.
func (a *Agent) recordCompletion(r op.Record, ev world.Event) {
	if r.Owner.Component != pod.Component || ev.Err.Has(world.KindCanceled) {
		return
	}
	p, t := a.state.Pods[r.Owner.Name], &a.state.Metrics
	if p == nil {
		return
	}
	switch r.Call {
	case "MeasureTree":
		if pod.MeasuresVolume(r.Subject) {
			t.recordVolumeMeasured("du", r, ev.Time)
		}
	case "RunPodSandbox":
		t.PodsStarted++
		if p.HasUserNamespace() {
			t.UserNamespacesStarted++
			t.forPod(p.UID).UserNamespaceStarting = true
		}
		if ev.Err != nil {
			t.PodsFailed++
			t.recordUserNamespaceFailure(p.UID)
		}
	case "CreateContainer":
		volumes, mounts := p.ImageVolumes(r)
		t.recordImageVolumes(volumes, mounts, ev.Err)
		if ev.Err != nil {
			t.recordUserNamespaceFailure(p.UID)
			t.recordContainerFailure(p.OperationRole(r), "CreateContainerError")
		}
	case "StartContainer":
		if ev.Err != nil {
			t.recordUserNamespaceFailure(p.UID)
			t.recordContainerFailure(p.OperationRole(r), "RunContainerError")
			return
		}
		t.ContainersStarted.Increment(containerTypes[p.OperationRole(r)])
	case "ExecSync", "HTTPGet", "TCPConnect", "GRPCCheck":
		if container, kind, ok := p.ProbedContainer(r); ok {
			t.forPod(p.UID).recordProbe(container, kind, r, ev)
		}
	}
}

// containerTypes are the kubelet's names. A sidecar is an init container there.
var containerTypes = map[pod.Role]string{
	pod.App: "container", pod.Init: "init_container", pod.Sidecar: "init_container",
	pod.Ephemeral: "ephemeral_container",
}

// recordContainerFailure records a container that could not be started, which is an attempt as
// well.
func (t *Metrics) recordContainerFailure(role pod.Role, reason string) {
	t.ContainersStarted.Increment(containerTypes[role])
	t.ContainersFailed.Increment(containerTypes[role] + " " + reason)
}

// recordUserNamespaceFailure records that the start of a pod with a user namespace failed, once for
// each sandbox: most namespaces that cannot be used fail when a container is created.
func (t *Metrics) recordUserNamespaceFailure(uid string) {
	if counted := t.forPod(uid); counted.UserNamespaceStarting {
		t.UserNamespacesFailed++
		counted.UserNamespaceStarting = false
	}
}

// errImageVolumeMount is in the runtime's error about an image volume that cannot be mounted
// (k8s.io/cri-api/pkg/errors).
const errImageVolumeMount = "ImageVolumeMountFailed"

// recordImageVolumes records the image volumes of a container that was created, or could not be. A
// container that failed for another reason says nothing about its mounts.
func (t *Metrics) recordImageVolumes(volumes, mounts int, err *world.Error) {
	t.ImageVolumesRequested += uint64(volumes)
	switch {
	case err == nil:
		t.ImageVolumesMounted += uint64(mounts)
	case strings.Contains(err.Error(), errImageVolumeMount):
		t.ImageVolumesFailed += uint64(mounts)
	}
}

// probeKey returns the key of a probe in PodMetrics.Probes.
func probeKey(container string, kind probe.Kind) string { return container + " " + string(kind) }

// recordProbe records the result of a probe.
func (t *PodMetrics) recordProbe(container string, kind probe.Kind, r op.Record, ev world.Event) {
	key := probeKey(container, kind)
	if t.Probes == nil {
		t.Probes = map[string]*ProbeMetrics{}
	}
	if t.Probes[key] == nil {
		t.Probes[key] = &ProbeMetrics{}
	}
	counted := t.Probes[key]
	switch outcome, _ := probe.Interpret(r, ev); outcome {
	case probe.Success:
		counted.Successful++
	case probe.Failure:
		counted.Failed++
		return
	default:
		counted.Unknown++
	}
	counted.Duration.Observe(defaultBounds, ev.Time.Sub(r.IssuedAt))
}

// recordPull records the end of a pull, after the image has handled it.
func (a *Agent) recordPull(r op.Record, ev world.Event) {
	img, t := a.state.Images.Images[r.Owner.Name], &a.state.Metrics
	switch {
	case r.Call != "PullImage" || img == nil || ev.Err.Has(world.KindCanceled):
	case ev.Err == nil && img.ID != "":
		size := int64(0)
		if img.InspectedID == img.ID {
			size = img.Bytes
		}
		t.ImagePulls.Observe(imageSizeClass(size), imagePullBounds, ev.Time.Sub(r.IssuedAt))
	case img.Credential == 0: // else a pull with other credentials follows
		for _, w := range img.Waiters {
			if p := a.state.Pods[w.UID]; p != nil {
				for _, role := range p.RolesAwaitingImage(img.Name) {
					t.recordContainerFailure(role, "ErrImagePull")
				}
			}
		}
	}
}

// recordRelist records a relist that has ended, successfully or not.
func (a *Agent) recordRelist(now time.Time) {
	t, issued := &a.state.Metrics, a.state.Relist.Issued
	t.Relist.Observe(defaultBounds, now.Sub(issued))
	if !t.RelistIssued.IsZero() {
		t.RelistInterval.Observe(defaultBounds, issued.Sub(t.RelistIssued))
	}
	t.RelistIssued = issued
}

// recordRejection records a pod that is not run.
func (a *Agent) recordRejection(reason string) {
	const resource = "OutOf"
	switch name, isResource := strings.CutPrefix(reason, resource); {
	case !isResource:
	case name == "cpu", name == "memory", name == "pods", name == "ephemeral-storage":
	default:
		reason = resource + "ExtendedResources" // keeps the list of reasons closed
	}
	a.state.Metrics.Rejected.Increment(reason)
}

// recordPodRestart records a pod that starts again with the UID of one that was just removed.
func (a *Agent) recordPodRestart(p *pod.Pod) {
	static := ""
	if p.IsStatic() {
		static = "true"
	}
	a.state.Metrics.PodsRestarted.Increment(static)
}
