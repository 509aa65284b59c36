package runtime

import (
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/sim/truth"
)

// Rare anomalies: a change of the clock, a container whose state the runtime does not know, and a
// sandbox that an administrator removes with the runtime's own tools.

// clockSkews are the errors of the runtime's clock when a container was created, started and
// finished.
type clockSkews struct{ created, started, finished time.Duration }

// SetClockSkew sets the error of the clock that dates everything from now on.
func (r *Runtime) SetClockSkew(skew time.Duration) { r.skew = skew }

// reportedState returns the state as the runtime reports it.
func (c *container) reportedState() runtimeapi.ContainerState {
	if c.stateUnknown {
		return runtimeapi.ContainerState_CONTAINER_UNKNOWN
	}
	return c.State
}

// LoseContainerState makes the state of a running container unknown to the runtime, as after a
// restart of the runtime that could not load the container. The container is still listed. Lose
// returns false if no such container runs. Stopping the container recovers its state; recoverState
// may be called later in any case.
func (r *Runtime) LoseContainerState(podUID, name string) (recoverState func(), lost bool) {
	for _, c := range r.containerOrder {
		if c.PodUID == podUID && c.Name == name && c.State == running && !c.stateUnknown {
			c.stateUnknown = true
			r.invalidate(c)
			r.recordFact(c, truth.Fact{Kind: truth.ContainerLost})
			return func() { r.recoverContainerState(c) }, true
		}
	}
	return nil, false
}

// recoverContainerState makes the state of a container known again.
func (r *Runtime) recoverContainerState(c *container) {
	if c.stateUnknown && !c.removed {
		c.stateUnknown = false
		r.invalidate(c)
		r.recordFact(c, truth.Fact{Kind: truth.ContainerFound})
	}
}

// recoverIfExited recovers an unknown state of a container that has exited, as a request to stop it
// does in containerd.
func (r *Runtime) recoverIfExited(c *container) {
	if c.stateUnknown && c.State == exited {
		r.recoverContainerState(c)
		r.emitEvent(c.ID, c.SandboxID, eventStopped)
	}
}

// isRequestedExit reports whether the runtime ended a process because of a request.
func isRequestedExit(cause string) bool {
	switch cause {
	case truth.CauseStop, truth.CauseSandbox, truth.CauseRemove:
		return true
	}
	return false
}

// RemoveSandboxManually removes a sandbox and its containers as an administrator does with the
// runtime's own tools. It retries while another call is starting or removing a container.
func (r *Runtime) RemoveSandboxManually(id string) {
	s := r.sandboxes[id]
	if s == nil {
		return
	}
	in := r.containersIn(s)
	for _, c := range in {
		if c.starting || c.removing {
			r.after(manualRetryDelay, func() { r.RemoveSandboxManually(id) })
			return
		}
	}
	for _, c := range in {
		r.exit(c, exitCodeKill, truth.CauseSandbox)
	}
	r.tearDownSandbox(s, truth.CauseAdministrator)
	for _, c := range in {
		r.deleteContainer(c, truth.CauseAdministrator)
	}
	r.deleteSandbox(s, truth.CauseAdministrator)
}

const manualRetryDelay = 20 * time.Millisecond

// RemoveImageManually removes an image at once. Containers that have been created from it stay.
func (r *Runtime) RemoveImageManually(ref string) {
	if img := r.image(ref); img.present {
		r.deleteImage(img, truth.CauseAdministrator)
	}
}
