package podstatus

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"seedlet.dev/core/admission"
	"seedlet.dev/core/pod"
	"seedlet.dev/core/shutdown"
	"seedlet.dev/core/timer"
)

// updateConditions sets the conditions of a pod whose phase is up to date.
func updateConditions(p *pod.Pod, now time.Time) {
	setCondition(p, v1.PodReadyToStartContainers, isReadyToStart(p), "", "", now)
	updateInitialized(p, now)
	reason, message := terminalReason(p), ""
	if names := unready(p); reason == "" && names.items > 0 {
		reason = "ContainersNotReady"
		message = "containers with unready status: [" + names.String() + "]"
	}
	setCondition(p, v1.ContainersReady, reason == "", reason, message, now)
	if reason == "" {
		if gates := unmetReadinessGates(p); gates != "" {
			reason, message = pod.ReasonReadinessGates, gates
		}
	}
	setCondition(p, v1.PodReady, reason == "", reason, message, now)
	setCondition(p, v1.PodScheduled, true, "", "", now)
	updateRestarting(p, now)
	updateDisruption(p, now)
	updateResize(p, v1.PodResizePending, p.Resize.Pending)
	updateResize(p, v1.PodResizeInProgress, p.Resize.InProgress)
}

// isReadyToStart reports whether the pod has a sandbox with a network, and its volumes (KEP-3085).
// The agent makes both side by side. Volumes that fail when containers run already change nothing.
func isReadyToStart(p *pod.Pod) bool {
	sandbox := p.CurrentSandbox()
	if sandbox == nil || !sandbox.Ready || !p.Spec.Spec.HostNetwork && !sandbox.Inspected {
		return false
	}
	return p.Storage.Volumes.Ready(&p.Spec.Spec) ||
		slices.ContainsFunc(p.Containers, func(c pod.Container) bool {
			return c.SandboxID == sandbox.ID
		})
}

// updateInitialized sets the condition Initialized. Once runs of the pod, which has ended, may have
// been removed, the condition stays as it was: the runs that are left do not show it.
func updateInitialized(p *pod.Pod, now time.Time) {
	if p.MayLoseRuns && ownCondition(p, v1.PodInitialized) != nil {
		return
	}
	names := uninitialized(p)
	if names.items == 0 || p.Status.Phase == v1.PodSucceeded || reportedInitialized(p) {
		reason := ""
		if p.Status.Phase == v1.PodSucceeded {
			reason = "PodCompleted"
		}
		setCondition(p, v1.PodInitialized, true, reason, "", now)
	} else {
		setCondition(p, v1.PodInitialized, false, "ContainersNotInitialized",
			"containers with incomplete status: ["+names.String()+"]", now)
	}
}

// updateResize sets or removes a condition about a resize. A pod that has ended is not resized.
func updateResize(p *pod.Pod, t v1.PodConditionType, state *pod.ResizeState) {
	if state == nil || pod.IsTerminal(p.Status.Phase) {
		removeCondition(p, t)
		return
	}
	setCondition(p, t, true, state.Reason, state.Message, state.Since)
	c := ownCondition(p, t)
	c.Since, c.Generation = state.Since, state.Generation
}

// updateDisruption sets the condition DisruptionTarget of a pod that was terminated for a critical
// pod, because the machine shuts down, or because the node runs out of a resource. The condition is
// reported together with the terminal phase: the failure policies of Jobs look at both (KEP-3329).
// A pod that the API server has as ended keeps what it has (mergePodStatus in
// pkg/kubelet/status/status_manager.go). As in the kubelet, an eviction over a limit of the pod
// does not set the condition. A static pod that runs again after a shutdown does not have it.
func updateDisruption(p *pod.Pod, now time.Time) {
	stored, end := &p.Spec.Status, &p.Termination
	switch {
	case !reportsEnd(p):
		removeCondition(p, v1.DisruptionTarget)
	case pod.IsTerminal(stored.Phase):
		keepDisruption(p, stored, now)
	case end.Reason == admission.PreemptedReason:
		setCondition(p, v1.DisruptionTarget, true, v1.PodReasonTerminationByKubelet,
			"Pod was preempted by Kubelet to accommodate a critical pod.", now)
	case end.Reason == shutdown.Reason || end.UnderPressure:
		setCondition(p, v1.DisruptionTarget, true, v1.PodReasonTerminationByKubelet,
			cmp.Or(end.PressureMessage, end.Message), now)
	}
}

// keepDisruption has the condition be as it is stored.
func keepDisruption(p *pod.Pod, stored *v1.PodStatus, now time.Time) {
	for _, c := range stored.Conditions {
		if c.Type == v1.DisruptionTarget {
			setCondition(p, c.Type, c.Status == v1.ConditionTrue, c.Reason, c.Message, now)
			return
		}
	}
	removeCondition(p, v1.DisruptionTarget)
}

// updateRestarting sets the condition AllContainersRestarting (KEP-5532). It is true until all
// containers of earlier rounds have exited; a back-off after that is part of the container
// statuses.
func updateRestarting(p *pod.Pod, now time.Time) {
	if !p.HasRestartAllRule() {
		return
	}
	reason, message := terminalReason(p), ""
	restarting := p.Stage == pod.Syncing && reason == "" && p.HasActiveSuperseded()
	if restarting {
		reason = "RestartAllContainersStarted"
		if p.Round.TriggeredBy != "" {
			message = "container " + p.Round.TriggeredBy + " exited with code " +
				strconv.Itoa(int(p.Round.ExitCode))
		}
	}
	setCondition(p, v1.AllContainersRestarting, restarting, reason, message, now)
}

// setCondition sets a condition. The time of the last transition stays if the status is the same.
func setCondition(p *pod.Pod, t v1.PodConditionType, status bool, reason, message string,
	now time.Time) {
	condition := pod.Condition{Type: t, Status: status, Reason: reason, Message: message, Since: now}
	before := ownCondition(p, t)
	switch {
	case before == nil:
		p.Status.Conditions = append(p.Status.Conditions, condition)
		return
	case before.Status == status:
		condition.Since = before.Since
	}
	*before = condition
}

// ownCondition returns a condition that this agent has set; nil if it has not.
func ownCondition(p *pod.Pod, t v1.PodConditionType) *pod.Condition {
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == t {
			return c
		}
	}
	return nil
}

func removeCondition(p *pod.Pod, t v1.PodConditionType) {
	p.Status.Conditions = slices.DeleteFunc(p.Status.Conditions, func(c pod.Condition) bool {
		return c.Type == t
	})
}

// conditions returns the conditions of a pod as the API serves them, with the generation of the
// spec that they are about (KEP-5067).
func conditions(p *pod.Pod, wall *timer.WallClock) []v1.PodCondition {
	served := slices.Grow([]v1.PodCondition(nil), len(p.Status.Conditions))
	for _, c := range p.Status.Conditions {
		status := v1.ConditionFalse
		if c.Status {
			status = v1.ConditionTrue
		}
		generation := p.ObservedGeneration()
		if c.Generation != 0 {
			generation = c.Generation
		}
		served = append(served, v1.PodCondition{
			Type: c.Type, Status: status, Reason: c.Reason, Message: c.Message,
			LastTransitionTime: metav1.NewTime(wall.Date(c.Since)), ObservedGeneration: generation,
		})
	}
	return served
}

// terminalReason returns the reason of the conditions of a pod in a terminal phase; empty in any
// other phase.
func terminalReason(p *pod.Pod) string {
	switch p.Status.Phase {
	case v1.PodSucceeded:
		return "PodCompleted"
	case v1.PodFailed:
		return "PodFailed"
	}
	return ""
}

// unmetReadinessGates returns why readiness gates keep the pod from being ready; empty if none
// does. A gate is met by a condition that another controller sets at the API server (KEP-580).
func unmetReadinessGates(p *pod.Pod) string {
	gates := p.Spec.Spec.ReadinessGates
	if len(gates) == 0 {
		return ""
	}
	unmet := list{separator: ", "}
	conditions := p.Spec.Status.Conditions
	status := make(map[v1.PodConditionType]v1.ConditionStatus, len(conditions))
	for i := range slices.Backward(conditions) { // the first one of a type counts
		status[conditions[i].Type] = conditions[i].Status
	}
	for _, gate := range gates {
		switch status, exists := status[gate.ConditionType]; {
		case exists && status == v1.ConditionTrue:
		case unmet.isFull():
			unmet.omit() // the text would be made for nothing
		case !exists:
			unmet.add(fmt.Sprintf("corresponding condition of pod readiness gate %q does not exist.",
				gate.ConditionType))
		default:
			unmet.add(fmt.Sprintf("the status of pod readiness gate %q is not \"True\", but %v",
				gate.ConditionType, status))
		}
	}
	return unmet.String()
}

// unready returns the names of the sidecars and app containers that are not ready.
func unready(p *pod.Pod) *list {
	names := &list{separator: " "}
	isReady := func(name string) bool {
		c := p.NewestRun(name)
		return c != nil && p.ReportableHealth(c).Ready
	}
	for i := range p.Spec.Spec.InitContainers {
		container := &p.Spec.Spec.InitContainers[i]
		if pod.InitRole(container) == pod.Sidecar && !isReady(container.Name) {
			names.add(container.Name)
		}
	}
	for i := range p.Spec.Spec.Containers {
		if name := p.Spec.Spec.Containers[i].Name; !isReady(name) {
			names.add(name)
		}
	}
	return names
}

// uninitialized returns the names of the init containers that the pod still waits for. A restart of
// all containers does not make an initialized pod uninitialized (KEP-5532).
func uninitialized(p *pod.Pod) *list {
	names := &list{separator: " "}
	if p.IsInitialized() || wasInitialized(p) {
		return names
	}
	for _, container := range p.Spec.Spec.InitContainers[p.InitsDone():] {
		names.add(container.Name)
	}
	return names
}

// reportedInitialized reports whether the pod was reported as initialized, by this agent or an
// earlier one. It stays so while its init containers run again in a new sandbox, as in the kubelet
// (GeneratePodInitializedCondition in pkg/kubelet/status).
func reportedInitialized(p *pod.Pod) bool {
	if own := ownCondition(p, v1.PodInitialized); own != nil {
		return own.Status
	}
	return slices.ContainsFunc(p.Spec.Status.Conditions, func(c v1.PodCondition) bool {
		return c.Type == v1.PodInitialized && c.Status == v1.ConditionTrue
	})
}

// wasInitialized reports whether an app container was created in the current sandbox, in this round
// or an earlier one.
func wasInitialized(p *pod.Pod) bool {
	sandbox := p.CurrentSandbox()
	for i := range p.Spec.Spec.Containers {
		c := p.NewestRun(p.Spec.Spec.Containers[i].Name)
		if c != nil && sandbox != nil && c.SandboxID == sandbox.ID {
			return true
		}
	}
	return false
}
