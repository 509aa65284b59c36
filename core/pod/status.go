package pod

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What the API shows of a pod: a function of its facts, but for the phase, which never leaves a
// terminal one, and the times at which conditions changed.

// Condition is one condition of a pod, and since when it is so.
type Condition struct {
	Type   v1.PodConditionType `json:"type"`
	Status bool                `json:"status"`
	Reason string              `json:"reason,omitempty"`
	Since  time.Time           `json:"since"`
}

// completed says whether the pod has come to its end by itself: an init container has failed for
// good, or every app container has ended for good.
func (p *Pod) completed() bool {
	never := p.Spec.Spec.RestartPolicy == v1.RestartPolicyNever
	for i := range p.Spec.Spec.InitContainers {
		want := &p.Spec.Spec.InitContainers[i]
		c := p.newest(want.Name)
		if never && initRole(want) == Init && c != nil && c.ended() && c.ExitCode != 0 {
			return true
		}
	}
	for i := range p.Spec.Spec.Containers {
		c := p.newest(p.Spec.Spec.Containers[i].Name)
		if c == nil || !c.ended() || p.runsAgain(c) {
			return false
		}
	}
	return true
}

// succeeded says whether every container that counts has ended well.
func (p *Pod) succeeded() bool {
	if p.Kill.Reason == reasonEvicted {
		return false
	}
	for i := range p.Spec.Spec.Containers {
		c := p.newest(p.Spec.Spec.Containers[i].Name)
		if c == nil || !c.ended() || c.ExitCode != 0 {
			return false
		}
	}
	return true
}

// note records the phase and the conditions that follow from the facts now.
func (p *Pod) note(env *Env) {
	if p.Spec == nil || !p.Observed || !p.Known && p.awaitInspections() {
		return
	}
	p.Known = true
	if p.Phase != v1.PodSucceeded && p.Phase != v1.PodFailed {
		p.Phase = p.phase()
	}
	now := env.Out.Now()
	done := p.Phase == v1.PodSucceeded || p.Phase == v1.PodFailed
	reason := ""
	if done {
		reason = "PodCompleted"
	}
	ready := p.containersReady() && !done
	sandbox := p.current()
	network := sandbox != nil && sandbox.Ready && (p.Spec.Spec.HostNetwork || sandbox.Inspected)
	p.setCondition(v1.PodReadyToStartContainers, network, "", now)
	p.setCondition(v1.PodInitialized, p.initialized() || p.Phase == v1.PodSucceeded, reason, now)
	p.setCondition(v1.PodReady, ready, notReady(ready, reason), now)
	p.setCondition(v1.ContainersReady, ready, notReady(ready, reason), now)
	p.setCondition(v1.PodScheduled, true, "", now)
}

func notReady(ready bool, reason string) string {
	if !ready && reason == "" {
		return "ContainersNotReady"
	}
	return reason
}

func (p *Pod) setCondition(t v1.PodConditionType, status bool, reason string, now time.Time) {
	for i := range p.Conditions {
		c := &p.Conditions[i]
		if c.Type != t {
			continue
		}
		if c.Status != status {
			c.Since = now
		}
		c.Status, c.Reason = status, reason
		return
	}
	p.Conditions = append(p.Conditions, Condition{t, status, reason, now})
}

// over says whether nothing of the pod runs or can start any more. What a pod looks like that was
// over before this agent started says so as well, so that its phase does not go back.
func (p *Pod) over() bool {
	return p.Stage == Terminated || p.completed() && !p.live() && p.Op == 0 && !p.anyReady()
}

func (p *Pod) anyReady() bool {
	for i := range p.Sandboxes {
		if p.Sandboxes[i].Ready {
			return true
		}
	}
	return false
}

// phase is the kubelet's rule. Terminal phases wait until the pod is over.
func (p *Pod) phase() v1.PodPhase {
	if p.over() {
		if p.succeeded() {
			return v1.PodSucceeded
		}
		return v1.PodFailed
	}
	if !p.initialized() {
		return v1.PodPending
	}
	for i := range p.Spec.Spec.Containers {
		if c := p.newest(p.Spec.Spec.Containers[i].Name); c == nil || c.State == Created {
			if p.Phase == v1.PodRunning {
				continue // a container that is made anew does not make the pod pending again
			}
			return v1.PodPending
		}
	}
	return v1.PodRunning
}

func (p *Pod) containersReady() bool {
	for i := range p.Spec.Spec.InitContainers {
		want := &p.Spec.Spec.InitContainers[i]
		if c := p.newest(want.Name); initRole(want) == Sidecar && (c == nil || c.State != Running) {
			return false
		}
	}
	for i := range p.Spec.Spec.Containers {
		c := p.newest(p.Spec.Spec.Containers[i].Name)
		if c == nil || c.State != Running {
			return false
		}
	}
	return true
}

// API is the pod as the API shows it. Only what has been observed is claimed: before this agent
// has listed the runtime, and learnt how what has exited did so, the phase is Unknown, "the state
// of the pod could not be obtained".
func (p *Pod) API(runtimeName string, node *Node) *v1.Pod {
	if p.Spec == nil {
		return nil
	}
	pod := &v1.Pod{TypeMeta: p.Spec.TypeMeta, ObjectMeta: p.Spec.ObjectMeta, Spec: p.Spec.Spec}
	if p.Gone {
		at, grace := metav1.NewTime(p.Kill.At.Add(p.Kill.Grace)), int64(p.Kill.Grace/time.Second)
		pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &at, &grace
	}
	pod.Status.QOSClass = qos(p.Spec)
	if !p.Known {
		pod.Status.Phase = v1.PodUnknown
		return pod
	}
	if p.Kill.Reason == reasonEvicted {
		pod.Status.Reason = reasonEvicted
		pod.Status.Message = p.Storage.Set.OverMessage(&p.Spec.Spec)
	}
	start := metav1.NewTime(p.Seen)
	pod.Status.Phase, pod.Status.StartTime = p.Phase, &start
	for _, c := range p.Conditions {
		pod.Status.Conditions = append(pod.Status.Conditions, c.api())
	}
	if s := p.current(); s != nil && s.Ready {
		for i, ip := range s.IPs {
			if i == 0 {
				pod.Status.PodIP = ip
			}
			pod.Status.PodIPs = append(pod.Status.PodIPs, v1.PodIP{IP: ip})
		}
	}
	for i := range p.Spec.Spec.InitContainers {
		pod.Status.InitContainerStatuses = append(pod.Status.InitContainerStatuses,
			p.initStatus(&p.Spec.Spec.InitContainers[i], runtimeName))
	}
	for i := range p.Spec.Spec.Containers {
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses,
			p.containerStatus(&p.Spec.Spec.Containers[i], App, runtimeName))
	}
	p.showMounts(&pod.Status, node)
	return pod
}

func (c *Condition) api() v1.PodCondition {
	status := v1.ConditionFalse
	if c.Status {
		status = v1.ConditionTrue
	}
	return v1.PodCondition{
		Type: c.Type, Status: status, Reason: c.Reason,
		LastTransitionTime: metav1.NewTime(c.Since),
	}
}

func (p *Pod) initStatus(want *v1.Container, runtime string) v1.ContainerStatus {
	return p.containerStatus(want, initRole(want), runtime)
}

func (p *Pod) containerStatus(want *v1.Container, role Role, runtime string) v1.ContainerStatus {
	status := v1.ContainerStatus{Name: want.Name, Image: want.Image}
	c := p.newest(want.Name)
	if c != nil && c.State == Created {
		c = p.previous(c) // it has not run yet, and may never
	}
	started := c != nil && c.State == Running
	status.Started = &started
	if c == nil {
		status.State.Waiting = p.waiting(want.Name, role)
		return status
	}
	status.RestartCount = c.Restarts
	status.ContainerID = runtime + "://" + c.ID
	status.ImageID = c.ImageID
	status.Ready = started
	if role == Init {
		status.Ready = c.ended() && c.ExitCode == 0
	}
	last := p.previous(c)
	switch {
	case c.State == Running:
		status.State.Running = &v1.ContainerStateRunning{StartedAt: metav1.NewTime(c.StartedAt)}
	case c.State == Exited && p.waitsForRestart(c):
		status.State.Waiting, last = p.restarting(c), c
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
	return p.Stage == Syncing && c.ended() && p.restarts(c) &&
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
	if role == App && len(p.Spec.Spec.InitContainers) > 0 && !p.initialized() {
		return &v1.ContainerStateWaiting{Reason: "PodInitializing"}
	}
	waiting := &v1.ContainerStateWaiting{Reason: "ContainerCreating"}
	if pr := p.problem(""); pr != nil {
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
		ExitCode: c.ExitCode, Reason: c.Reason, Message: c.Message,
		StartedAt:   metav1.NewTime(c.StartedAt),
		FinishedAt:  metav1.NewTime(c.FinishedAt),
		ContainerID: runtime + "://" + c.ID,
	}
}
