package pod

import (
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/core/timer"
)

// Stop holds the facts about the stop of one running container: its preStop hook, then TERM, and
// KILL when the rest of the grace period has passed. The grace period includes the preStop hook.
type Stop struct {
	Reason    string        `json:"reason,omitempty"`
	Unhealthy bool          `json:"unhealthy,omitempty"` // for a failed probe, to be restarted
	StartedAt time.Time     `json:"startedAt"`
	Grace     time.Duration `json:"grace"`
	PreStop   Hook          `json:"preStop"`
	InOrder   bool          `json:"inOrder,omitempty"`   // of a sidecar that is stopped with its pod
	KillAfter time.Duration `json:"killAfter,omitempty"` // from TERM to KILL; zero before TERM
	Requested time.Duration `json:"requested,omitempty"` // KillAfter of the last request
}

// The reasons of stops, as the Killing event has them. A stop without a reason has the kubelet's
// general message.
const (
	stopReasonPostStartHook = "FailedPostStartHook" // the whole message of the event
	stopReasonChanged       = "definition changed, will be restarted"
	stopReasonResize        = "resize requires restart"
	stopReasonUnknownState  = "is in \"unknown\" state, try killing it before restart"
	stopReasonRestartAll    = "is stopped, as all containers of the pod restart"
	stopReasonLiveness      = "failed liveness probe"
	stopReasonStartup       = "failed startup probe"
	stopReasonRestartSuffix = ", will be restarted" // after a failed probe
)

// killingMessage returns the message of the Killing event of a container. The messages about init
// containers do not say that the container will be restarted, as with the kubelet
// (computeInitContainerActions in pkg/kubelet/kuberuntime/kuberuntime_container.go).
func (c *Container) killingMessage(role Role) string {
	reason := c.Stop.Reason
	isInit := role == Init || role == Sidecar
	switch {
	case reason == "":
		return "Stopping container " + c.Name
	case reason == stopReasonPostStartHook:
		return stopReasonPostStartHook
	case isInit && reason == stopReasonUnknownState:
		return "Init container " + reason
	case reason == stopReasonUnknownState:
		return "Container " + reason
	case isInit && reason != stopReasonRestartAll:
		return "Init container " + c.Name + " " + strings.TrimSuffix(reason, stopReasonRestartSuffix)
	}
	return "Container " + c.Name + " " + reason
}

// killAfterMin is the least time between TERM and KILL, however short the grace period or what is
// left of it (minimumGracePeriodInSeconds in pkg/kubelet/kuberuntime/kuberuntime_manager.go).
const killAfterMin = 2 * time.Second

// stopContainer stops a container, as far as that is possible now: it starts the stop, runs the
// preStop hook, and issues StopContainer.
//
// A StopContainer request that has failed or timed out is repeated with the same timeout: the first
// request may not have sent TERM, and the container would have less than its grace period, or than
// what a hastened end leaves of it.
func (p *Pod) stopContainer(c *Container, grace time.Duration, reason string, env *Env,
	w *wakeTimer) {
	if p.beginStop(c, grace, reason, env, w) && !p.runPreStopHook(c, env, w) {
		p.issueStop(c, env, w)
	}
}

// beginStop starts the stop of a container, or hastens one that has started, and reports whether it
// can go on. A container whose removal is in flight is not stopped.
func (p *Pod) beginStop(c *Container, grace time.Duration, reason string, env *Env,
	w *wakeTimer) bool {
	if c.Stop == nil {
		if c.Op != 0 || w.waitUntil(c.NotBefore) {
			return false
		}
		if p.isSleepingAfterStart(c, env.Effects.Now()) {
			env.countShortenedSleep()
		}
		c.Stop = &Stop{Reason: reason, StartedAt: env.Effects.Now(), Grace: grace}
		role := App
		if p.specContainer(c.Name) != nil {
			role = p.roleOf(c.Name)
		}
		p.recordEvent(env, c.Name, normal, "Killing", "%s", c.killingMessage(role))
	}
	now := env.Effects.Now()
	if s := c.Stop; grace < s.Grace {
		s.Grace = grace
		// A stop that began before the end of the pod, as for a lost sandbox, has the whole of the pod's.
		s.StartedAt = timer.Later(s.StartedAt, p.Termination.Since)
		if !s.PreStop.EndedAt.IsZero() {
			s.PreStop.EndedAt = timer.Later(s.PreStop.EndedAt, s.StartedAt)
		}
		c.shortenStop(max(s.StartedAt.Add(grace).Sub(now), killAfterMin), true, env)
	}
	if hastened := p.Termination.Hastened; hastened > 0 {
		// A request whose time has passed may be lost. One that has time left ends the container sooner.
		isOver := !now.Before(c.Stop.StartedAt.Add(c.Stop.Grace))
		c.shortenStop(hastened, isOver, env)
	}
	return true
}

// shortenStop shortens the time from TERM to KILL, for the next request, and if replace is set also
// for the one in flight: of several the one with the shortest timeout decides.
func (c *Container) shortenStop(left time.Duration, replace bool, env *Env) {
	if c.Stop.KillAfter == 0 {
		return // none was issued
	}
	c.Stop.KillAfter = min(c.Stop.KillAfter, left)
	if replace && c.Op != 0 && c.Stopping && c.Stop.Requested > left {
		env.Effects.Cancel(c.Op)
		c.Op = 0
	}
}

// issueStop issues StopContainer: the runtime sends TERM, and KILL when the rest of the grace
// period has passed. HandleCompletion handles the result or the timeout.
func (p *Pod) issueStop(c *Container, env *Env, w *wakeTimer) {
	if c.Op != 0 || w.waitUntil(c.NotBefore) {
		return
	}
	s := c.Stop
	if s.KillAfter == 0 {
		s.KillAfter = max(s.Grace-c.usedGrace(env.Effects.Now()), killAfterMin)
		if hastened := p.Termination.Hastened; hastened > 0 {
			s.KillAfter = min(s.KillAfter, hastened)
		}
	}
	c.Stopping, s.Requested = true, s.KillAfter
	c.Op = env.Effects.Issue(p.Key(), c.ID, s.KillAfter+env.Node.RuntimeTimeout,
		&runtimeapi.StopContainerRequest{
			ContainerId: c.ID, Timeout: int64((s.KillAfter + time.Second - 1) / time.Second),
		})
}

// usedGrace returns how much of the grace period has passed: until the preStop hook has ended, or
// while a sidecar that is stopped with its pod has waited for its turn. It is not shortened by a
// delay of the agent, as while the runtime returns errors.
func (c *Container) usedGrace(now time.Time) time.Duration {
	switch s := c.Stop; {
	case c.SidecarOrder != 0 && s.InOrder:
		return now.Sub(s.StartedAt)
	case s.PreStop.EndedAt.IsZero():
		return 0
	default:
		return s.PreStop.EndedAt.Sub(s.StartedAt)
	}
}

// stopAllContainers stops all live containers: the app containers at once, then the sidecars one by
// one, the last one first (KEP-753). All preStop hooks start at once. A sidecar whose grace period
// is used up waits for no other container (waitForTurn in kuberuntime_termination_order.go). It
// reports whether any container is still live.
func (p *Pod) stopAllContainers(env *Env, w *wakeTimer) bool {
	const reason = "" // the general message

	next := (*Container)(nil) // the sidecar to stop next, or an app container that is still live
	for i := range p.Containers {
		c := &p.Containers[i]
		if !c.isLive() {
			continue
		}
		if c.FromOtherAgent && c.SidecarOrder == 0 { // the annotation of the order is this agent's own
			c.SidecarOrder = p.sidecarOrder(c.Name)
		}
		if next == nil || c.SidecarOrder == 0 ||
			next.SidecarOrder != 0 && c.SidecarOrder > next.SidecarOrder {
			next = c
		}
		grace := p.graceOf(c, env.Effects.Now())
		if c.SidecarOrder == 0 {
			p.stopContainer(c, grace, reason, env, w)
		} else if p.beginStop(c, grace, reason, env, w) {
			c.Stop.InOrder = true
			if !p.runPreStopHook(c, env, w) && !w.waitUntil(c.Stop.StartedAt.Add(c.Stop.Grace)) {
				p.issueStop(c, env, w)
			}
		}
	}
	if next != nil && next.SidecarOrder != 0 && p.isSettled() { // no start may be in flight
		p.stopContainer(next, p.graceOf(next, env.Effects.Now()), reason, env, w)
	}
	return next != nil
}

// graceOf returns the grace period of a container that is stopped with its pod. If the pod was
// hastened while it ended, a stop that began later than its end has no longer than that leaves.
func (p *Pod) graceOf(c *Container, now time.Time) time.Duration {
	t := &p.Termination
	switch {
	case p.Stage == Syncing:
		return p.GracePeriod()
	case t.Hastened == 0:
		return t.Grace
	}
	if c.Stop != nil {
		now = c.Stop.StartedAt
	}
	return min(t.Grace, max(t.Since.Add(t.Grace).Sub(now), t.Hastened))
}
