package runtime

import (
	"time"

	"seedlet.dev/sim/truth"
	"seedlet.dev/world"
)

// What the engine does to the runtime and to what runs in it.

// Connect begins a life of the agent: answers go to it from now on.
func (r *Runtime) Connect(answer func(world.Event)) { r.wire.Connect(answer) }

// Disconnect ends a life of the agent: answers of what is in flight go nowhere. The work goes on
// or is given up, as drawn for each call.
func (r *Runtime) Disconnect() { r.wire.Disconnect() }

// Kill ends the running process of a pod's container at once, by somebody on the node or by the
// kernel. It reports false when no such container runs.
func (r *Runtime) Kill(podUID, name, cause string, code int32) bool {
	for _, c := range r.containerOrder {
		if c.PodUID == podUID && c.Name == name && c.State == running {
			r.exit(c, code, cause)
			return true
		}
	}
	return false
}

// KillSandbox ends the process that holds a sandbox. Its containers, which have process namespaces
// of their own, live on. It reports false when the sandbox is not ready.
func (r *Runtime) KillSandbox(id string) bool {
	s := r.sandboxes[id]
	if s == nil || s.State != ready {
		return false
	}
	r.haltSandbox(s, truth.CauseKilled)
	return true
}

// Restart ends the runtime's process and brings it back after downFor. Sandboxes and containers
// live on; what was being made is not made.
func (r *Runtime) Restart(downFor time.Duration) {
	r.opts.Truth.Add(truth.Fact{Time: r.now(), Kind: truth.RuntimeRestarted})
	r.wire.Break(downFor)
	r.forgetEvents()
	for _, c := range r.containerOrder {
		c.termSent = false // containerd remembers it in memory only
	}
}

// Reboot ends all processes of the machine: the records of what ran are found by the runtime when
// it comes back.
func (r *Runtime) Reboot() {
	r.wire.Break(0)
	for _, s := range r.sandboxOrder {
		if s.State == ready {
			s.IP = ""
			r.haltSandbox(s, truth.CauseReboot)
		}
	}
	for _, c := range r.containerOrder {
		r.exit(c, exitUnknown, truth.CauseReboot)
	}
	r.forgetEvents()
}

// SetReady says whether the runtime reports itself as ready.
func (r *Runtime) SetReady(is bool) { r.unready = !is }

// SetNetworkReady says whether the runtime reports its network as ready.
func (r *Runtime) SetNetworkReady(is bool) { r.networkDown = !is }
