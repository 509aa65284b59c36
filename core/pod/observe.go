package pod

import (
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/core/pleg"
	"seedlet.dev/core/userns"
)

// Observations of a pod in the runtime, by a relist or by an event of the runtime. Objects of the
// runtime only go forward (created, running, exited, removed), so a list can be late but never
// wrong: a state counts if it is further than the known one, and an absence counts if the object
// was known before the list was requested.

// ObserveSandbox handles a sandbox in the list with the given number, which was requested at
// requestedAt. It reports whether anything has changed.
func (p *Pod) ObserveSandbox(item *pleg.Sandbox, number uint64, requestedAt time.Time) bool {
	s := p.sandboxByID(item.ID)
	if s == nil && !requestedAt.After(p.LastRemoval) {
		return false
	}
	if s == nil {
		p.KnownWhole = p.KnownWhole && p.Op != 0 // it may be the one that is being created
		p.addSandbox(Sandbox{
			ID: item.ID, Attempt: item.Attempt, Ready: item.Ready,
			CreatedAt: item.CreatedAt, LearnedAt: requestedAt, seenIn: number,
			Cgroup: item.Cgroup, IDs: userns.Parse(item.UserNamespace),
			Allocation: item.Allocation,
		})
		return true
	}
	s.seenIn = number
	if s.Ready && !item.Ready {
		p.loseSandbox(s, requestedAt)
		return true
	}
	return false
}

// ObserveContainer handles a container in the list with the given number, which was requested at
// requestedAt. It reports whether anything has changed.
func (p *Pod) ObserveContainer(item *pleg.Container, number uint64,
	requestedAt, now time.Time) bool {
	c := p.containerByID(item.ID)
	if c == nil && !requestedAt.After(p.LastRemoval) {
		return false
	}
	if c == nil {
		added := containerFromList(item, requestedAt)
		added.seenIn = number
		added.advanceState(stateFromRuntime(item.State), now)
		added.observeRunning(item, requestedAt)
		p.KnownWhole = p.KnownWhole && p.Creating != nil && p.Creating.Name == item.Name
		p.addContainer(added)
		return true
	}
	c.seenIn = number
	ranLonger := c.observeRunning(item, requestedAt) && c.State == Exited // may reset the back-off
	return c.advanceState(stateFromRuntime(item.State), now) || ranLonger
}

// observeRunning reports whether the list shows the container running at a later time than was
// known.
func (c *Container) observeRunning(item *pleg.Container, requestedAt time.Time) bool {
	if item.State != runtimeapi.ContainerState_CONTAINER_RUNNING ||
		!requestedAt.After(c.LastSeenRunning) {
		return false
	}
	c.noteRunningAt(requestedAt)
	return true
}

// ObserveEvent handles an event of the runtime's stream (EventedPLEG). Like a list it only moves
// known objects forward; it adds none, because the event may be older than the known facts. It
// reports whether anything has changed, and whether a relist is needed to know more.
func (p *Pod) ObserveEvent(ev *pleg.Event, now time.Time) (changed, relist bool) {
	deleted := ev.Type == runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT
	c, s := p.containerByID(ev.ID), p.sandboxByID(ev.ID)
	switch {
	case c != nil:
		return p.observeContainerEvent(c, ev.Type, now), false
	case s != nil && deleted:
		return false, s.Op == 0 // the runtime sends the event before the removal
	case s != nil:
		changed = s.Ready && ev.Type == runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT
		if changed {
			p.loseSandbox(s, now)
		}
		return changed, false
	case deleted:
		p.LastRemoval = now // a list in flight may still have it
		return false, false
	}
	return false, true
}

func (p *Pod) observeContainerEvent(c *Container, eventType runtimeapi.ContainerEventType,
	now time.Time) bool {
	switch eventType {
	case runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT:
		return c.State == Created && c.advanceState(Running, now)
	case runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT:
		return c.advanceState(Exited, now)
	case runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT:
		p.LastRemoval = now
		p.dropContainer(c.ID)
		return true
	}
	return false
}

// advanceState moves the state forward, and reports whether it has changed. A container in state
// Unknown may turn out to run.
func (c *Container) advanceState(to State, now time.Time) bool {
	recovered := c.State == Unknown && to == Running
	if to.order() <= c.State.order() && !recovered {
		return false
	}
	c.State = to
	switch to {
	case Running:
		c.RunningSeenAt = now
	case Exited:
		c.ExitSeenAt = now
	}
	return true
}

// ObserveEnd ends a relist for this pod: objects that the lists did not have are dropped, and
// observations from before a failed operation are no longer stale. Lists that were requested before
// a removal do not add objects, so they are no whole observation of the pod. It reports whether
// anything has changed.
func (p *Pod) ObserveEnd(number uint64, requestedAt time.Time) bool {
	isWhole, changed := requestedAt.After(p.LastRemoval), false
	if !p.Observed && isWhole {
		p.Observed, changed = true, true
		p.restoreStartTime()
	}
	for i := 0; i < len(p.Sandboxes); {
		s := &p.Sandboxes[i]
		if s.seenIn == number || !s.LearnedAt.Before(requestedAt) {
			i++
			continue
		}
		p.loseSandbox(s, requestedAt)
		p.dropSandbox(s.ID)
		changed = true
	}
	for i := 0; i < len(p.Containers); {
		c := &p.Containers[i]
		if c.seenIn == number || !c.LearnedAt.Before(requestedAt) {
			i++
			continue
		}
		p.dropContainer(c.ID)
		changed = true
	}
	if isWhole && !p.StaleSince.IsZero() && requestedAt.After(p.StaleSince) {
		p.StaleSince = time.Time{}
		changed = true
	}
	return changed
}

// restoreStartTime dates the start of a pod that is older than this agent: when the oldest of its
// objects in the runtime was created.
func (p *Pod) restoreStartTime() {
	for i := range p.Sandboxes {
		p.StartTime = earlier(p.StartTime, p.Sandboxes[i].CreatedAt)
	}
	for i := range p.Containers {
		p.StartTime = earlier(p.StartTime, p.Containers[i].CreatedAt)
	}
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func stateFromRuntime(s runtimeapi.ContainerState) State {
	switch s {
	case runtimeapi.ContainerState_CONTAINER_CREATED:
		return Created
	case runtimeapi.ContainerState_CONTAINER_RUNNING:
		return Running
	case runtimeapi.ContainerState_CONTAINER_EXITED:
		return Exited
	default:
		return Unknown
	}
}
