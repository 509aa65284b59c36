package pod

import (
	"strconv"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/core/pleg"
)

// What a relist says about a pod. Objects of the runtime only go forward (created, running,
// exited, gone), so what a list says about one can be late but never wrong: a state counts if it
// is further than the one known, and an absence counts if the object was known before the list
// was asked for.

// ObserveSandbox takes a line of the list with the given number, asked for at asked. It reports
// whether it says anything new.
func (p *Pod) ObserveSandbox(item *pleg.Sandbox, number uint64, asked time.Time) bool {
	s := p.sandbox(item.ID)
	if s == nil {
		p.addSandbox(Sandbox{
			ID: item.ID, Attempt: item.Attempt, Ready: item.Ready,
			CreatedAt: item.CreatedAt, Learned: asked, seenIn: number,
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
func (p *Pod) ObserveContainer(item *pleg.Container, number uint64, asked time.Time) bool {
	c := p.container(item.ID)
	if c == nil {
		added := newContainer(item, asked)
		added.State, added.seenIn = stateOf(item.State), number
		p.addContainer(added)
		return true
	}
	c.seenIn = number
	return c.advance(stateOf(item.State))
}

// advance moves the state forward, and reports whether it did.
func (c *Container) advance(to State) bool {
	if to.order() <= c.State.order() {
		return false
	}
	c.State = to
	return true
}

// ObserveEnd closes a relist for this pod: what it did not have is gone, and what was stale is
// fresh again. It reports whether anything has changed.
func (p *Pod) ObserveEnd(number uint64, asked time.Time) bool {
	changed := !p.Observed
	p.Observed = true
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
