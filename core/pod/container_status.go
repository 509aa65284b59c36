package pod

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func (p *Pod) initStatus(want *v1.Container, runtime string) v1.ContainerStatus {
	return p.containerStatus(want, initRole(want), runtime)
}

func (p *Pod) containerStatus(want *v1.Container, role Role, runtime string) v1.ContainerStatus {
	status := v1.ContainerStatus{Name: want.Name, Image: want.Image}
	c := p.lastRun(want.Name)
	if past := p.past(want.Name); past.newer(c) {
		c, status.RestartCount = nil, past.Restarts
	}
	health := Health{}
	if c != nil {
		health = p.shown(c)
	}
	if status.Started = &health.Started; role == Ephemeral {
		status.Started = nil // nobody asks it, and it counts for nothing
	}
	if c == nil {
		told, _ := p.counted(want.Name)
		status.RestartCount = max(status.RestartCount, told)
		status.State.Waiting = p.waiting(want.Name, role)
		return status
	}
	if c.Image != "" && c.Image != c.ImageID {
		status.Image = c.Image // the runtime's name for it, unless it has none
	}
	status.Resources, status.AllocatedResources = resourcesOf(want), want.Resources.Requests
	status.User, status.StopSignal = c.User, c.StopSignal
	status.RestartCount = c.Restarts
	status.ContainerID = runtime + "://" + c.ID
	status.ImageID = c.ImageID
	status.Ready = health.Ready && role != Ephemeral
	if role == Init {
		status.Ready = c.ended() && c.ExitCode == 0 && !p.superseded(c)
	}
	last := p.previous(c)
	switch {
	case c.State == Running && !health.Running:
		status.State.Waiting = p.waiting(want.Name, role)
	case c.State == Running:
		status.State.Running = &v1.ContainerStateRunning{StartedAt: metav1.NewTime(c.StartedAt)}
	case c.State == Exited && p.waitsForRestart(c):
		status.State.Waiting, last = p.restarting(c), c
	case c.ended() && p.Stage == Syncing && p.superseded(c):
		status.State.Waiting, last = p.waiting(want.Name, role), c
	case c.ended():
		status.State.Terminated = c.terminated(runtime)
	default: // exited in a way still to be learnt, or lost by the runtime
		status.State.Waiting = p.waiting(want.Name, role)
	}
	if last != nil && last.ended() {
		status.LastTerminationState.Terminated = last.terminated(runtime)
	}
	return status
}

// waitsForRestart says whether a container that has exited is to run again and waits for it.
func (p *Pod) waitsForRestart(c *Container) bool {
	return p.Stage == Syncing && c.ended() && (p.restarts(c) || p.superseded(c)) &&
		(c.wait() > 0 || p.need(c.Name) != nil || p.problem(c.Name) != nil)
}

func (p *Pod) restarting(c *Container) *v1.ContainerStateWaiting {
	if w := p.trouble(c.Name); w != nil {
		return w
	}
	return &v1.ContainerStateWaiting{
		Reason: "CrashLoopBackOff",
		Message: fmt.Sprintf("back-off %s restarting failed container=%s pod=%s_%s(%s)",
			c.wait(), c.Name, p.Name, p.Namespace, p.UID),
	}
}

// waiting is why a container has not been made yet.
func (p *Pod) waiting(name string, role Role) *v1.ContainerStateWaiting {
	if w := p.trouble(name); w != nil {
		return w
	}
	if role != Ephemeral && len(p.Spec.Spec.InitContainers) > 0 {
		return &v1.ContainerStateWaiting{Reason: "PodInitializing"}
	}
	waiting := &v1.ContainerStateWaiting{Reason: "ContainerCreating"}
	if pr := p.problem(""); p.RuntimeWait != "" {
		waiting.Message = p.RuntimeWait
	} else if pr != nil {
		waiting.Message = pr.Message
	} else if why := p.Storage.Set.Problem(); why != "" {
		waiting.Message = why
	} else if p.NameWait {
		waiting.Message = "another pod of the same namespace and name has not ended yet"
	}
	return waiting
}

func (p *Pod) trouble(name string) *v1.ContainerStateWaiting {
	if need := p.need(name); need != nil && need.Problem != nil {
		return &v1.ContainerStateWaiting{
			Reason: need.Problem.Reason, Message: need.Problem.Message,
		}
	}
	if pr := p.problem(name); pr != nil {
		return &v1.ContainerStateWaiting{Reason: pr.Reason, Message: pr.Message}
	}
	return nil
}

func (c *Container) terminated(runtime string) *v1.ContainerStateTerminated {
	return &v1.ContainerStateTerminated{
		ExitCode: c.ExitCode, Reason: c.Reason, Message: c.lastWords(),
		StartedAt:   metav1.NewTime(c.StartedAt),
		FinishedAt:  metav1.NewTime(c.FinishedAt),
		ContainerID: runtime + "://" + c.ID,
	}
}

// resourcesOf are the resources that a container was given: those that it asked for.
func resourcesOf(want *v1.Container) *v1.ResourceRequirements {
	r := &want.Resources
	if len(r.Requests) == 0 && len(r.Limits) == 0 {
		return nil
	}
	return &v1.ResourceRequirements{Requests: r.Requests, Limits: r.Limits}
}
