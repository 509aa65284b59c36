package pod

import (
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What the API shows of a pod: a function of its facts, but for the phase, which never leaves a
// terminal one, and the times at which conditions changed.

// Condition is one condition of a pod, and since when it is so.
type Condition struct {
	Type    v1.PodConditionType `json:"type"`
	Status  bool                `json:"status"`
	Reason  string              `json:"reason,omitempty"`
	Message string              `json:"message,omitempty"`
	Since   time.Time           `json:"since"`
}

// completed says whether the pod has come to its end by itself: an init container has failed for
// good, or every app container has ended for good.
func (p *Pod) completed() bool {
	for i := range p.Spec.Spec.InitContainers {
		want := &p.Spec.Spec.InitContainers[i]
		c := p.newest(want.Name)
		if initRole(want) == Init && c != nil && c.ended() && c.ExitCode != 0 && !p.runsAgain(c) {
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
	for i := range p.Spec.Spec.Containers {
		c := p.newest(p.Spec.Spec.Containers[i].Name)
		if c == nil || !c.ended() || c.ExitCode != 0 || p.superseded(c) {
			return false
		}
	}
	return true
}

// note records the phase and the conditions that follow from the facts now.
func (p *Pod) note(env *Env) {
	if p.Spec == nil || !p.Observed || !p.Record.Read {
		return
	}
	sandbox := p.current()
	unseen := sandbox != nil && sandbox.Ready && !sandbox.Inspected && !p.Spec.Spec.HostNetwork
	if !p.Known && (unseen || p.awaitInspections()) {
		return
	}
	p.Known = true
	if !terminal(p.Phase) {
		p.Phase = p.phase()
	}
	now := env.Out.Now()
	network := sandbox != nil && sandbox.Ready && (p.Spec.Spec.HostNetwork || sandbox.Inspected)
	p.setCondition(v1.PodReadyToStartContainers, network, "", "", now)
	if unfinished := p.uninitialized(); len(unfinished) == 0 || p.Phase == v1.PodSucceeded {
		reason := ""
		if p.Phase == v1.PodSucceeded {
			reason = "PodCompleted"
		}
		p.setCondition(v1.PodInitialized, true, reason, "", now)
	} else {
		p.setCondition(v1.PodInitialized, false, "ContainersNotInitialized",
			"containers with incomplete status: ["+strings.Join(unfinished, " ")+"]", now)
	}
	reason, message := p.ended(), ""
	if unready := p.unready(); reason == "" && len(unready) > 0 {
		reason = "ContainersNotReady"
		message = "containers with unready status: [" + strings.Join(unready, " ") + "]"
	}
	p.setCondition(v1.ContainersReady, reason == "", reason, message, now)
	if closed := p.closedGates(); reason == "" && closed != "" {
		reason, message = "ReadinessGatesNotReady", closed
	}
	p.setCondition(v1.PodReady, reason == "", reason, message, now)
	p.setCondition(v1.PodScheduled, true, "", "", now)
	p.noteRound(env)
}

// closedGates says which readiness gates keep the pod from being ready; empty if none does. Others
// open them, by conditions of the pod at the API server (KEP-580).
func (p *Pod) closedGates() string {
	var closed []string
	for _, gate := range p.Spec.Spec.ReadinessGates {
		i := slices.IndexFunc(p.Spec.Status.Conditions, func(c v1.PodCondition) bool {
			return c.Type == gate.ConditionType
		})
		if i < 0 {
			closed = append(closed, fmt.Sprintf("corresponding condition of pod readiness gate %q "+
				"does not exist.", gate.ConditionType))
		} else if is := p.Spec.Status.Conditions[i].Status; is != v1.ConditionTrue {
			closed = append(closed, fmt.Sprintf("the status of pod readiness gate %q is not "+
				"\"True\", but %v", gate.ConditionType, is))
		}
	}
	return strings.Join(closed, ", ")
}

// Looking says that the runtime is being asked for what the pod shows: it will be complete soon.
func (p *Pod) Looking() bool {
	for i := range p.Containers {
		if c := &p.Containers[i]; c.InspectOp != 0 && c.Inspected == "" {
			return true
		}
	}
	sandbox := p.current()
	return sandbox != nil && sandbox.InspectOp != 0
}

// Moving says that something is being made for the pod, or looked for: it will soon be further.
func (p *Pod) Moving() bool {
	looks := func(n Need) bool { return n.Problem == nil && n.Pulling.IsZero() }
	return p.Stage == Syncing && (p.Op != 0 || slices.ContainsFunc(p.Needs, looks))
}

// ended is the reason of the conditions of a pod that is over; empty for any other.
func (p *Pod) ended() string {
	switch p.Phase {
	case v1.PodSucceeded:
		return "PodCompleted"
	case v1.PodFailed:
		return "PodFailed"
	}
	return ""
}

func (p *Pod) setCondition(t v1.PodConditionType, status bool, reason, message string,
	now time.Time) {
	is := Condition{Type: t, Status: status, Reason: reason, Message: message, Since: now}
	i := slices.IndexFunc(p.Conditions, func(c Condition) bool { return c.Type == t })
	switch {
	case i < 0:
		p.Conditions = append(p.Conditions, is)
		return
	case p.Conditions[i].Status == status:
		is.Since = p.Conditions[i].Since
	}
	p.Conditions[i] = is
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
		return p.outcome()
	}
	if !p.initialized() {
		return v1.PodPending
	}
	for i := range p.Spec.Spec.Containers {
		c := p.newest(p.Spec.Spec.Containers[i].Name)
		// A container that is made anew does not make the pod pending again.
		if p.Phase != v1.PodRunning && (c == nil || c.State == Created && p.previous(c) == nil) {
			return v1.PodPending
		}
	}
	return v1.PodRunning
}

// unready are the containers that have to be ready and are not.
func (p *Pod) unready() []string {
	var unready []string
	for i := range p.Spec.Spec.InitContainers {
		want := &p.Spec.Spec.InitContainers[i]
		if c := p.newest(want.Name); initRole(want) == Sidecar && (c == nil || !p.shown(c).Ready) {
			unready = append(unready, want.Name)
		}
	}
	for i := range p.Spec.Spec.Containers {
		name := p.Spec.Spec.Containers[i].Name
		if c := p.newest(name); c == nil || !p.shown(c).Ready {
			unready = append(unready, name)
		}
	}
	return unready
}

// uninitialized are the init containers that have not done what the pod waits for. A restart of all
// containers takes back nothing (KEP-5532).
func (p *Pod) uninitialized() []string {
	if p.initialized() || p.wasInitialized() {
		return nil
	}
	var names []string
	for i := range p.Spec.Spec.InitContainers {
		if !p.initDone(i) {
			names = append(names, p.Spec.Spec.InitContainers[i].Name)
		}
	}
	return names
}

// wasInitialized says whether an app container has run in the current sandbox, in an earlier round.
func (p *Pod) wasInitialized() bool {
	sandbox := p.current()
	for i := range p.Spec.Spec.Containers {
		c := p.newest(p.Spec.Spec.Containers[i].Name)
		if c != nil && sandbox != nil && c.SandboxID == sandbox.ID {
			return true
		}
	}
	return false
}

// API is the pod as the API shows it. Only what has been observed is claimed: before this agent
// has listed the runtime, and learnt how what has exited did so, the phase is Unknown, "the state
// of the pod could not be obtained".
func (p *Pod) API(node *Node, runtimeName string) *v1.Pod {
	if p.Spec == nil {
		return nil
	}
	pod := &v1.Pod{TypeMeta: p.Spec.TypeMeta, ObjectMeta: p.Spec.ObjectMeta, Spec: p.Spec.Spec}
	if p.Gone && pod.DeletionTimestamp == nil {
		at, grace := metav1.NewTime(p.Kill.At.Add(p.Kill.Grace)), int64(p.Kill.Grace/time.Second)
		pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &at, &grace
	}
	pod.Status.QOSClass, pod.Status.ObservedGeneration = QOS(p.Spec), p.Spec.Generation
	if !p.Known {
		pod.Status.Phase = v1.PodUnknown
		return pod
	}
	start := metav1.NewTime(p.Seen)
	pod.Status.Phase, pod.Status.StartTime = p.Phase, &start
	if p.Kill.Message != "" {
		pod.Status.Reason, pod.Status.Message = p.Kill.Reason, p.Kill.Message
	}
	pod.Status.Conditions = slices.Grow(pod.Status.Conditions, len(p.Conditions))
	for _, c := range p.Conditions {
		pod.Status.Conditions = append(pod.Status.Conditions, c.api(p.Spec.Generation))
	}
	pod.Status.HostIP = firstOf(node.IPs)
	for _, ip := range node.IPs {
		pod.Status.HostIPs = append(pod.Status.HostIPs, v1.HostIP{IP: ip})
	}
	if s := p.current(); s != nil && s.Ready {
		pod.Status.PodIP = firstOf(p.ips(node))
		for _, ip := range p.ips(node) {
			pod.Status.PodIPs = append(pod.Status.PodIPs, v1.PodIP{IP: ip})
		}
	}
	p.showContainers(&pod.Status, runtimeName)
	limitMessages(pod)
	p.showMounts(&pod.Status, node)
	return pod
}

// showContainers fills in the statuses of the containers, in the order of the spec.
func (p *Pod) showContainers(status *v1.PodStatus, runtimeName string) {
	spec := &p.Spec.Spec
	status.InitContainerStatuses = slices.Grow(status.InitContainerStatuses,
		len(spec.InitContainers))
	for i := range spec.InitContainers {
		status.InitContainerStatuses = append(status.InitContainerStatuses,
			p.initStatus(&spec.InitContainers[i], runtimeName))
	}
	status.ContainerStatuses = slices.Grow(status.ContainerStatuses, len(spec.Containers))
	for i := range spec.Containers {
		status.ContainerStatuses = append(status.ContainerStatuses,
			p.containerStatus(&spec.Containers[i], App, runtimeName))
	}
	for i := range spec.EphemeralContainers {
		want := ephemeral(&spec.EphemeralContainers[i])
		status.EphemeralContainerStatuses = append(status.EphemeralContainerStatuses,
			p.containerStatus(want, Ephemeral, runtimeName))
	}
}

// api is the condition as the API shows it, and of which spec it is (KEP-5067).
func (c *Condition) api(generation int64) v1.PodCondition {
	status := v1.ConditionFalse
	if c.Status {
		status = v1.ConditionTrue
	}
	return v1.PodCondition{
		Type: c.Type, Status: status, Reason: c.Reason, Message: c.Message,
		LastTransitionTime: metav1.NewTime(c.Since), ObservedGeneration: generation,
	}
}
