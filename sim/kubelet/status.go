package kubelet

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	podresources "k8s.io/component-helpers/resource"

	"seedlet.dev/sim/runtime"
	"seedlet.dev/world"
)

// The statuses that the kubelet writes to the API server.

// runtimeName begins the IDs of containers.
const runtimeName = "containerd://"

// statusStep writes the status of a pod if it has changed. That of a static pod is written to its
// mirror.
func (k *Kubelet) statusStep(p *pod, s *state) *step {
	object := k.opts.Server.Object(world.ResourcePods, p.object.Namespace, p.object.Name).Pod
	if object == nil || p.endedBefore {
		return nil
	}
	status := k.status(p, s, object)
	text := encode(status)
	if text == p.writtenText {
		return nil
	}
	p.written, p.writtenText = status, text
	after := *object
	after.Status = *status
	patch, err := strategicpatch.CreateTwoWayMergePatch([]byte(encode(object)),
		[]byte(encode(&after)), &v1.Pod{})
	if err != nil {
		panic("kubelet: " + err.Error())
	}
	return &step{"status", world.PortAPI, &world.PatchObject{Resource: world.ResourcePods,
		Namespace: object.Namespace, Name: object.Name, Status: true, Patch: patch}}
}

// status returns the status of a pod.
func (k *Kubelet) status(p *pod, s *state, object *v1.Pod) *v1.PodStatus {
	spec := &p.object.Spec
	start := metav1.NewTime(p.startTime.Truncate(time.Second))
	status := &v1.PodStatus{QOSClass: qosClass(p.object), StartTime: &start,
		HostIP: k.opts.IP, HostIPs: []v1.HostIP{{IP: k.opts.IP}}}
	if s.sandbox != nil && s.sandbox.IP != "" {
		p.ip = s.sandbox.IP
	}
	if spec.HostNetwork {
		p.ip = k.opts.IP
	}
	if p.ip != "" {
		status.PodIP, status.PodIPs = p.ip, []v1.PodIP{{IP: p.ip}}
	}
	for i := range spec.InitContainers {
		status.InitContainerStatuses = append(status.InitContainerStatuses,
			k.containerStatus(p, s, &spec.InitContainers[i]))
	}
	for i := range spec.Containers {
		status.ContainerStatuses = append(status.ContainerStatuses,
			k.containerStatus(p, s, &spec.Containers[i]))
	}
	for i := range spec.EphemeralContainers {
		one := k.containerStatus(p, s, ephemeral(spec, i))
		one.Started, one.Ready = nil, false
		status.EphemeralContainerStatuses = append(status.EphemeralContainerStatuses, one)
	}
	slices.SortFunc(status.ContainerStatuses, func(a, b v1.ContainerStatus) int {
		return strings.Compare(a.Name, b.Name)
	})
	status.ObservedGeneration = p.object.Generation
	status.Phase = k.phase(p, s, status)
	status.AllocatedResources = podresources.PodRequests(p.object,
		podresources.PodResourcesOptions{})
	status.Resources = p.podLevelResources(status, object)
	k.setConditions(p, s, status, object)
	return status
}

// podLevelResources returns the resources of the pod as a whole: those of its cgroup, once the
// object says that the pod runs. A limit that the cgroup does not have stays as it was reported.
func (p *pod) podLevelResources(status *v1.PodStatus, object *v1.Pod) *v1.ResourceRequirements {
	limits := podresources.PodLimits(p.object, podresources.PodResourcesOptions{})
	if object.Status.Phase != v1.PodRunning {
		return &v1.ResourceRequirements{Requests: status.AllocatedResources, Limits: limits}
	}
	all := &v1.ResourceRequirements{Requests: v1.ResourceList{}, Limits: v1.ResourceList{}}
	for name, amount := range status.AllocatedResources { //ordered: into a map
		if name == v1.ResourceCPU || name == v1.ResourceMemory {
			all.Requests[name] = amount
		}
	}
	cgroup, old := podResources(p.object), v1.ResourceList{}
	if p.written != nil && p.written.Phase == v1.PodRunning && p.written.Resources != nil {
		old = p.written.Resources.Limits
	}
	keep := func(name v1.ResourceName, isLimited bool) {
		if was, exists := old[name]; isLimited {
			all.Limits[name] = limits[name]
		} else if exists {
			all.Limits[name] = was
		}
	}
	keep(v1.ResourceCPU, cgroup.CpuQuota > 0)
	keep(v1.ResourceMemory, cgroup.MemoryLimitInBytes > 0)
	return all
}

// containerStatus returns the status of a container by its newest run.
func (k *Kubelet) containerStatus(p *pod, s *state, c *v1.Container) v1.ContainerStatus {
	status := v1.ContainerStatus{Name: c.Name, Image: c.Image}
	for _, m := range c.VolumeMounts {
		mount := v1.VolumeMountStatus{Name: m.Name, MountPath: m.MountPath, ReadOnly: m.ReadOnly}
		if m.ReadOnly {
			mount.RecursiveReadOnly = new(v1.RecursiveReadOnlyDisabled)
		}
		status.VolumeMounts = append(status.VolumeMounts, mount)
	}
	now, before := s.newest(c.Name)
	status.Started = new(p.hasStarted(c, now))
	if now == nil {
		reason := "ContainerCreating"
		if len(p.object.Spec.InitContainers) > 0 {
			reason = "PodInitializing"
		}
		status.State.Waiting = &v1.ContainerStateWaiting{Reason: reason}
		return status
	}
	status.RestartCount, status.ContainerID = int32(now.Attempt), runtimeName+now.ID
	status.ImageID = k.images[c.Image]
	has := c.Resources
	if actuated, isResizable := p.actuated[c.Name]; isResizable {
		has = actuated
	}
	status.Resources, status.AllocatedResources = &v1.ResourceRequirements{
		Requests: has.Requests, Limits: has.Limits}, c.Resources.Requests
	status.Ready = p.isReady(c, now)
	if isInit(&p.object.Spec, c) && !isSidecar(c) {
		status.Ready = hasExited(now) && now.ExitCode == 0
	}
	switch {
	case isRunning(now):
		status.State.Running = &v1.ContainerStateRunning{StartedAt: metav1.NewTime(now.StartedAt)}
	case hasExited(now) && p.backsOff(c, now, k.opts.Agenda.Now()):
		before = now
		status.State.Waiting = &v1.ContainerStateWaiting{Reason: "CrashLoopBackOff",
			Message: fmt.Sprintf("back-off %s restarting failed container=%s pod=%s_%s(%s)",
				p.backoff[c.Name], c.Name, p.object.Name, p.object.Namespace, p.object.UID)}
	case hasExited(now):
		status.State.Terminated = k.terminated(p, now)
	default:
		status.State.Waiting = &v1.ContainerStateWaiting{}
	}
	if hasExited(before) {
		status.LastTerminationState.Terminated = k.terminated(p, before)
	}
	return status
}

// backsOff reports whether a run has ended and the next one waits.
func (p *pod) backsOff(c *v1.Container, run *runtime.Container, now time.Time) bool {
	return p.object.DeletionTimestamp == nil && restarts(&p.object.Spec, c, run.ExitCode) &&
		now.Before(p.waitsUntil(run))
}

func (k *Kubelet) terminated(p *pod, c *runtime.Container) *v1.ContainerStateTerminated {
	message, _ := k.opts.Disk.Read(p.messages[fmt.Sprintf("%s/%d", c.Name, c.Attempt)])
	return &v1.ContainerStateTerminated{ExitCode: c.ExitCode, Reason: c.Reason,
		Message: string(message), ContainerID: runtimeName + c.ID,
		StartedAt: metav1.NewTime(c.StartedAt), FinishedAt: metav1.NewTime(c.FinishedAt)}
}

// phase returns the phase of a pod. A terminal one is written when no container runs any more.
func (k *Kubelet) phase(p *pod, s *state, status *v1.PodStatus) v1.PodPhase {
	spec := &p.object.Spec
	waiting, failed := false, false
	for i := range spec.Containers {
		now, _ := s.newest(spec.Containers[i].Name)
		waiting = waiting || now == nil || now.StartedAt.IsZero()
		failed = failed || hasExited(now) && now.ExitCode != 0
	}
	anyRuns := slices.ContainsFunc(s.runs, func(c runtime.Container) bool { return isRunning(&c) })
	isDeleted := p.object.DeletionTimestamp != nil && !anyRuns && !p.isStatic
	switch {
	case (isDeleted || k.hasEnded(p, s)) && !anyRuns && !waiting && !failed:
		return v1.PodSucceeded
	case isDeleted || k.hasEnded(p, s) && !anyRuns:
		return v1.PodFailed
	case waiting:
		return v1.PodPending
	}
	return v1.PodRunning
}

// setConditions sets the conditions. One whose status stays keeps its time.
func (k *Kubelet) setConditions(p *pod, s *state, status *v1.PodStatus, object *v1.Pod) {
	earlier := [][]v1.PodCondition{object.Status.Conditions}
	if p.written != nil {
		earlier = append(earlier, p.written.Conditions)
	}
	set := func(t v1.PodConditionType, holds bool, reason, message string) {
		c := v1.PodCondition{Type: t, Status: v1.ConditionFalse, Reason: reason, Message: message,
			ObservedGeneration: p.object.Generation,
			LastTransitionTime: metav1.NewTime(k.opts.Agenda.Now())}
		if holds {
			c.Status = v1.ConditionTrue
		}
		for _, old := range earlier {
			stays := func(o v1.PodCondition) bool { return o.Type == t && o.Status == c.Status }
			if i := slices.IndexFunc(old, stays); i >= 0 {
				c.LastTransitionTime = old[i].LastTransitionTime
				break
			}
		}
		status.Conditions = append(status.Conditions, c)
	}
	set(v1.PodReadyToStartContainers, s.isReady(), "", "")
	incomplete := names(status.InitContainerStatuses, func(c *v1.ContainerStatus) bool {
		return c.Ready || specOf(&p.object.Spec, c.Name).RestartPolicy != nil && *c.Started
	})
	var started bool
	for i := range status.ContainerStatuses {
		c := &status.ContainerStatuses[i]
		started = started || *c.Started || c.State.Terminated != nil ||
			c.LastTerminationState.Terminated != nil
	}
	switch {
	case status.Phase == v1.PodSucceeded:
		set(v1.PodInitialized, true, "PodCompleted", "")
	case incomplete == "" || started:
		set(v1.PodInitialized, true, "", "")
	default:
		set(v1.PodInitialized, false, "ContainersNotInitialized",
			"containers with incomplete status: ["+incomplete+"]")
	}
	sidecars := slices.DeleteFunc(slices.Clone(status.InitContainerStatuses),
		func(c v1.ContainerStatus) bool { return !isSidecar(specOf(&p.object.Spec, c.Name)) })
	unready := names(append(sidecars, status.ContainerStatuses...),
		func(c *v1.ContainerStatus) bool { return c.Ready })
	reason, message := "", ""
	switch {
	case status.Phase == v1.PodSucceeded:
		reason = "PodCompleted"
	case status.Phase == v1.PodFailed:
		reason = "PodFailed"
	case unready != "":
		reason, message = "ContainersNotReady", "containers with unready status: ["+unready+"]"
	}
	set(v1.PodReady, reason == "", reason, message)
	set(v1.ContainersReady, reason == "", reason, message)
	set(v1.PodScheduled, true, "", "")
	if p.pending != "" {
		set(v1.PodResizePending, true, p.pending, p.pendingMessage)
	}
	if p.resizes {
		set(v1.PodResizeInProgress, true, "", "")
	}
}

func specOf(spec *v1.PodSpec, name string) *v1.Container {
	for _, list := range [][]v1.Container{spec.InitContainers, spec.Containers} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	for i := range spec.EphemeralContainers {
		if spec.EphemeralContainers[i].Name == name {
			return ephemeral(spec, i)
		}
	}
	return &v1.Container{}
}

// names returns the names of the containers for which something does not hold.
func names(list []v1.ContainerStatus, holds func(*v1.ContainerStatus) bool) string {
	var all []string
	for i := range list {
		if !holds(&list[i]) {
			all = append(all, list[i].Name)
		}
	}
	return strings.Join(all, " ")
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
