package marks

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/sim/truth"
	"seedlet.dev/sim/wire"
)

// The places of a node under pressure and of one that shuts down.

var placesOfMemory = []place{
	{"oom-while-desired", "The kernel ends a process for lack of memory, before its pod is evicted.",
		common, trigger(truth.ContainerExited), func(_ *Watcher, m *moment) bool {
			return m.fact.Cause == truth.CauseOOM && m.pod.desired && !m.container.stopping
		}},
	{"oom-after-term", "The kernel ends a process for lack of memory after it got TERM, as in an " +
		"eviction.",
		rare, trigger(truth.ContainerExited), func(_ *Watcher, m *moment) bool {
			return m.fact.Cause == truth.CauseOOM && m.container.stopping
		}},
	{"oom-before-term-of-victim", "The kernel ends a process for lack of memory, of a pod that was " +
		"evicted and has not got TERM yet.",
		rare, trigger(truth.ContainerExited), func(_ *Watcher, m *moment) bool {
			return m.fact.Cause == truth.CauseOOM && m.pod.evicted && !m.container.stopping
		}},
}

var placesOfEvictions = []place{
	{"eviction-beside-victim", "A pod is evicted while the stop of another victim is in flight.",
		rare, trigger(truth.EventRecorded), func(w *Watcher, m *moment) bool {
			return m.isEviction() && w.anyPod(func(p *pod) bool {
				return p != m.pod && p.evicted && w.isInFlight("StopContainer", p, nil)
			})
		}},
	{"eviction-while-stopping", "A pod is evicted while a container of it ends after TERM.",
		rare, trigger(truth.EventRecorded), func(_ *Watcher, m *moment) bool {
			return m.isEviction() && m.pod.any(isStopping)
		}},
	{"eviction-while-ending", "A pod is evicted that is no longer desired.",
		rare, trigger(truth.EventRecorded), func(_ *Watcher, m *moment) bool {
			return m.isEviction() && !m.pod.desired
		}},
	{"eviction-during-start", "A pod is evicted while a container of it is created or started.",
		common, trigger(truth.EventRecorded), func(w *Watcher, m *moment) bool {
			return m.isEviction() && (w.isInFlight("CreateContainer", m.pod, nil) ||
				w.isInFlight("StartContainer", m.pod, nil))
		}},
	{"undesired-victim", "A pod is deleted while it ends because it was evicted.",
		rare, podNoLongerDesired, func(_ *Watcher, m *moment) bool {
			return m.pod.evicted && m.pod.any(isRunning)
		}},
	{"victim-exits-by-itself", "A container exits by itself after its pod was evicted, before TERM.",
		common, trigger(truth.ContainerExited), func(_ *Watcher, m *moment) bool {
			return m.pod.evicted && !m.container.stopping && m.fact.Cause == truth.CauseSelf
		}},
	{"agent-killed-during-eviction", "The agent is killed while a pod runs that was evicted.",
		common, agentIsKilled, func(w *Watcher, _ *moment) bool {
			return w.anyPod(func(p *pod) bool { return p.evicted && p.any(isRunning) })
		}},
	{"agent-killed-before-eviction-status", "The agent is killed between an eviction and the status " +
		"that tells of it.",
		common, agentIsKilled, func(w *Watcher, _ *moment) bool {
			return w.anyPod((*pod).isUnreportedVictim)
		}},
	{"api-lost-before-eviction-status", "The API server is lost between an eviction and the status " +
		"that tells of it.",
		rare, apiBecomesUnreachable, func(w *Watcher, _ *moment) bool {
			return w.anyPod((*pod).isUnreportedVictim)
		}},
	{"image-removed-during-pull", "An unused image is removed while another one is pulled.",
		common, trigger(truth.ImageRemoved), func(w *Watcher, _ *moment) bool {
			return w.isInFlight("PullImage", nil, nil)
		}},
	{"image-removed-during-its-pull", "An unused image is removed while it is pulled.",
		rare, trigger(truth.ImageRemoved), func(w *Watcher, m *moment) bool {
			return w.isInFlight("PullImage", nil, func(c *wire.Call) bool {
				pull, isPull := c.Effect.Body.(*runtimeapi.PullImageRequest)
				return isPull && pull.Image.GetImage() == m.fact.Image
			})
		}},
	{"image-removed-during-create", "An unused image is removed while a container is created.",
		common, trigger(truth.ImageRemoved), func(w *Watcher, _ *moment) bool {
			return w.isInFlight("CreateContainer", nil, nil)
		}},
	{"image-removed-while-agent-down", "The removal of an image has its effect after the agent was " +
		"killed.",
		rare, trigger(truth.ImageRemoved), func(w *Watcher, _ *moment) bool { return w.agentDown }},
}

var placesOfShutdowns = []place{
	{"shutdown-during-sandbox", "A shutdown is announced while a sandbox is created.",
		common, trigger(truth.ShutdownAnnounced), func(w *Watcher, _ *moment) bool {
			return w.isInFlight("RunPodSandbox", nil, nil)
		}},
	{"shutdown-during-start", "A shutdown is announced while a container is created or started.",
		common, trigger(truth.ShutdownAnnounced), func(w *Watcher, _ *moment) bool {
			return w.isInFlight("CreateContainer", nil, nil) || w.isInFlight("StartContainer", nil, nil)
		}},
	{"shutdown-during-pull", "A shutdown is announced while an image is pulled.",
		common, trigger(truth.ShutdownAnnounced), func(w *Watcher, _ *moment) bool {
			return w.isInFlight("PullImage", nil, nil)
		}},
	{"shutdown-while-ending", "A shutdown is announced while a pod ends.",
		common, trigger(truth.ShutdownAnnounced), func(w *Watcher, _ *moment) bool {
			return w.anyPod((*pod).isEnding)
		}},
	{"shutdown-while-evicting", "A shutdown is announced while a pod runs that was evicted.",
		common, trigger(truth.ShutdownAnnounced), func(w *Watcher, _ *moment) bool {
			return w.anyPod(func(p *pod) bool { return p.evicted && p.any(isRunning) })
		}},
	{"shutdown-while-agent-down", "A shutdown is announced while the agent is down.",
		common, trigger(truth.ShutdownAnnounced), func(w *Watcher, _ *moment) bool {
			return w.agentDown
		}},
	{"shutdown-announced-twice", "A shutdown is announced once more while pods end for it.",
		common, trigger(truth.ShutdownRepeated), func(w *Watcher, _ *moment) bool {
			return w.shutdown.group >= 0 && w.anyStopping()
		}},
	{"shutdown-announced-after-release", "A shutdown is announced once more after the agent has " +
		"let the machine go down.",
		rare, trigger(truth.ShutdownRepeated), func(w *Watcher, _ *moment) bool {
			return w.shutdown.permitted
		}},
	{"desired-during-shutdown", "A pod comes while the machine shuts down.",
		common, podDesired, func(w *Watcher, m *moment) bool {
			return w.shutdown.underWay && !m.pod.desired
		}},
	{"undesired-during-shutdown", "A pod is deleted while it ends for a shutdown.",
		common, podNoLongerDesired, func(w *Watcher, m *moment) bool {
			return w.shutdown.group >= 0 && m.pod.any(isStopping)
		}},
	{"agent-killed-during-shutdown", "The agent is killed while pods end for a shutdown.",
		common, agentIsKilled, func(w *Watcher, _ *moment) bool {
			return w.shutdown.group >= 0 && !w.shutdown.permitted && w.anyStopping()
		}},
	{"agent-starts-during-shutdown", "The agent starts while the machine shuts down.",
		common, agentStarted, func(w *Watcher, _ *moment) bool { return w.shutdown.underWay }},
	{"bus-lost-during-shutdown", "The system bus is lost while pods end for a shutdown.",
		common, busIsLost, func(w *Watcher, _ *moment) bool {
			return w.shutdown.group >= 0 && w.anyStopping()
		}},
	{"machine-down-before-exit", "The machine goes down while a container ends for a shutdown.",
		common, trigger(truth.ContainerExited), func(w *Watcher, m *moment) bool {
			return m.fact.Cause == truth.CauseReboot && w.shutdown.group >= 0 && m.container.stopping
		}},
	{"cancel-before-term", "A shutdown is cancelled before any pod ends for it.",
		common, trigger(truth.ShutdownCancelled), func(w *Watcher, _ *moment) bool {
			return w.shutdown.group < 0
		}},
	{"cancel-in-first-group", "A shutdown is cancelled while the pods of its first group end.",
		common, trigger(truth.ShutdownCancelled), func(w *Watcher, _ *moment) bool {
			return w.shutdown.group == 0 && w.anyStopping()
		}},
	{"cancel-in-middle-group", "A shutdown is cancelled while the pods of a group end that is " +
		"neither its first nor its last.",
		common, trigger(truth.ShutdownCancelled), func(w *Watcher, _ *moment) bool {
			return w.shutdown.group > 0 && w.shutdown.group < len(w.groups)-1 && w.anyStopping()
		}},
	{"cancel-in-last-group", "A shutdown is cancelled while the pods of its last group end.",
		common, trigger(truth.ShutdownCancelled), func(w *Watcher, _ *moment) bool {
			return w.shutdown.group > 0 && w.shutdown.group == len(w.groups)-1 && w.anyStopping()
		}},
	{"cancel-after-release", "A shutdown is cancelled after the agent has let the machine go down.",
		common, trigger(truth.ShutdownCancelled), func(w *Watcher, _ *moment) bool {
			return w.shutdown.permitted
		}},
}

// shutdown is what the marks need to know of a shutdown of the machine.
type shutdown struct {
	underWay  bool
	permitted bool // the agent has let the machine go down
	group     int  // the last one of which a container is being stopped; -1: none is
}

var noShutdown = shutdown{group: -1}

// SetShutdownGroups sets from which priority on each group of a shutdown is, the lowest one first.
func (w *Watcher) SetShutdownGroups(priorities []int32) { w.groups = priorities }

// noteShutdown updates what is known of shutdowns with a fact.
func (w *Watcher) noteShutdown(m *moment) {
	switch s := &w.shutdown; m.fact.Kind {
	case truth.ShutdownAnnounced:
		*s = shutdown{underWay: true, group: -1}
	case truth.ShutdownCancelled, truth.PowerLost:
		*s = noShutdown
	case truth.ShutdownPermitted:
		s.permitted = s.underWay && m.fact.Cause == ""
	case truth.StopRequested:
		if s.underWay && m.pod.desired {
			s.group = max(s.group, w.groupOf(m.pod))
		}
	}
}

// groupOf returns the group of a pod in a shutdown: the last one whose priority is not above its
// own.
func (w *Watcher) groupOf(p *pod) int {
	var priority int32
	if p.spec != nil && p.spec.Spec.Priority != nil {
		priority = *p.spec.Spec.Priority
	}
	group := slices.IndexFunc(w.groups, func(from int32) bool { return from > priority })
	if group < 0 {
		group = len(w.groups)
	}
	return max(0, group-1)
}

const reasonEvicted = "Evicted"

// isEviction reports whether a moment is that of the decision to evict a pod that is on the node:
// an Event says so.
func (m *moment) isEviction() bool {
	return m.fact.Reason == reasonEvicted && m.pod != nil && m.pod.sandboxes > 0
}

// isUnreportedVictim reports whether a pod was evicted, and no status says so yet.
func (p *pod) isUnreportedVictim() bool { return p.evicted && !p.reported }

// noteEviction updates a pod with a fact about its eviction.
func (m *moment) noteEviction() {
	switch {
	case m.fact.Kind == truth.EventRecorded && m.isEviction():
		m.pod.evicted = true
	case m.fact.Kind == truth.ObjectUpdated && m.pod != nil && m.pod.evicted:
		after := m.fact.Write.After.Pod
		m.pod.reported = m.pod.reported || after != nil && after.Status.Phase == v1.PodFailed
	}
}
