package oracle

import (
	"cmp"
	"math"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	podresources "k8s.io/component-helpers/resource"
)

// The order in which pods are evicted for the node, as an independent reference of what is known of
// them (rankMemoryPressure and its like in pkg/kubelet/eviction/helpers.go).

// lack is what the node has too little of: a resource, and what observes it.
type lack struct{ resource, source string }

// findBetterVictim returns which pod had to be evicted before another one.
func (n *pressureModel) findBetterVictim(m *model, p *pod, of lack,
	answeredAt time.Time) *finding {
	if len(p.specs) != 1 || of.source != fromNode && !m.knowsDisks() {
		return nil
	}
	usage := n.usage.since(answeredAt)
	if of.resource == resourceStorage || of.resource == resourceInodes {
		trees, layers := n.trees.since(answeredAt), usage
		switch usage = trees.withLayers(layers); {
		case usage != nil || n.usageTries < usageTriesMax:
		case layers == nil:
			usage = trees // all requests for statistics may have failed
		default:
			usage = layers // the last request for the trees has
		}
		usage = usage.on(m, of.source)
	}
	if (usage == nil || usage.stale) && n.usageTries < usageTriesMax {
		return findingf("pod %s is evicted, but since the observation at %s the agent has not "+
			"measured the pods, for which it has asked %d times", p,
			answeredAt.Format(time.TimeOnly), n.usageTries)
	}
	if n.usageTries < usageTriesMax && n.lacksFiles(p, of.resource, answeredAt) {
		return findingf("pod %s is evicted for %s, but its files were not measured", p, of.resource)
	}
	its := rankOf(p, usage, of.resource)
	for _, q := range m.podsInOrder {
		if q == p || !n.isCertainCandidate(m, q) || !q.isKnownToRun(n.usageAskedAt) {
			continue
		}
		if mine := rankOf(q, usage, of.resource); mine.isBefore(its) {
			return findingf("pod %s is evicted for %s of %s with rank %+v, but %s comes before it with %+v",
				p, of.resource, of.source, its, q, mine)
		}
	}
	return nil
}

// lacksFiles reports whether a pod that is evicted for a file system has run since before the pods
// were observed, and its files were not measured with those of the others.
func (n *pressureModel) lacksFiles(p *pod, resource string, answeredAt time.Time) bool {
	trees := n.trees.since(answeredAt)
	if resource != resourceStorage && resource != resourceInodes || trees == nil {
		return false
	}
	_, isMeasured := trees.pods[p.uid]
	return !isMeasured && p.isKnownToRun(n.usageAskedAt)
}

// isCertainCandidate reports whether the agent knows that a pod could be evicted.
func (n *pressureModel) isCertainCandidate(m *model, p *pod) bool {
	if p.spec == nil || len(p.specs) != 1 || p.wasRemoved() || p.isCritical() ||
		!p.pressureEvictedAt.IsZero() || len(p.limitsEverExceeded()) > 0 || p.rejected ||
		!p.terminalAt.IsZero() || p.servedTerminal != "" {
		return false
	}
	return m.containersListedAt.After(m.agentStartedAt) && p.isKnownToRun(m.containersListedAt)
}

// isKnownToRun reports whether a running container of the pod has started so long before an
// observation that it is certainly in it.
func (p *pod) isKnownToRun(observedAt time.Time) bool {
	return slices.ContainsFunc(p.containers, func(c *container) bool {
		return c.state == running && !c.startedAt.Add(usageNoticeBound).After(observedAt)
	})
}

// isKnownIdle reports whether all containers of the pod have exited so long before an observation
// that the agent certainly knows it.
func (p *pod) isKnownIdle(observedAt time.Time) bool {
	last := p.lastExitAt()
	return !last.IsZero() && !last.Add(usageNoticeBound).After(observedAt) &&
		!slices.ContainsFunc(p.containers, func(c *container) bool { return c.state != exited }) &&
		!p.model.anyFaultPossible(last, observedAt, "ListContainers", "ContainerStatus")
}

// rank is what a pod is ranked by. The lowest class comes first, then the lowest priority, then the
// highest excess.
type rank struct {
	class    int
	priority int32
	excess   int64
}

func (r rank) isBefore(other rank) bool {
	return cmp.Or(cmp.Compare(r.class, other.class), cmp.Compare(r.priority, other.priority),
		cmp.Compare(other.excess, r.excess)) < 0
}

// rankOf returns the rank of a pod by the usage that the agent has observed.
func rankOf(p *pod, usage *usageSample, resource string) rank {
	r := rank{priority: p.priority(), excess: math.MaxInt64}
	var u podUsage
	isKnown := false
	if usage != nil {
		u, isKnown = usage.pods[p.uid]
	}
	if !isKnown { // nothing of it runs, so it has no statistics
		isKnown = p.isKnownIdle(p.model.pressure.usageAskedAt)
	}
	switch {
	case resource == resourcePIDs && isKnown:
		r.excess = u.processes
		return r
	case !isKnown:
		return r
	case resource == resourceMemory:
		r.excess = u.memoryBytes - requestOf(p.allocated(), v1.ResourceMemory)
	case resource == resourceStorage:
		r.excess = u.diskBytes - requestOf(p.allocated(), v1.ResourceEphemeralStorage)
	default:
		r.excess = u.inodes
	}
	if r.class = 1; r.excess <= 0 {
		r.class = 2
	}
	return r
}

// requestOf returns what a pod requests of a resource, with its overhead if its containers request
// any (GetResourceRequestQuantity in pkg/api/v1/resource/helpers.go).
func requestOf(spec *v1.Pod, name v1.ResourceName) int64 {
	without := podresources.PodResourcesOptions{ExcludeOverhead: true}
	amount := podresources.PodRequests(spec, without)[name]
	if amount.IsZero() {
		return 0
	}
	amount.Add(spec.Spec.Overhead[name])
	return amount.Value()
}
