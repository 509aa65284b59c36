package runtime

import (
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/sim/truth"
)

// What is odd but happens: the date is set, the runtime loses track of a container, and somebody
// removes a sandbox with the runtime's own tools.

// skews are how wrong the runtime's clock was when something happened to a container.
type skews struct{ created, started, finished time.Duration }

// SetClock has what happens from now on dated by a clock that is wrong by so much.
func (r *Runtime) SetClock(skew time.Duration) { r.skew = skew }

// state is what the runtime says.
func (c *container) state() runtimeapi.ContainerState {
	if c.lost {
		return runtimeapi.ContainerState_CONTAINER_UNKNOWN
	}
	return c.State
}

// Lose has the runtime lose track of a pod's container that runs, as after a restart in which it
// could not read its records: what is known of it is that it is there. It reports false when no
// such container runs. What stops it finds it; find may be called later in any case.
func (r *Runtime) Lose(podUID, name string) (find func(), lost bool) {
	for _, c := range r.containerOrder {
		if c.PodUID == podUID && c.Name == name && c.State == running && !c.lost {
			c.lost = true
			r.changed(c)
			r.tell(c, truth.Fact{Kind: truth.ContainerLost})
			return func() { r.find(c) }, true
		}
	}
	return nil, false
}

// find ends that a container is lost.
func (r *Runtime) find(c *container) {
	if c.lost && !c.gone {
		c.lost = false
		r.changed(c)
		r.tell(c, truth.Fact{Kind: truth.ContainerFound})
	}
}

// settle finds a container that is lost and has exited, as whoever stops it has the runtime do.
func (r *Runtime) settle(c *container) {
	if c.lost && c.State == exited {
		r.find(c)
		r.emit(c.ID, c.SandboxID, eventStopped)
	}
}

// byCall says whether the runtime itself has ended a process, for somebody who asked for it.
func byCall(cause string) bool {
	switch cause {
	case truth.CauseStop, truth.CauseSandbox, truth.CauseRemove:
		return true
	}
	return false
}

// RemoveByHand has somebody remove a sandbox and all that is in it with the runtime's own tools. He
// tries again while a call that is at work on a container stands in his way.
func (r *Runtime) RemoveByHand(id string) {
	s := r.sandboxes[id]
	if s == nil {
		return
	}
	in := r.inSandbox(s)
	for _, c := range in {
		if c.starting || c.removing {
			r.after(tryAgain, func() { r.RemoveByHand(id) })
			return
		}
	}
	for _, c := range in {
		r.exit(c, exitOnKill, truth.CauseSandbox)
	}
	r.takeDown(s, truth.CauseUser)
	for _, c := range in {
		r.dropContainer(c)
	}
	r.dropSandbox(s, truth.CauseUser)
}

const tryAgain = 20 * time.Millisecond
