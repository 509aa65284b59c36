package oracle

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/truth"
)

// preemption fires when a pod is ended to make room that nobody needs or that is not for it to
// make.
type preemption struct{}

func (*preemption) entry() Entry {
	return Entry{"preemption", "A pod is ended to make room only if a critical pod does not fit, " +
		"is told why, and is not as critical itself."}
}

const (
	reasonPreempted  = "Preempting"
	messagePreempted = "Preempted in order to admit critical pod"
)

func (*preemption) fact(w *world, f *truth.Fact) *finding {
	if !told(f) || !isPreempted(f.Write.After.Pod) || isPreempted(f.Write.Before.Pod) {
		return nil
	}
	object := f.Write.After.Pod
	p := w.pods[string(object.UID)]
	switch {
	case p == nil || p.static:
		return says("%s/%s is told to be pre-empted, but is a static pod", object.Namespace,
			object.Name)
	case object.Status.Message != messagePreempted:
		return says("pod %s is told to be pre-empted with message %q", p, object.Status.Message)
	}
	from, critical := w.knownSince(p.endBegan(), f.Time), false
	for _, q := range w.order {
		if q == p || !q.outranks(p) {
			continue
		}
		critical = true
		if q.waited(from) && w.mayBeShort(q, from) {
			return nil
		}
	}
	if !critical {
		return says("pod %s is told to be pre-empted, but no pod is more critical", p)
	}
	return says("pod %s is told to be pre-empted, but nobody needed its room", p)
}

func isPreempted(object *v1.Pod) bool {
	return object.Status.Phase == v1.PodFailed && object.Status.Reason == reasonPreempted
}

// endBegan is when the end of a pod began, at the earliest.
func (p *pod) endBegan() time.Time {
	began := p.world.now
	for _, c := range p.containers {
		if !c.stopAt.IsZero() && c.stopAt.Before(began) {
			began = c.stopAt
		}
	}
	if p.startedFirst.IsZero() {
		began = p.wishedFirst
	}
	return began
}

// outranks says whether another pod makes room for this one.
func (p *pod) outranks(other *pod) bool {
	if len(p.specs) == 0 || len(other.specs) == 0 || other.static {
		return false
	}
	mine, its := p.priority(), other.priority()
	if its < priorityMin {
		return p.static || mine >= priorityMin
	}
	return mine > its
}

func (p *pod) priority() int32 {
	if q := p.specs[len(p.specs)-1].Spec.Priority; q != nil {
		return *q
	}
	return 0
}

// waited says whether a pod was wanted, and had not begun, at some time since another.
func (p *pod) waited(from time.Time) bool {
	return (p.spec != nil || p.removedAt.After(from)) &&
		(p.startedFirst.IsZero() || p.startedFirst.After(from))
}

// mayBeShort says whether there may have been no room for a pod since a time.
func (w *world) mayBeShort(p *pod, from time.Time) bool {
	for _, name := range resourceNames {
		if asks := p.asks().of(name); asks == 0 || name == v1.ResourcePods &&
			int64(len(w.order)) <= w.has(name) {
			continue // there is always enough of it
		}
		used := int64(0)
		for _, other := range w.order {
			if other != p && other.mayOccupy(from) {
				used += other.asks().of(name)
			}
		}
		if p.asks().of(name) > w.has(name)-used {
			return true
		}
	}
	return false
}

// preemptedWithin is how long it may take from when a critical pod waits for room until those that
// make it have ended, and have been told so.
const preemptedWithin = 90 * time.Second

// press notes which critical pods wait for others to make room.
func (w *world) press(now time.Time) {
	for _, q := range w.critical {
		if q.spec != nil && q.startedFirst.IsZero() && !q.rejected &&
			w.mayBeShort(q, now.Add(-knownWithin)) {
			q.shortAt = now
		}
	}
}

// maybePreempted says whether a pod may have been ended to make room, or may be at any moment.
func (p *pod) maybePreempted(now time.Time) bool {
	w := p.world
	late := !w.healed.IsZero() && now.Sub(later(w.healed, w.started)) > preemptedWithin
	for _, q := range w.critical {
		if q != p && q.shortAt.After(p.wishedFirst) && q.outranks(p) &&
			(!late || now.Sub(q.shortAt) <= preemptedWithin) {
			return true
		}
	}
	return p.preempted
}
