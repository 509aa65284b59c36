package marks

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/core/mirror"
	"seedlet.dev/sim/truth"
	"seedlet.dev/sim/wire"
)

// trigger is when the condition of a place is looked at: just before a fact of this kind has an
// effect on what the watcher knows, or one of the moments below.
type trigger string

const (
	podDesired            trigger = "pod desired"
	podNoLongerDesired    trigger = "pod no longer desired"
	agentStarted          trigger = "agent started"
	agentIsKilled         trigger = "agent killed"
	machineReboots        trigger = "reboot"
	runtimeRestarts       trigger = "runtime restart"
	apiBecomesUnreachable trigger = "API unreachable"
	watchesBreak          trigger = "watches break"
	dateChanges           trigger = "date changed"
	busIsLost             trigger = "bus lost"
	networkFails          trigger = "network not ready"
	agentIsPaused         trigger = "agent paused"
)

// place is a situation that has a name.
type place struct {
	name, about string
	rare        bool
	on          trigger
	holds       func(*Watcher, *moment) bool
}

// The values of place.rare.
const (
	common = false
	rare   = true
)

// placesOn are the places of each trigger.
var placesOn = func() map[trigger][]ID {
	on := map[trigger][]ID{}
	for i := range places {
		on[places[i].on] = append(on[places[i].on], ID(i))
	}
	return on
}()

// places are all places. A row is its name, a sentence, whether it is rare, when its condition is
// looked at, and the condition.
var places = slices.Concat(placesOfContainers, placesOfImages, placesOfSandboxes, placesOfPods,
	placesOfObjects, placesOfStrikes, placesOfMemory, placesOfEvictions, placesOfShutdowns,
	placesOfResizes)

var placesOfContainers = []place{
	{"exit-before-start-answered", "A container exits before the answer to its start.",
		common, trigger(truth.ContainerExited), func(w *Watcher, m *moment) bool {
			return w.isInFlight("StartContainer", m.pod, m.ofContainer)
		}},
	{"exit-before-stop-arrives", "A container exits before the request to stop it has an effect.",
		rare, trigger(truth.ContainerExited), func(w *Watcher, m *moment) bool {
			return !m.container.stopping && w.isInFlight("StopContainer", m.pod, m.ofContainer)
		}},
	{"exit-during-probe", "A container exits while an exec probe runs in it.",
		common, trigger(truth.ContainerExited), func(w *Watcher, m *moment) bool {
			return m.pod.desired && w.isInFlight("ExecSync", m.pod, m.ofContainer)
		}},
	{"exit-during-prestop", "A container exits while its preStop hook runs.",
		common, trigger(truth.ContainerExited), func(_ *Watcher, m *moment) bool {
			return m.container.preStops > 0
		}},
	{"exit-during-poststart", "A container exits while its postStart hook runs.",
		rare, trigger(truth.ContainerExited), func(_ *Watcher, m *moment) bool {
			return m.container.postStarts > 0
		}},
	{"exit-while-agent-down", "A container exits while the agent is down.",
		common, trigger(truth.ContainerExited), func(w *Watcher, m *moment) bool {
			return w.agentDown && m.fact.Cause == truth.CauseSelf
		}},
	{"exit-while-agent-paused", "A container exits while the agent's process is paused.",
		common, trigger(truth.ContainerExited), func(w *Watcher, m *moment) bool {
			return m.now.Before(w.agentPausedUntil) && m.fact.Cause == truth.CauseSelf
		}},
	{"sidecar-exit-before-term", "A sidecar exits while its pod ends, before it got TERM.",
		common, trigger(truth.ContainerExited), func(_ *Watcher, m *moment) bool {
			return m.container.sidecar && !m.pod.desired && !m.container.stopping
		}},
	{"sidecar-restart-while-ending", "A sidecar is restarted while its pod ends.",
		rare, trigger(truth.ContainerStarted), func(_ *Watcher, m *moment) bool {
			return m.container.sidecar && m.container.attempt > 0 && !m.pod.desired
		}},
	{"start-in-undesired-pod", "A container starts in a pod that is no longer desired.",
		common, trigger(truth.ContainerStarted), func(_ *Watcher, m *moment) bool {
			return !m.pod.desired
		}},
	{"start-while-agent-down", "A container starts while the agent is down.",
		common, trigger(truth.ContainerStarted), func(w *Watcher, _ *moment) bool {
			return w.agentDown
		}},
	{"create-while-agent-down", "A container is created while the agent is down.",
		common, trigger(truth.ContainerCreated), func(w *Watcher, _ *moment) bool {
			return w.agentDown
		}},
	{"term-twice", "A container gets TERM a second time.",
		common, trigger(truth.StopRequested), func(_ *Watcher, m *moment) bool {
			return m.container.stopping
		}},
	{"term-during-prestop", "A container gets TERM before its preStop hook has ended.",
		common, trigger(truth.StopRequested), func(_ *Watcher, m *moment) bool {
			return m.container.preStops > 0
		}},
	{"kill-after-grace", "A container gets KILL because its grace period has passed.",
		common, trigger(truth.KillRequested), func(_ *Watcher, m *moment) bool {
			return m.fact.Cause == truth.CauseStop && m.container.stopping
		}},
	{"prestop-twice", "The preStop hook of a container runs a second time before the first has ended.",
		rare, trigger(truth.HandlerRequested), func(_ *Watcher, m *moment) bool {
			return m.container.preStops > 0 && m.container.isPreStop(m.fact.Request)
		}},
	{"prestop-fails", "A preStop hook fails.",
		common, trigger(truth.HandlerEnded), func(_ *Watcher, m *moment) bool {
			return m.container.isPreStop(m.fact.Request) && m.fact.Reply != truth.ReplySuccess
		}},
	{"probe-fails-while-ending", "A probe fails while its pod ends.",
		rare, trigger(truth.HandlerEnded), func(_ *Watcher, m *moment) bool {
			return !m.pod.desired && m.fact.Reply.Class() == truth.ReplyFailure &&
				!m.container.isPreStop(m.fact.Request) && !m.container.isPostStart(m.fact.Request)
		}},
	{"lost-while-stopping", "The runtime loses track of a container that got TERM.",
		rare, trigger(truth.ContainerLost), func(_ *Watcher, m *moment) bool {
			return m.container.stopping
		}},
	{"removed-while-agent-down", "A container is removed while the agent is down.",
		rare, trigger(truth.ContainerRemoved), func(w *Watcher, _ *moment) bool {
			return w.agentDown
		}},
}

var placesOfImages = []place{
	{"image-gone-before-creation", "An image is removed by hand while a container of it is created.",
		common, trigger(truth.ImageRemoved), func(w *Watcher, m *moment) bool {
			return m.fact.Cause == truth.CauseAdministrator && w.isInFlight("CreateContainer", nil,
				func(c *wire.Call) bool {
					request, isCreation := c.Effect.Body.(*runtimeapi.CreateContainerRequest)
					return isCreation &&
						request.GetConfig().GetImage().GetUserSpecifiedImage() == m.fact.Image
				})
		}},
}

var placesOfSandboxes = []place{
	{"sandbox-for-undesired-pod", "A sandbox becomes ready for a pod that is no longer desired.",
		rare, trigger(truth.SandboxReady), func(_ *Watcher, m *moment) bool {
			return !m.pod.desired
		}},
	{"sandbox-ready-while-agent-down", "A sandbox becomes ready while the agent is down.",
		common, trigger(truth.SandboxReady), func(w *Watcher, _ *moment) bool {
			return w.agentDown
		}},
	{"sandbox-dies-during-prestop", "A sandbox dies while a preStop hook runs in it.",
		rare, trigger(truth.SandboxStopped), func(_ *Watcher, m *moment) bool {
			return m.isDeath() && m.pod.any(inPreStop)
		}},
	{"sandbox-dies-during-init", "A sandbox dies while an init container runs in it.",
		rare, trigger(truth.SandboxStopped), func(_ *Watcher, m *moment) bool {
			return m.isDeath() && m.pod.any(isRunningInit)
		}},
	{"sandbox-dies-during-create", "A sandbox dies while a container is created in it.",
		rare, trigger(truth.SandboxStopped), func(w *Watcher, m *moment) bool {
			return m.isDeath() && w.isInFlight("CreateContainer", m.pod, nil)
		}},
	{"sandbox-dies-while-stopping", "A sandbox dies while a container in it ends after TERM.",
		rare, trigger(truth.SandboxStopped), func(_ *Watcher, m *moment) bool {
			return m.isDeath() && m.pod.any(isStopping)
		}},
	{"sandbox-dies-while-agent-down", "A sandbox dies while the agent is down.",
		common, trigger(truth.SandboxStopped), func(w *Watcher, m *moment) bool {
			return m.isDeath() && w.agentDown
		}},
	{"sandbox-removed-before-answer", "A sandbox is removed by hand before its creation is answered.",
		rare, trigger(truth.SandboxRemoved), func(w *Watcher, m *moment) bool {
			return m.fact.Cause == truth.CauseAdministrator &&
				w.isInFlight("RunPodSandbox", m.pod, nil)
		}},
	{"finalizer-outlives-sandbox", "A finalizer keeps a pod of which nothing is left on the node.",
		common, trigger(truth.SandboxRemoved), func(_ *Watcher, m *moment) bool {
			return m.pod.kept && m.pod.sandboxes == 1
		}},
}

// isDeath reports whether a sandbox stops for a reason other than the agent.
func (m *moment) isDeath() bool {
	return slices.Contains([]string{truth.CauseKilled, truth.CauseRuntime, truth.CauseReboot,
		truth.CauseAdministrator}, m.fact.Cause)
}

var placesOfPods = []place{
	{"undesired-during-pull", "A pod is deleted while an image of it is pulled.",
		common, podNoLongerDesired, func(w *Watcher, m *moment) bool {
			return w.isInFlight("PullImage", nil, m.pod.isImageOf)
		}},
	{"undesired-during-sandbox", "A pod is deleted while its sandbox is created.",
		rare, podNoLongerDesired, func(w *Watcher, m *moment) bool {
			return w.isInFlight("RunPodSandbox", m.pod, nil)
		}},
	{"undesired-during-create", "A pod is deleted while a container of it is created.",
		rare, podNoLongerDesired, func(w *Watcher, m *moment) bool {
			return w.isInFlight("CreateContainer", m.pod, nil)
		}},
	{"undesired-during-start", "A pod is deleted while a container of it is started.",
		rare, podNoLongerDesired, func(w *Watcher, m *moment) bool {
			return w.isInFlight("StartContainer", m.pod, nil)
		}},
	{"undesired-during-init", "A pod is deleted while an init container of it runs.",
		rare, podNoLongerDesired, func(_ *Watcher, m *moment) bool {
			return m.pod.any(isRunningInit)
		}},
	{"undesired-during-poststart", "A pod is deleted while a postStart hook of it runs.",
		rare, podNoLongerDesired, func(_ *Watcher, m *moment) bool {
			return m.pod.any(inPostStart)
		}},
	{"undesired-while-stopping", "A pod is deleted while a container of it ends after TERM.",
		rare, podNoLongerDesired, func(_ *Watcher, m *moment) bool {
			return m.pod.any(isStopping)
		}},
	{"undesired-while-agent-down", "A pod is deleted while the agent is down.",
		common, podNoLongerDesired, func(w *Watcher, m *moment) bool {
			return w.agentDown && m.pod.any(isRunning)
		}},
	{"successor-of-ending-pod", "A pod has the name of another one that still ends.",
		common, podDesired, func(w *Watcher, m *moment) bool {
			return !m.pod.isStatic() && !m.pod.desired && w.anyOther(m.pod, (*pod).isEnding)
		}},
	{"static-successor-of-ending-pod", "A static pod changes while its predecessor ends.",
		common, podDesired, func(w *Watcher, m *moment) bool {
			return m.pod.isStatic() && !m.pod.desired && w.anyOther(m.pod, (*pod).isEnding)
		}},
	{"back-while-ending", "A pod is desired again under its UID while it ends.",
		common, podDesired, func(_ *Watcher, m *moment) bool { return m.pod.isEnding() }},
	{"changed-while-ending", "A static pod changes back while it and its successor are on the node.",
		rare, podDesired, func(w *Watcher, m *moment) bool {
			return m.pod.isEnding() && w.anyOther(m.pod, func(o *pod) bool { return o.sandboxes > 0 })
		}},
}

var placesOfObjects = []place{
	{"ended-by-another-client", "Another client reports a pod as terminal while its containers run.",
		common, trigger(truth.ObjectUpdated), func(_ *Watcher, m *moment) bool {
			after := m.fact.Write.After.Pod
			return after != nil && m.fact.Write.Status && m.fact.Write.Incarnation == 0 &&
				(after.Status.Phase == v1.PodFailed || after.Status.Phase == v1.PodSucceeded) &&
				m.pod.any(isRunning)
		}},
	{"configuration-during-create", "A ConfigMap or Secret changes while a container is created.",
		rare, trigger(truth.ObjectUpdated), func(w *Watcher, m *moment) bool {
			after := &m.fact.Write.After
			return (after.ConfigMap != nil || after.Secret != nil) &&
				w.isInFlight("CreateContainer", nil, nil)
		}},
	{"removed-by-force", "A pod is removed by force while its containers run.",
		common, trigger(truth.ObjectDeleted), func(_ *Watcher, m *moment) bool {
			before := m.fact.Write.Before.Pod
			return before != nil && !mirror.IsMirror(before) && m.fact.Write.Incarnation == 0 &&
				m.pod.any(isRunning)
		}},
	{"mirror-deleted", "The mirror of a static pod is deleted while its containers run.",
		common, trigger(truth.ObjectDeleted), func(_ *Watcher, m *moment) bool {
			before := m.fact.Write.Before.Pod
			return before != nil && mirror.IsMirror(before) && m.fact.Write.Incarnation == 0 &&
				m.pod.any(isRunning)
		}},
	{"node-deleted", "The Node is deleted while pods run.",
		common, trigger(truth.ObjectDeleted), func(w *Watcher, m *moment) bool {
			return m.fact.Write.Before.Node != nil && w.anyPod(func(p *pod) bool {
				return p.any(isRunning)
			})
		}},
	{"token-for-undesired-pod", "A token is issued for a pod that is no longer desired.",
		rare, trigger(truth.TokenIssued), func(_ *Watcher, m *moment) bool {
			return m.pod != nil && !m.pod.desired
		}},
	{"watch-broken-during-status", "The watches break while the patch of a status is in flight.",
		common, watchesBreak, func(w *Watcher, _ *moment) bool {
			return w.anyInFlight(isStatusPatch)
		}},
	{"api-lost-during-removal", "The API server is lost while the removal of an object is in flight.",
		rare, apiBecomesUnreachable, func(w *Watcher, _ *moment) bool {
			return w.isInFlight("DeleteObject", nil, nil)
		}},
}

var placesOfStrikes = []place{
	{"agent-killed-after-term", "The agent is killed between TERM and the exit of a container.",
		common, agentIsKilled, func(w *Watcher, _ *moment) bool { return w.anyStopping() }},
	{"agent-killed-during-prestop", "The agent is killed while a preStop hook runs.",
		common, agentIsKilled, func(w *Watcher, _ *moment) bool {
			return w.anyPod(func(p *pod) bool { return p.any(inPreStop) })
		}},
	{"agent-killed-during-poststart", "The agent is killed while a postStart hook runs.",
		rare, agentIsKilled, func(w *Watcher, _ *moment) bool {
			return w.anyPod(func(p *pod) bool { return p.any(inPostStart) })
		}},
	{"agent-killed-before-cleanup", "The agent is killed after a pod has ended, before its removal.",
		common, agentIsKilled, func(w *Watcher, _ *moment) bool {
			return w.anyPod(func(p *pod) bool { return p.isEnding() && !p.any(isRunning) })
		}},
	{"agent-killed-twice", "The agent is killed within five seconds of its start.",
		common, agentIsKilled, func(w *Watcher, m *moment) bool {
			return m.now.Sub(w.agentStartedAt) < 5*time.Second
		}},
	{"agent-starts-without-runtime", "The agent starts while the runtime is down.",
		rare, agentStarted, func(w *Watcher, m *moment) bool {
			return m.now.Before(w.runtimeDownUntil)
		}},
	{"agent-starts-without-api", "The agent starts while the API server cannot be reached.",
		common, agentStarted, func(w *Watcher, m *moment) bool {
			return m.now.Before(w.apiUnreachableUntil)
		}},
	{"agent-paused-after-term", "The agent is paused between TERM and the exit of a container.",
		rare, agentIsPaused, func(w *Watcher, _ *moment) bool { return w.anyStopping() }},
	{"network-fails-under-sandbox", "The network stops being ready while a sandbox is created.",
		rare, networkFails, func(w *Watcher, _ *moment) bool {
			return w.isInFlight("RunPodSandbox", nil, nil)
		}},
	{"runtime-restarts-after-term", "The runtime restarts between TERM and the exit of a container.",
		rare, runtimeRestarts, func(w *Watcher, _ *moment) bool { return w.anyStopping() }},
	{"runtime-restarts-during-prestop", "The runtime restarts while a preStop hook runs.",
		rare, runtimeRestarts, func(w *Watcher, _ *moment) bool {
			return w.anyPod(func(p *pod) bool { return p.any(inPreStop) })
		}},
	{"reboot-while-ending", "The machine reboots while a pod ends.",
		rare, machineReboots, func(w *Watcher, _ *moment) bool { return w.anyPod((*pod).isEnding) }},
	{"reboot-while-agent-down", "The machine reboots while the agent is down.",
		rare, machineReboots, func(w *Watcher, _ *moment) bool { return w.agentDown }},
	{"reboot-during-pull", "The machine reboots while an image is pulled.",
		common, machineReboots, func(w *Watcher, _ *moment) bool {
			return w.isInFlight("PullImage", nil, nil)
		}},
	{"date-changes-after-term", "The date of the machine changes between TERM and the exit.",
		rare, dateChanges, func(w *Watcher, _ *moment) bool { return w.anyStopping() }},
}

func (w *Watcher) anyStopping() bool {
	return w.anyPod(func(p *pod) bool { return p.any(isStopping) })
}
