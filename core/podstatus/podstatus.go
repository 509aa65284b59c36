// Package podstatus derives the status of a pod, v1.PodStatus, from the pod's facts.
//
// It keeps nothing itself. The status is a function of the facts of package pod, with two
// exceptions, which are facts as well (pod.Status): a terminal phase stays, and a condition has the
// time of its last transition. Update brings these up to date after every plan of the pod; when a
// terminal phase may be reported is decided by the life cycle (package pod). ServedPod returns the
// pod as the API serves it. Start reading at Update, then ServedPod.
package podstatus

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	podresources "k8s.io/component-helpers/resource"

	"seedlet.dev/core/criconfig"
	"seedlet.dev/core/pod"
)

// Update derives the phase and the conditions of a pod from its facts. The status becomes known
// once the runtime was listed, the pod's record was loaded, and everything that it depends on was
// inspected; from then on it stays known.
func Update(p *pod.Pod, now time.Time) {
	if p.Spec == nil || !p.Observed || !p.Record.Loaded {
		return
	}
	sandbox := p.CurrentSandbox()
	missesIPs := sandbox != nil && sandbox.Ready && !sandbox.Inspected && !p.Spec.Spec.HostNetwork
	if !p.Status.Reportable && (missesIPs || p.HasUnknownExits() || p.HasUnknownRuns()) {
		return
	}
	p.Status.Reportable = true
	if !pod.IsTerminal(p.Status.Phase) {
		p.Status.Phase = phase(p)
	}
	p.Status.ReportedFirst = ""
	if !p.IsStatic() { // a mirror makes nothing durable
		p.Status.ReportedFirst = p.UnreportedTerminalPhase()
	}
	updateConditions(p, now)
}

// IsIncomplete reports whether the runtime is being asked for facts that the status depends on: the
// status will be complete soon.
func IsIncomplete(p *pod.Pod) bool {
	for i := range p.Containers {
		if c := &p.Containers[i]; c.InspectOp != 0 && c.Inspected == "" {
			return true
		}
	}
	sandbox := p.CurrentSandbox()
	return sandbox != nil && sandbox.InspectOp != 0
}

// IsAboutToChange reports whether the status will change soon: something is being created for the
// pod, an image that the pod waits for has neither a problem nor a pull yet, how a container has
// exited is being asked, or nothing is left to end but the sandbox.
func IsAboutToChange(p *pod.Pod) bool {
	isUndecided := func(n pod.PendingImage) bool {
		return n.Problem == nil && n.PullReported.IsZero()
	}
	switch p.Stage {
	case pod.Syncing:
		return p.Op != 0 || slices.ContainsFunc(p.PendingImages, isUndecided) || p.HasUnknownExits()
	case pod.Terminating:
		return !p.HasLiveContainers()
	}
	return p.HasUnknownExits()
}

// ServedPod returns the pod as the API serves it; nil for a pod that only the runtime knows. Before
// the status is known the phase is Unknown, "the state of the pod could not be obtained".
func ServedPod(p *pod.Pod, node *pod.Node, runtimeName string) *v1.Pod {
	if p.Spec == nil {
		return nil
	}
	served := &v1.Pod{TypeMeta: p.Spec.TypeMeta, ObjectMeta: p.Spec.ObjectMeta, Spec: p.Spec.Spec}
	if end := &p.Termination; p.NoLongerDesired && served.DeletionTimestamp == nil {
		at := metav1.NewTime(node.Wall.Date(end.Since).Add(end.Grace))
		grace := int64(end.Grace / time.Second)
		served.DeletionTimestamp, served.DeletionGracePeriodSeconds = &at, &grace
	}
	status := &served.Status
	status.QOSClass, status.ObservedGeneration = criconfig.QOS(p.Spec), p.ObservedGeneration()
	if !p.Status.Reportable {
		status.Phase = v1.PodUnknown
		return served
	}
	start := metav1.NewTime(node.Wall.Date(p.StartTime))
	status.Phase, status.StartTime = p.Status.Phase, &start
	switch stored := &p.Spec.Status; {
	case p.Termination.Message != "" && reportsEnd(p): // an end and its reason come together
		status.Reason, status.Message = p.Termination.Reason, p.Termination.Message
	case pod.IsTerminal(stored.Phase): // by another client, or the record is lost
		status.Reason, status.Message = stored.Reason, stored.Message
	}
	status.Conditions = conditions(p, &node.Wall)
	setIPs(status, p, node)
	setContainerStatuses(status, p, node, runtimeName)
	if p.FinalStatus != nil {
		keepRemovedRuns(status, p.FinalStatus)
	}
	if pod.IsTerminal(p.Spec.Status.Phase) {
		keepRemovedRuns(status, &p.Spec.Status)
	}
	if !p.OverBudget { // nothing is allocated to such a pod
		status.AllocatedResources = podresources.PodRequests(p.Spec, podresources.PodResourcesOptions{})
		status.Resources = podResources(p, status.AllocatedResources)
	}
	Limit(served)
	return served
}

// reportsEnd reports whether the pod has a terminal phase, or at least the API server is given one.
func reportsEnd(p *pod.Pod) bool {
	return pod.IsTerminal(p.Status.Phase) || p.Status.ReportedFirst != ""
}

// setIPs sets the IPs of the node and of the pod.
func setIPs(status *v1.PodStatus, p *pod.Pod, node *pod.Node) {
	if len(node.IPs) > 0 {
		status.HostIP = node.IPs[0]
	}
	for _, ip := range node.IPs {
		status.HostIPs = append(status.HostIPs, v1.HostIP{IP: ip})
	}
	ips := p.IPs(node)
	if len(ips) > 0 {
		status.PodIP = ips[0]
	}
	for _, ip := range ips {
		status.PodIPs = append(status.PodIPs, v1.PodIP{IP: ip})
	}
}
