package pod

import (
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/core/op"
	"seedlet.dev/core/probe"
	"seedlet.dev/world"
)

// Stop is the end of one container that runs: its preStop hook, then TERM, and KILL after what is
// left of the grace period, all counted from when it began.
type Stop struct {
	Reason string        `json:"reason,omitempty"`
	Ailing bool          `json:"ailing,omitempty"` // for a probe, to be run anew
	At     time.Time     `json:"at"`
	Grace  time.Duration `json:"grace"`
	Hook   Hook          `json:"hook"`           // preStop
	Left   time.Duration `json:"left,omitempty"` // from TERM to KILL; zero before TERM
}

// The reasons of ends, as far as they are told. All others are the pod's.
const (
	stopHook     = "FailedPostStartHook" // is told as it is
	stopChanged  = "definition changed, will be restarted"
	stopLost     = "is in \"unknown\" state, try killing it before restart"
	stopRound    = "is stopped, as all containers of the pod restart"
	stopLiveness = "failed liveness probe"
	stopStartup  = "failed startup probe"
	stopRestarts = ", will be restarted" // after a probe
)

// killing is what is told of the end of a container.
func (c *Container) killing() string {
	switch c.Stop.Reason {
	case "":
		return "Stopping container " + c.Name
	case stopHook:
		return stopHook
	}
	return "Container " + c.Name + " " + c.Stop.Reason
}

// graceMin is the time between TERM and KILL at least, when the hook or the wait for others has
// used the grace period up.
const graceMin = 2 * time.Second

// stop ends a container, as far as that can be done now.
//
// A stop that has to be repeated gets as long again: whether the first one has sent TERM is not
// known, and a container is never given less than its due.
func (p *Pod) stop(c *Container, grace time.Duration, reason string, env *Env, w *waits) {
	if p.beginStop(c, grace, reason, env, w) && !p.preStop(c, env, w) {
		p.term(c, env, w)
	}
}

// beginStop begins the end of a container, or hastens one that has begun, and reports whether it
// can go on. What is being removed needs none.
func (p *Pod) beginStop(c *Container, grace time.Duration, reason string, env *Env,
	w *waits) bool {
	if c.Stop == nil {
		if c.Op != 0 || w.pending(c.NotBefore) {
			return false
		}
		c.Stop = &Stop{Reason: reason, At: env.Out.Now(), Grace: grace}
		p.event(env, c.Name, normal, "Killing", "%s", c.killing())
	}
	if s := c.Stop; grace < s.Grace {
		s.Grace = grace
		left := max(s.At.Add(grace).Sub(env.Out.Now()), graceMin)
		if s.Left > left {
			s.Left = left
			if c.Op != 0 && c.Stopping { // the runtime kills at the end of the shortest wait
				env.Out.Forget(c.Op)
				c.Op = 0
			}
		}
	}
	return true
}

// term has the runtime send TERM, and KILL when the rest of the grace period has passed.
func (p *Pod) term(c *Container, env *Env, w *waits) {
	if c.Op != 0 || w.pending(c.NotBefore) {
		return
	}
	s := c.Stop
	if s.Left == 0 {
		s.Left = max(s.At.Add(s.Grace).Sub(env.Out.Now()), graceMin)
	}
	c.Stopping = true
	c.Op = env.Out.Ask(p.Key(), c.ID, s.Left+env.Node.RuntimeTimeout,
		&runtimeapi.StopContainerRequest{
			ContainerId: c.ID, Timeout: int64((s.Left + time.Second - 1) / time.Second),
		})
}

// stopAll ends every container that runs: all but the sidecars at once, then the sidecars one by
// one, the last one first (KEP-753). The hooks of all begin at once. It reports whether any is
// still running.
func (p *Pod) stopAll(env *Env, w *waits) bool {
	grace, reason := p.grace(), ""
	if p.Stage != Syncing {
		grace = p.Kill.Grace
	}
	last := (*Container)(nil) // the sidecar to stop next
	for i := range p.Containers {
		c := &p.Containers[i]
		if !c.live() {
			continue
		}
		if last == nil || c.Sidecar == 0 || last.Sidecar != 0 && c.Sidecar > last.Sidecar {
			last = c
		}
		if c.Sidecar == 0 {
			p.stop(c, grace, reason, env, w)
		} else if p.beginStop(c, grace, reason, env, w) {
			p.preStop(c, env, w)
		}
	}
	if last != nil && last.Sidecar != 0 && p.settled() { // nothing else may be about to start
		p.stop(last, grace, reason, env, w)
	}
	return last != nil
}

// told takes the answer to a probe or a hook.
func (p *Pod) told(r op.Record, ev world.Event, env *Env) {
	id, what := cutSubject(r.Subject)
	c := p.container(id)
	if c == nil {
		return
	}
	switch what {
	case postStart, preStop:
		p.hooked(c, what, r, ev, env)
	default:
		p.probed(c, probe.Kind(what), r, ev, env)
	}
}
