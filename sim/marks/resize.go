package marks

import (
	"reflect"
	"strings"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/truth"
)

// The places of resizes.

var placesOfResizes = []place{
	{"resize-during-pressure", "A pod is resized while the Node has a condition that forbids it.",
		common, trigger(truth.ObjectUpdated), func(w *Watcher, m *moment) bool {
			return m.isResize() && w.underPressure
		}},
	{"resize-during-shutdown", "A pod is resized that runs on while the machine shuts down.",
		common, trigger(truth.ObjectUpdated), func(w *Watcher, m *moment) bool {
			return m.isResize() && w.shutdown.underWay && !m.pod.any(isStopping)
		}},
	{"resize-beside-preemption", "A pod is resized while another one ends for a critical pod.",
		rare, trigger(truth.ObjectUpdated), func(w *Watcher, m *moment) bool {
			return m.isResize() && w.anyPod(func(p *pod) bool {
				return p != m.pod && p.preempted && p.any(isRunning)
			})
		}},
	{"resize-granted-after-deferral", "A resize is allocated that was deferred.",
		common, trigger(truth.EventRecorded), func(_ *Watcher, m *moment) bool {
			return m.pod != nil && m.pod.resize == resizeDeferred && m.fact.Reason == eventResizeStarted
		}},
	{"resize-denied-for-critical", "A resize is deferred while another pod ends for a critical pod.",
		rare, trigger(truth.EventRecorded), func(w *Watcher, m *moment) bool {
			return m.pod != nil && m.fact.Reason == eventResizeDeferred && w.anyPod(func(p *pod) bool {
				return p != m.pod && p.preempted && p.any(isRunning)
			})
		}},
	{"agent-killed-between-resize-writes", "The agent is killed after one write of a resize, while " +
		"the next one is in flight.",
		common, agentIsKilled, func(w *Watcher, _ *moment) bool {
			return w.anyPod(func(p *pod) bool {
				return p.resize == resizeHalfDone && (w.isInFlight("SetCgroup", p, nil) ||
					w.isInFlight("UpdateContainerResources", p, nil))
			})
		}},
}

const (
	eventResizeStarted   = "ResizeStarted"
	eventResizeDeferred  = "ResizeDeferred"
	eventResizeCompleted = "ResizeCompleted"
	eventPreempting      = "Preempting"
)

// resizeStage is how far the newest resize of a pod is.
type resizeStage string

const (
	resizeDeferred  resizeStage = "deferred"
	resizeAllocated resizeStage = "allocated"
	resizeHalfDone  resizeStage = "half done" // a cgroup was written
	resizeDone      resizeStage = "done"
)

// isResize reports whether a moment is that of another client's change of the resources of a pod
// that runs.
func (m *moment) isResize() bool {
	before, after := m.fact.Write.Before.Pod, m.fact.Write.After.Pod
	return m.fact.Write.Incarnation == 0 && before != nil && after != nil && m.pod.any(isRunning) &&
		before.Generation != after.Generation &&
		!reflect.DeepEqual(resourcesOf(before), resourcesOf(after))
}

func resourcesOf(p *v1.Pod) (all []v1.ResourceRequirements) {
	for _, list := range [][]v1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range list {
			all = append(all, list[i].Resources)
		}
	}
	if p.Spec.Resources != nil {
		all = append(all, *p.Spec.Resources)
	}
	return all
}

// noteResize updates what is known of resizes with a fact.
func (w *Watcher) noteResize(m *moment) {
	switch f := m.fact; {
	case f.Write != nil && f.Write.After.Node != nil:
		w.underPressure = false
		for _, c := range f.Write.After.Node.Status.Conditions {
			if c.Type == v1.NodeDiskPressure || c.Type == v1.NodePIDPressure {
				w.underPressure = w.underPressure || c.Status == v1.ConditionTrue
			}
		}
	case f.Kind == truth.CgroupCreated:
		for _, p := range w.pods { //ordered: the cgroup is of one
			if p.resize == resizeAllocated && (strings.Contains(f.Path, p.uid) ||
				strings.Contains(f.Path, strings.ReplaceAll(p.uid, "-", "_"))) {
				p.resize = resizeHalfDone
			}
		}
	case m.pod == nil:
	case f.Kind == truth.ContainerResized && m.pod.resize == resizeAllocated:
		m.pod.resize = resizeHalfDone
	case f.Kind == truth.EventRecorded:
		m.pod.noteEvent(f.Reason)
	}
}

func (p *pod) noteEvent(reason string) {
	switch reason {
	case eventResizeDeferred:
		p.resize = resizeDeferred
	case eventResizeStarted:
		p.resize = resizeAllocated
	case eventResizeCompleted:
		p.resize = resizeDone
	case eventPreempting:
		p.preempted = true
	}
}
