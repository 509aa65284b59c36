package runtime

import (
	"time"

	"seedlet.dev/sim/truth"
	"seedlet.dev/world"
)

// Faults that the simulation engine injects into the runtime and its processes.

// Connect starts an incarnation of the agent, which receives all completions from now on.
func (r *Runtime) Connect(deliver func(world.Event)) { r.wire.Connect(deliver) }

// Disconnect ends an incarnation of the agent. Completions of calls in flight are dropped. Whether
// the work continues or is aborted is drawn for each call.
func (r *Runtime) Disconnect() { r.wire.Disconnect() }

// Kill ends the running process of a pod's container at once, as an administrator or the kernel
// does. It returns false if no such container runs.
func (r *Runtime) Kill(podUID, name, cause string, code int32) bool {
	for _, c := range r.containerOrder {
		if c.PodUID == podUID && c.Name == name && c.State == running {
			r.exit(c, code, cause)
			return true
		}
	}
	return false
}

// KillSandbox kills the process that holds a sandbox. The sandbox's containers have their own PID
// namespaces and keep running. It returns false if the sandbox is not ready.
func (r *Runtime) KillSandbox(id string) bool {
	s := r.sandboxes[id]
	if s == nil || s.State != ready {
		return false
	}
	r.markSandboxNotReady(s, truth.CauseKilled)
	return true
}

// Restart ends the runtime's process and starts it again after downFor. Sandboxes and containers
// keep running; objects that were being created are not created.
func (r *Runtime) Restart(downFor time.Duration) {
	r.opts.Truth.Add(truth.Fact{Time: r.now(), Kind: truth.RuntimeRestarted})
	r.wire.Crash(downFor)
	r.clearEvents()
	r.forgetTransitions()
}

// Reboot ends all processes of the machine. The runtime keeps the records of its containers and
// sandboxes.
func (r *Runtime) Reboot() {
	r.wire.Crash(0)
	for _, s := range r.sandboxOrder {
		if s.State == ready {
			s.IP = ""
			r.markSandboxNotReady(s, truth.CauseReboot)
		}
	}
	for _, c := range r.containerOrder {
		r.exit(c, exitCodeUnknown, truth.CauseReboot)
	}
	r.forgetTransitions()
	r.clearEvents()
}

// forgetTransitions forgets what containerd keeps in memory only: which containers were being
// started or stopped. Those that were being started are created, as before.
func (r *Runtime) forgetTransitions() {
	for _, c := range r.containerOrder {
		c.starting, c.termSent = false, false
	}
}

// SetStaleStats sets whether the runtime answers with statistics of pods from before the last ones.
func (r *Runtime) SetStaleStats(areStale bool) { r.statsStale = areStale }

// SetMissingStats sets whether the statistics of the oldest ready sandbox cannot be read, so that
// they are missing among those of the others.
func (r *Runtime) SetMissingStats(areMissing bool) { r.statsMissing = areMissing }

// SetReady sets whether the runtime reports RuntimeReady.
func (r *Runtime) SetReady(isReady bool) { r.unready = !isReady }

// SetNetworkReady sets whether the runtime reports NetworkReady. While it does not, it creates no
// sandbox that has a network of its own.
func (r *Runtime) SetNetworkReady(isReady bool) { r.networkDown = !isReady }
