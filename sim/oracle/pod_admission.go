package oracle

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	podresources "k8s.io/component-helpers/resource"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"seedlet.dev/sim/truth"
)

// admission fires when a pod runs although the node does not fit it, when a pod is rejected
// although the node fits it, and when a pod is rejected that has run (upstream #105523, #118559,
// #124345, #138446).
type admission struct{}

func (*admission) describe() Entry {
	return Entry{"admission", "The running pods never request more than the node has, nor one " +
		"host port twice. A pod is rejected only if it does not fit, and never after it has " +
		"run."}
}

func (*admission) checkFact(m *model, f *truth.Fact) *finding {
	if len(m.opts.Allocatable) == 0 {
		return nil
	}
	switch {
	case f.Kind == truth.ContainerStarted:
		if p := m.pods[f.PodUID]; p != nil && p.liveContainers == 0 && len(p.specs) > 0 {
			return m.findOvercommit(p, f.Time)
		}
	case isAgentStatus(f) && isRejection(&f.Write.After.Pod.Status) &&
		!isRejection(&f.Write.Before.Pod.Status):
		return m.findWrongRejection(f.Write.After.Pod, f.Time)
	}
	return nil
}

// findOvercommit returns what the node lacks for a pod whose first container starts.
func (m *model) findOvercommit(p *pod, now time.Time) *finding {
	others := []*pod{}
	for _, other := range m.podsInOrder {
		if other != p && other.occupiesNode() {
			others = append(others, other)
		}
	}
	for _, name := range checkedResources {
		used := int64(0)
		for _, other := range others {
			used += other.leastRequests(name)
		}
		requested := p.leastRequests(name)
		if capacity := m.mostAllocatable(name); requested > capacity-used {
			return findingf("pod %s starts and requests %d of %s, but %d of %d are used", p,
				requested, name, used, capacity)
		}
	}
	for _, other := range others {
		if port := p.hostPortConflict(other); port != 0 {
			return findingf("pod %s starts and requests host port %d, which %s has", p,
				port, other)
		}
	}
	if p.firstStartedAt.IsZero() && !p.static &&
		!m.mayHaveMatched(p, canRunOn, m.oldestObservation(p.firstDesiredAt, now)) {
		return findingf("pod %s starts, but fails the node affinity or does not tolerate a taint", p)
	}
	return nil
}

// findWrongRejection returns why a pod should not have been rejected.
func (m *model) findWrongRejection(object *v1.Pod, now time.Time) *finding {
	p := m.pods[string(object.UID)]
	switch reason := object.Status.Reason; {
	case isMirror(object):
		return findingf("static pod %s/%s is reported as rejected: %s", object.Namespace, object.Name,
			reason)
	case p == nil:
	case !p.firstStartedAt.IsZero():
		return findingf("pod %s is reported as rejected: %s, but it has run", p, reason)
	case !m.mayReject(p, reason, now):
		return findingf("pod %s is reported as rejected: %s (%s), but it would have fit", p, reason,
			object.Status.Message)
	}
	return nil
}

// rejectedUnderPressure begins the message of a pod that was rejected for a condition of the node.
const rejectedUnderPressure = "Pod was rejected: The node had condition: ["

const outOfPrefix = "OutOf" // followed by the name of the resource

// isRejection reports whether a status is that of a pod that admission rejected.
func isRejection(s *v1.PodStatus) bool {
	switch s.Reason {
	case "NodeAffinity", "NodePorts", "TaintToleration", "UnexpectedAdmissionError",
		reasonInShutdown:
		return s.Phase == v1.PodFailed
	case reasonEvicted:
		return s.Phase == v1.PodFailed && strings.HasPrefix(s.Message, rejectedUnderPressure)
	}
	return s.Phase == v1.PodFailed && strings.HasPrefix(s.Reason, outOfPrefix)
}

// mayReject reports whether there was a reason to reject a pod at some time since it was desired.
// The agent's knowledge is a little old, and may be very old under a fault. The Node is newer than
// the pod: the agent reads it again before it rejects a pod for its labels or taints.
func (m *model) mayReject(p *pod, reason string, now time.Time) bool {
	from := m.oldestObservation(p.firstDesiredAt, now)
	switch name, isOut := strings.CutPrefix(reason, outOfPrefix); {
	case isOut && p.priority() < systemCriticalPriority:
		return m.mayLackResource(p, v1.ResourceName(name), from)
	case isOut: // pre-emption may free this resource, and another one not
		return slices.ContainsFunc(checkedResources, func(name v1.ResourceName) bool {
			return m.mayLackResource(p, name, from)
		})
	case reason == "NodePorts":
		for _, other := range m.podsInOrder {
			if other != p && other.mayOccupyNode(from) && p.hostPortConflict(other) != 0 {
				return true
			}
		}
	case reason == reasonInShutdown:
		return p.firstDesiredAt.Before(m.shutdownEffectUntil())
	case reason == reasonEvicted:
		return m.mayRejectForPressure(p)
	case reason == "NodeAffinity":
		return m.mayHaveMatched(p, failsNodeAffinity, p.firstDesiredAt)
	case reason == "TaintToleration":
		return m.mayHaveMatched(p, hasUntoleratedTaint, p.firstDesiredAt)
	}
	return false
}

// mayLackResource reports whether the node may have had too little of a resource for a pod since
// a time. Pods that it can pre-empt do not count.
func (m *model) mayLackResource(p *pod, name v1.ResourceName, from time.Time) bool {
	used := int64(0)
	for _, other := range m.podsInOrder {
		if other != p && other.mayOccupyNode(from) && !p.canPreempt(other) {
			used += other.mostRequests(name)
		}
	}
	return p.mostRequests(name) > m.leastAllocatable(name)-used
}

const (
	// rejectionBound is how long the agent may take to reject a pod, without a fault.
	rejectionBound = 5 * time.Second
	// observationBound is how long the agent may count a pod that has ended, without a fault.
	observationBound = 10 * time.Second
	// faultyObservationBound is how long the agent may count what no longer exists, or not know
	// what exists, under a fault.
	faultyObservationBound = 2 * time.Minute
)

// oldestObservation returns the time of the oldest observation that the agent may have used since
// another time.
func (m *model) oldestObservation(from, now time.Time) time.Time {
	if m.anyFaultPossible(from.Add(-faultyObservationBound), now, "WatchObjects", "ObjectChanged",
		"ListContainers", "ListPodSandbox", "ContainerStatus", "StopContainer", "StopPodSandbox") {
		return from.Add(-faultyObservationBound)
	}
	return from.Add(-observationBound)
}

// computeResources are the resources that QoS classes and resizes are about.
var computeResources = []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory}

// checkedResources are the resources that the oracles check.
var checkedResources = []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory, v1.ResourcePods}

// findUnrejected returns which pod of the API server is served as pending, although it had to be
// rejected; desired says when such a pod was desired, and is empty for any other.
func (m *model) findUnrejected(now time.Time, pods []*v1.Pod, desired func(*pod) string) *finding {
	for _, served := range pods {
		p := m.pods[string(served.UID)]
		if p == nil || !p.isPendingForLong(served, now) {
			continue
		}
		if when := desired(p); when != "" {
			return findingf("pod %s is pending, although it was desired %s", p, when)
		}
	}
	return nil
}

// isPendingForLong reports whether a pod of the API server of which nothing was started is served
// as pending for longer than it takes to reject it, while nothing has gone wrong. No pod is
// rejected before the agent knows whether the machine shuts down.
func (p *pod) isPendingForLong(served *v1.Pod, now time.Time) bool {
	desired, knownAt := p.firstDesiredAt, p.model.lock.knownAt
	if p.model.opts.Shutdown != nil && (knownAt.IsZero() || now.Sub(knownAt) <= rejectionBound) {
		return false
	}
	return served.Status.Phase == v1.PodPending && !p.static && p.spec != nil && len(p.specs) == 1 &&
		p.firstStartedAt.IsZero() && now.Sub(desired) > rejectionBound &&
		p.model.agentUpSince(desired.Add(-time.Second)) &&
		p.model.lastFault(now).Before(desired.Add(-reconnectBound))
}

// allocatable returns the allocatable amount of a resource, in milli-CPUs, bytes and
// pods.
func (m *model) allocatable(name v1.ResourceName) int64 {
	return amountOf(m.opts.Allocatable, name)
}

// mostAllocatable and leastAllocatable return the bounds of what was allocatable so far: an agent
// with another configuration keeps the pods that run.
func (m *model) mostAllocatable(name v1.ResourceName) int64 {
	most := m.allocatable(name)
	for _, list := range m.allocatableBefore {
		most = max(most, amountOf(list, name))
	}
	return most
}

func (m *model) leastAllocatable(name v1.ResourceName) int64 {
	least := m.allocatable(name)
	for _, list := range m.allocatableBefore {
		least = min(least, amountOf(list, name))
	}
	return least
}

// setAllocatable sets what is allocatable from now on.
func (m *model) setAllocatable(list v1.ResourceList) {
	if !equality.Semantic.DeepEqual(m.opts.Allocatable, list) {
		m.allocatableBefore = append(m.allocatableBefore, m.opts.Allocatable)
		m.opts.Allocatable = list
	}
}

func amountOf(list v1.ResourceList, name v1.ResourceName) int64 {
	q := list[name]
	if name == v1.ResourceCPU {
		return q.MilliValue()
	}
	return q.Value()
}

// resourceRequests are the requests of a pod, in the units of allocatable.
type resourceRequests struct{ cpu, memory, pods int64 }

func (c *resourceRequests) amount(name v1.ResourceName) int64 {
	switch name {
	case v1.ResourceCPU:
		return c.cpu
	case v1.ResourceMemory:
		return c.memory
	case v1.ResourcePods:
		return c.pods
	}
	return 0
}

// requests returns the resource requests of the newest spec, as far as they are allocated.
func (p *pod) requests() *resourceRequests {
	if len(p.specs) == 0 {
		return &resourceRequests{}
	}
	newest := p.allocated()
	if p.requestsOf != newest {
		all := podresources.PodRequests(newest, podresources.PodResourcesOptions{})
		p.requestsOf = newest
		p.cachedRequests = resourceRequests{cpu: all.Cpu().MilliValue(), memory: all.Memory().Value(),
			pods: 1}
	}
	return &p.cachedRequests
}

// occupiesNode reports whether the pod runs, or has run and is to run again.
func (p *pod) occupiesNode() bool {
	if p.liveContainers > 0 {
		return true
	}
	return p.spec != nil && !p.firstStartedAt.IsZero() && !p.wasRemoved() && !p.mayHaveEnded()
}

// mayHaveEnded reports whether a desired pod has reached a terminal phase, or may have.
func (p *pod) mayHaveEnded() bool {
	return p.rejected || p.preempted || p.hasExitedForGood() || p.mayBeKilled(p.model.now) ||
		p.servedTerminal != "" || p.model.objects.terminalPhases[p.uid] != ""
}

// mayOccupyNode reports whether the agent may have counted the pod at some time since another.
func (p *pod) mayOccupyNode(from time.Time) bool {
	s := p.newestSandbox()
	switch {
	case p.liveContainers > 0, s != nil && s.ready:
		return true
	case p.spec != nil && !p.rejected && p.model.objects.terminalPhases[p.uid] == "" &&
		!p.hasExitedForGood():
		return true
	}
	return p.changedAt.After(from) || !p.rejected && later(p.removedAt, p.terminalAt).After(from)
}

// hostPortConflict returns a host port that both pods request; zero if there is none. Host
// addresses are ignored: a port counts on all of them.
func (p *pod) hostPortConflict(other *pod) int32 {
	if len(p.specs) == 0 || len(other.specs) == 0 {
		return 0
	}
	for _, mine := range hostPorts(p.specs[0]) {
		for _, its := range hostPorts(other.specs[0]) {
			if mine == its {
				return mine
			}
		}
	}
	return 0
}

func hostPorts(spec *v1.Pod) []int32 {
	var ports []int32
	for i := range spec.Spec.Containers {
		for _, port := range spec.Spec.Containers[i].Ports {
			if port.HostPort != 0 {
				ports = append(ports, port.HostPort)
			}
		}
	}
	return ports
}

// nodeState is the Node from a time on; nil if it did not exist.
type nodeState struct {
	since time.Time
	node  *v1.Node
}

// mayHaveMatched reports whether a predicate held for a pod and the Node at some time since
// another. While the Node does not exist, the Node that the agent registers counts.
func (m *model) mayHaveMatched(p *pod, matches func(*v1.Pod, *v1.Node) bool, from time.Time) bool {
	states := append([]nodeState{{}}, m.objects.nodeStates...)
	for i := range states {
		if i+1 < len(states) && states[i+1].since.Before(from) {
			continue
		}
		node := cmp.Or(states[i].node, m.opts.RegisteredNode)
		for _, spec := range p.specs {
			if node == nil || matches(spec, node) {
				return true
			}
		}
	}
	return false
}

func canRunOn(pod *v1.Pod, node *v1.Node) bool {
	return !failsNodeAffinity(pod, node) && !hasUntoleratedTaint(pod, node)
}

// failsNodeAffinity reports whether the Node does not match the pod's node selector and affinity.
func failsNodeAffinity(pod *v1.Pod, node *v1.Node) bool {
	fits, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node)
	return err != nil || !fits
}

// hasUntoleratedTaint reports whether the Node has a NoExecute taint that the pod does not
// tolerate.
func hasUntoleratedTaint(pod *v1.Pod, node *v1.Node) bool {
	for i := range node.Spec.Taints {
		taint := &node.Spec.Taints[i]
		tolerated := taint.Effect != v1.TaintEffectNoExecute
		for k := range pod.Spec.Tolerations {
			tolerated = tolerated || pod.Spec.Tolerations[k].ToleratesTaint(logr.Logger{}, taint, false)
		}
		if !tolerated {
			return true
		}
	}
	return false
}

// rejectionProblem returns what is left to do about a pod that was rejected.
func (p *pod) rejectionProblem() string {
	if p.liveContainers > 0 {
		return fmt.Sprintf("it was rejected, but %s runs", p.anyLiveContainer().name)
	}
	if s := p.newestSandbox(); s != nil && s.ready {
		return "it was rejected, but has a sandbox"
	}
	return ""
}

// needsToWait reports whether a static pod has to wait in the end: the other pods leave too few
// resources or a host port in use, or the Node does not match its node affinity.
func (p *pod) needsToWait() bool {
	m := p.model
	if !p.static || p.liveContainers > 0 || len(m.opts.Allocatable) == 0 {
		return false
	}
	for _, name := range checkedResources {
		if m.mayLackResource(p, name, m.now) {
			return true
		}
	}
	for _, other := range m.podsInOrder {
		if other != p && other.mayOccupyNode(m.now) && p.hostPortConflict(other) != 0 {
			return true
		}
	}
	node := cmp.Or(m.objects.node, m.opts.RegisteredNode)
	return node != nil && failsNodeAffinity(p.spec, node)
}
