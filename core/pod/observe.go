package pod

import (
	"strconv"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/core/pleg"
	"seedlet.dev/core/userns"
)

// What a relist says about a pod. Objects of the runtime only go forward (created, running,
// exited, gone), so what a list says about one can be late but never wrong: a state counts if it
// is further than the one known, and an absence counts if the object was known before the list
// was asked for.

// ObserveSandbox takes a line of the list with the given number, asked for at asked. It reports
// whether it says anything new.
func (p *Pod) ObserveSandbox(item *pleg.Sandbox, number uint64, asked time.Time) bool {
	s := p.sandbox(item.ID)
	if s == nil && !asked.After(p.Removed) {
		return false
	}
	if s == nil {
		p.addSandbox(Sandbox{
			ID: item.ID, Attempt: item.Attempt, Ready: item.Ready,
			CreatedAt: item.CreatedAt, Learned: asked, seenIn: number,
			Cgroup: item.Cgroup, IDs: userns.Parse(item.IDs),
			Claim: item.Claim,
		})
		return true
	}
	s.seenIn = number
	if s.Ready && !item.Ready {
		s.Ready = false
		return true
	}
	return false
}

// ObserveContainer is the same for a container.
func (p *Pod) ObserveContainer(item *pleg.Container, number uint64, asked, now time.Time) bool {
	c := p.container(item.ID)
	if c == nil && !asked.After(p.Removed) {
		return false
	}
	if c == nil {
		added := newContainer(item, asked)
		added.seenIn = number
		added.advance(stateOf(item.State), now)
		added.sawRunning(item, asked)
		p.addContainer(added)
		return true
	}
	c.seenIn = number
	longer := c.sawRunning(item, asked) && c.State == Exited // its back-off may be another one
	return c.advance(stateOf(item.State), now) || longer
}

// sawRunning reports whether the container is now known to have run for longer.
func (c *Container) sawRunning(item *pleg.Container, asked time.Time) bool {
	if item.State != runtimeapi.ContainerState_CONTAINER_RUNNING || !asked.After(c.Alive) {
		return false
	}
	c.alive(asked)
	return true
}

// ObserveEvent takes an event of the runtime's stream. Like a list it only moves forward what is
// known; it adds nothing, since it may be older than what is known. It reports whether it says
// anything new, and whether a list has to say more.
func (p *Pod) ObserveEvent(ev *pleg.Event, now time.Time) (news, look bool) {
	deleted := ev.Type == runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT
	c, s := p.container(ev.ID), p.sandbox(ev.ID)
	switch {
	case c != nil:
		return p.containerTold(c, ev.Type, now), false
	case s != nil && deleted:
		return false, s.Op == 0 // it is told before it is true
	case s != nil:
		news = s.Ready && ev.Type == runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT
		s.Ready = s.Ready && !news
		return news, false
	case deleted:
		p.Removed = now // a list on its way may still have it
		return false, false
	}
	return false, true
}

func (p *Pod) containerTold(c *Container, what runtimeapi.ContainerEventType, now time.Time) bool {
	switch what {
	case runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT:
		return c.State == Created && c.advance(Running, now)
	case runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT:
		return c.advance(Exited, now)
	case runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT:
		p.Removed = now
		p.dropContainer(c.ID)
		return true
	}
	return false
}

// advance moves the state forward, and reports whether it did. Of a container that the runtime
// had lost track of it may find out that it runs.
func (c *Container) advance(to State, now time.Time) bool {
	recovered := c.State == Unknown && to == Running
	if to.order() <= c.State.order() && !recovered {
		return false
	}
	c.State = to
	switch to {
	case Running:
		c.Ran = now
	case Exited:
		c.Exited = now
	}
	return true
}

// ObserveEnd closes a relist for this pod: what it did not have is gone, and what was stale is
// fresh again. It reports whether anything has changed.
func (p *Pod) ObserveEnd(number uint64, asked time.Time) bool {
	changed := !p.Observed
	if !p.Observed {
		p.Observed = true
		p.recallStart()
	}
	for i := 0; i < len(p.Sandboxes); {
		s := &p.Sandboxes[i]
		if s.seenIn == number || !s.Learned.Before(asked) {
			i++
			continue
		}
		p.dropSandbox(s.ID)
		changed = true
	}
	for i := 0; i < len(p.Containers); {
		c := &p.Containers[i]
		if c.seenIn == number || !c.Learned.Before(asked) {
			i++
			continue
		}
		p.dropContainer(c.ID)
		changed = true
	}
	if !p.Stale.IsZero() && asked.After(p.Stale) {
		p.Stale = time.Time{}
		changed = true
	}
	return changed
}

// recallStart takes a pod that was there before this agent to have started when the oldest of
// what it still has was made.
func (p *Pod) recallStart() {
	for i := range p.Sandboxes {
		p.Seen = earlierOf(p.Seen, p.Sandboxes[i].CreatedAt)
	}
	for i := range p.Containers {
		p.Seen = earlierOf(p.Seen, p.Containers[i].CreatedAt)
	}
}

func earlierOf(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func stateOf(s runtimeapi.ContainerState) State {
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

// number reads an annotation that is a number.
func number(text string, otherwise int64) int64 {
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil || n < 0 {
		return otherwise
	}
	return n
}
