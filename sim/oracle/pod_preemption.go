package oracle

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/truth"
)

// preemption fires when a pod is pre-empted although no pod needs its resources, or although it
// must not be.
type preemption struct{}

func (*preemption) describe() Entry {
	return Entry{"preemption", "A pod is pre-empted only if a critical pod does not fit, if it " +
		"is less critical itself, and with the reason in its status."}
}

const (
	reasonPreempted  = "Preempting"
	messagePreempted = "Preempted in order to admit critical pod"
)

func (*preemption) checkFact(m *model, f *truth.Fact) *finding {
	if !isAgentStatus(f) || !isPreempted(f.Write.After.Pod) || isPreempted(f.Write.Before.Pod) {
		return nil
	}
	object := f.Write.After.Pod
	p := m.pods[string(object.UID)]
	switch {
	case p == nil || p.static:
		return findingf("%s/%s is reported as pre-empted, but is a static pod", object.Namespace,
			object.Name)
	case object.Status.Message != messagePreempted:
		return findingf("pod %s is reported as pre-empted with message %q", p, object.Status.Message)
	}
	from, critical := m.oldestObservation(p.endStartedAt(), f.Time), false
	for _, q := range m.podsInOrder {
		if q == p || !q.canPreempt(p) {
			continue
		}
		critical = true
		if (q.wasWaiting(from) || q.wasResized()) && m.mayLackResources(q, from) {
			return nil
		}
	}
	if !critical {
		return findingf("pod %s is reported as pre-empted, but no pod is more critical", p)
	}
	return findingf("pod %s is reported as pre-empted, but no pod needed its resources", p)
}

func isPreempted(object *v1.Pod) bool {
	return object.Status.Phase == v1.PodFailed && object.Status.Reason == reasonPreempted
}

// endStartedAt returns the earliest time at which the termination of the pod may have started.
func (p *pod) endStartedAt() time.Time {
	start := p.model.now
	for _, c := range p.containers {
		if !c.stopRequestedAt.IsZero() && c.stopRequestedAt.Before(start) {
			start = c.stopRequestedAt
		}
	}
	if p.firstStartedAt.IsZero() {
		start = p.firstDesiredAt
	}
	return start
}

// canPreempt reports whether another pod may be pre-empted for this one.
func (p *pod) canPreempt(other *pod) bool {
	if len(p.specs) == 0 || len(other.specs) == 0 || other.static {
		return false
	}
	mine, its := p.priority(), other.priority()
	if its < systemCriticalPriority {
		return p.static || mine >= systemCriticalPriority
	}
	return mine > its
}

func (p *pod) priority() int32 {
	if q := p.specs[len(p.specs)-1].Spec.Priority; q != nil {
		return *q
	}
	return 0
}

// wasWaiting reports whether the pod was desired, and not started, at some time since another.
func (p *pod) wasWaiting(from time.Time) bool {
	return (p.spec != nil || p.removedAt.After(from)) &&
		(p.firstStartedAt.IsZero() || p.firstStartedAt.After(from))
}

// mayLackResources reports whether the node may have had too few resources for a pod, or for its
// resize, since a time.
func (m *model) mayLackResources(p *pod, from time.Time) bool {
	for _, name := range checkedResources {
		if requested := p.mostRequests(name); requested == 0 || name == v1.ResourcePods &&
			int64(len(m.podsInOrder)) <= m.allocatable(name) {
			continue // there is always enough of it
		}
		used := int64(0)
		for _, other := range m.podsInOrder {
			if other != p && other.mayOccupyNode(from) {
				used += other.mostRequests(name)
			}
		}
		if p.mostRequests(name) > m.allocatable(name)-used {
			return true
		}
	}
	return false
}

// preemptionBound is how long it may take from a shortage until the pre-empted pods have ended
// and are reported as such.
const preemptionBound = 90 * time.Second

// noteShortages records which critical pods wait for resources.
func (m *model) noteShortages(now time.Time) {
	for _, q := range m.criticalPods {
		if q.spec != nil && (q.firstStartedAt.IsZero() || q.wasResized()) && !q.rejected &&
			m.mayLackResources(q, now.Add(-observationBound)) {
			q.lackedResourcesAt = now
		}
	}
}

// mayBePreempted reports whether the pod may have been pre-empted, or may be at any moment.
func (p *pod) mayBePreempted(now time.Time) bool {
	m := p.model
	late := !m.healedAt.IsZero() && now.Sub(later(m.healedAt, m.agentStartedAt)) > preemptionBound
	for _, q := range m.criticalPods {
		if q != p && q.lackedResourcesAt.After(p.firstDesiredAt) && q.canPreempt(p) &&
			(!late || now.Sub(q.lackedResourcesAt) <= preemptionBound) {
			return true
		}
	}
	return p.preempted
}
