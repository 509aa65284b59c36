package podstatus

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"seedlet.dev/core/budget"
	"seedlet.dev/core/criconfig"
	"seedlet.dev/core/pod"
)

// setContainerStatuses sets the statuses of the containers: of init containers in the order of the
// spec, of others by name, as the kubelet does. A pod with more than budget.ContainersMax is not
// started. Of each kind, containers beyond the bound have no status, unless they have run or the
// pod is static.
func setContainerStatuses(status *v1.PodStatus, p *pod.Pod, node *pod.Node, runtimeName string) {
	spec := &p.Spec.Spec
	isReported := func(i int, name string) bool {
		return i < budget.ContainersMax || p.IsStatic() || p.NewestRun(name) != nil ||
			p.RemovedRun(name) != nil
	}
	inits, isInitialized := p.InitsDone(), p.IsInitialized()
	for i := range spec.InitContainers {
		container := &spec.InitContainers[i]
		if role := pod.InitRole(container); isReported(i, container.Name) {
			init := containerStatus(p, container, role, node, runtimeName)
			if role == pod.Init && (isInitialized || i < inits) {
				setCompleted(&init, p)
			}
			status.InitContainerStatuses = append(status.InitContainerStatuses, init)
		}
	}
	for i := range spec.Containers {
		if container := &spec.Containers[i]; isReported(i, container.Name) {
			status.ContainerStatuses = append(status.ContainerStatuses,
				containerStatus(p, container, pod.App, node, runtimeName))
		}
	}
	for i := range spec.EphemeralContainers {
		container := criconfig.EphemeralContainer(&spec.EphemeralContainers[i])
		if isReported(i, container.Name) {
			status.EphemeralContainerStatuses = append(status.EphemeralContainerStatuses,
				containerStatus(p, container, pod.Ephemeral, node, runtimeName))
		}
	}
	byName := func(x, y v1.ContainerStatus) int { return strings.Compare(x.Name, y.Name) }
	slices.SortFunc(status.ContainerStatuses, byName)
	slices.SortFunc(status.EphemeralContainerStatuses, byName)
}

// setCompleted sets the status of an init container that has completed in the current sandbox and
// of which no run is known, as the kubelet infers it from the containers after it.
func setCompleted(status *v1.ContainerStatus, p *pod.Pod) {
	if status.State.Terminated != nil || p.NewestRun(status.Name) != nil {
		return
	}
	status.Ready, status.State = true, v1.ContainerState{Terminated: &v1.ContainerStateTerminated{
		Reason: "Completed", Message: "Unable to get init container status from container runtime and " +
			"pod has been initialized, treat it as exited normally"}}
}

// containerStatus returns the status of a container of the spec, by its newest run that was
// started.
func containerStatus(p *pod.Pod, container *v1.Container, role pod.Role, node *pod.Node,
	runtimeName string) v1.ContainerStatus {
	name := container.Name
	status := v1.ContainerStatus{Name: name, Image: container.Image}
	c := p.NewestStartedRun(name)
	if c != nil || !p.WaitsForBudget() && !p.OverBudget {
		status.VolumeMounts = mountStatuses(container, node)
	}
	if removed := p.RemovedRun(name); removed.IsNewerThan(c) {
		c, status.RestartCount = nil, removed.Restarts
		if removed.Exited != nil && (p.LastRun(name) == removed.Exited ||
			role == pod.Init && removed.Exited.HasCompletedInit() && !p.IsSuperseded(removed.Exited)) {
			c = removed.Exited
		}
	}
	health := pod.Health{}
	if c != nil {
		health = p.ReportableHealth(c)
	}
	if status.Started = &health.Started; role == pod.Ephemeral {
		status.Started = nil // ephemeral containers have no probes
	}
	if c == nil {
		reported, _ := p.ReportedRestarts(name)
		status.RestartCount = max(status.RestartCount, reported)
		status.State.Waiting = waiting(p, name, role)
		return status
	}
	if c.Image != "" && c.Image != c.ImageID {
		status.Image = c.Image // the runtime's name of the image, unless it has none
	}
	status.Resources, status.AllocatedResources = resources(p, c, container),
		container.Resources.Requests
	status.User = c.User
	status.RestartCount = c.Restarts
	status.ContainerID = runtimeName + "://" + c.ID
	status.ImageID = c.ImageID
	status.Ready = health.Ready && role != pod.Ephemeral
	if role == pod.Init {
		status.Ready = c.HasCompletedInit() && !p.IsSuperseded(c)
	}
	last := p.PreviousRun(c)
	switch {
	case c.State == pod.Running && !health.Running && c.PostStart.Failure != "":
		status.State.Waiting = postStartFailure(c) // the container is being stopped for the failure
	case c.State == pod.Running && !health.Running:
		status.State.Waiting = waiting(p, name, role)
	case c.State == pod.Running:
		status.State.Running = &v1.ContainerStateRunning{StartedAt: metav1.NewTime(c.StartedAt)}
	case c.State == pod.Exited && waitsForRestart(p, c):
		status.State.Waiting, last = waitingForRestart(p, c), c
	case c.HasKnownExit() && p.Stage == pod.Syncing && p.IsSuperseded(c):
		status.State.Waiting, last = waiting(p, name, role), c
	case c.HasKnownExit():
		status.State.Terminated = terminated(c, runtimeName)
	default: // the exit is not known yet, or the runtime has lost track of the container
		status.State.Waiting = waiting(p, name, role)
	}
	if last != nil && last.HasKnownExit() {
		status.LastTerminationState.Terminated = terminated(last, runtimeName)
	}
	return status
}

// waitsForRestart reports whether a container that has exited is to be restarted and cannot be yet:
// it backs off, waits for an image, has a problem, or its postStart hook has failed.
func waitsForRestart(p *pod.Pod, c *pod.Container) bool {
	return p.Stage == pod.Syncing && c.HasKnownExit() && (p.ShouldRestart(c) || p.IsSuperseded(c)) &&
		(c.RestartBackoff() > 0 || p.PendingImage(c.Name) != nil || p.ProblemOf(c.Name) != nil ||
			c.PostStart.Failure != "")
}

// postStartFailure returns why a container does not run whose postStart hook has failed.
func postStartFailure(c *pod.Container) *v1.ContainerStateWaiting {
	return &v1.ContainerStateWaiting{Reason: "PostStartHookError", Message: c.PostStart.Failure}
}

// waitingForRestart returns why a container that has exited is not restarted yet.
func waitingForRestart(p *pod.Pod, c *pod.Container) *v1.ContainerStateWaiting {
	if problem := containerProblem(p, c.Name); problem != nil {
		return problem
	}
	if c.RestartBackoff() == 0 && c.PostStart.Failure != "" {
		return postStartFailure(c)
	}
	return &v1.ContainerStateWaiting{
		Reason: "CrashLoopBackOff",
		Message: fmt.Sprintf("back-off %s restarting failed container=%s pod=%s_%s(%s)",
			c.RestartBackoff(), c.Name, p.Name, p.Namespace, p.UID),
	}
}

// waiting returns why a container does not run yet: its own problem, its init containers, or the
// pod's problem.
func waiting(p *pod.Pod, name string, role pod.Role) *v1.ContainerStateWaiting {
	if problem := containerProblem(p, name); problem != nil {
		return problem
	}
	if role != pod.Ephemeral && len(p.Spec.Spec.InitContainers) > 0 {
		return &v1.ContainerStateWaiting{Reason: "PodInitializing", Message: p.BudgetProblem()}
	}
	state := &v1.ContainerStateWaiting{Reason: "ContainerCreating"}
	if problem := p.ProblemOf(""); p.RuntimeWaitReason != "" {
		state.Message = p.RuntimeWaitReason
	} else if p.BudgetProblem() != "" {
		state.Message = p.BudgetProblem()
	} else if problem != nil {
		state.Message = problem.Message
	} else if message := p.Storage.Volumes.Problem(); message != "" {
		state.Message = message
	} else if p.WaitingForName {
		state.Message = "another pod of the same namespace and name has not ended yet"
	}
	return state
}

// containerProblem returns the problem of a container, with its image or with itself; nil if there
// is none.
func containerProblem(p *pod.Pod, name string) *v1.ContainerStateWaiting {
	if n := p.PendingImage(name); n != nil && n.Problem != nil {
		return &v1.ContainerStateWaiting{Reason: n.Problem.Reason, Message: n.Problem.Message}
	}
	if problem := p.ProblemOf(name); problem != nil {
		return &v1.ContainerStateWaiting{Reason: problem.Reason, Message: problem.Message}
	}
	return nil
}

// terminated returns the exit of a run.
func terminated(c *pod.Container, runtimeName string) *v1.ContainerStateTerminated {
	return &v1.ContainerStateTerminated{
		ExitCode: c.ExitCode, Reason: c.Reason, Message: c.ExitMessage(),
		StartedAt:   metav1.NewTime(c.StartedAt),
		FinishedAt:  metav1.NewTime(c.FinishedAt),
		ContainerID: runtimeName + "://" + c.ID,
	}
}

// mountStatuses returns the statuses of a container's volume mounts.
func mountStatuses(container *v1.Container, node *pod.Node) []v1.VolumeMountStatus {
	var statuses []v1.VolumeMountStatus
	for i := range container.VolumeMounts {
		m := &container.VolumeMounts[i]
		status := v1.VolumeMountStatus{Name: m.Name, MountPath: m.MountPath, ReadOnly: m.ReadOnly}
		if m.ReadOnly {
			mode := v1.RecursiveReadOnlyDisabled
			recursive, err := criconfig.RecursiveReadOnly(m, &node.Node)
			if err == nil && recursive {
				mode = v1.RecursiveReadOnlyEnabled
			}
			status.RecursiveReadOnly = &mode
		}
		statuses = append(statuses, status)
	}
	return statuses
}

// keepRemovedRuns gives each container of which the runtime has no run any more the terminated
// state that is stored at the API server.
func keepRemovedRuns(status, stored *v1.PodStatus) {
	keepRemoved(status.InitContainerStatuses, stored.InitContainerStatuses)
	keepRemoved(status.ContainerStatuses, stored.ContainerStatuses)
	keepRemoved(status.EphemeralContainerStatuses, stored.EphemeralContainerStatuses)
}

func keepRemoved(statuses, stored []v1.ContainerStatus) {
	byName := map[string]*v1.ContainerStatus{}
	for i := range stored {
		byName[stored[i].Name] = &stored[i]
	}
	for i := range statuses {
		earlier := byName[statuses[i].Name]
		if earlier != nil && earlier.State.Terminated != nil && statuses[i].ContainerID == "" {
			statuses[i] = *earlier
		}
	}
}
