package oracle

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/truth"
	api "seedlet.dev/world"
)

// What nothingChanges says about pods of the API server that are deleted before an agent takes
// over: each ends once. Nothing is made or started for it, a container gets its preStop hook once
// by each agent, and it ends within the grace period of the deletion, which an agent counts from
// its start, as a kubelet does (SyncTerminatingPod in pkg/kubelet/kubelet.go).

// takenDeletion is the deletion of a pod, as far as an agent has to carry it out.
type takenDeletion struct {
	at    time.Time // when the object got its deletion timestamp; zero: it is not deleted
	grace time.Duration
	// hooks has the number of the agent that has last run the preStop hook of a run, by its ID.
	hooks map[string]int
}

// note notes that an object is deleted.
func (d *takenDeletion) note(object *v1.Pod, now time.Time) {
	if object == nil || object.DeletionTimestamp == nil || object.DeletionGracePeriodSeconds == nil {
		return
	}
	if d.at.IsZero() {
		d.at, d.hooks = now, map[string]int{}
	}
	d.grace = time.Duration(*object.DeletionGracePeriodSeconds) * time.Second
}

// deletionSlack is how much longer than its grace period a pod may take to end: a list of the
// runtime, and what each sidecar gets at least.
const deletionSlack = 15 * time.Second

// deletionNoticeCalls are those without which an agent does not know that a pod is deleted, or
// cannot end it.
var deletionNoticeCalls = []string{"WatchObjects", "ObjectChanged", "ListContainers",
	"ListPodSandbox", "ContainerStatus", "PodSandboxStatus", "Version", "Status", "ReadFiles",
	"StopContainer", "ExecSync", "HTTPGet"}

// checkDeletion checks what happens to a pod that was deleted.
func (o *nothingChanges) checkDeletion(m *model, t *takenPod, f *truth.Fact) *finding {
	if w := f.Write; w != nil {
		if w.Resource == api.ResourcePods && w.After.Pod != nil && string(w.After.Pod.UID) == t.uid {
			t.deletion.note(w.After.Pod, f.Time)
		}
		return nil
	}
	d := &t.deletion
	if d.at.IsZero() || d.at.After(m.agentStartedAt) || o.awaitsAgent(m) || m.agentDown {
		return nil
	}
	p, c := m.pods[t.uid], m.containers[f.ContainerID]
	switch f.Kind {
	case truth.SandboxCreated, truth.ContainerCreated, truth.ContainerStarted:
		if m.mayBeDelayed(f) {
			return nil
		}
		return findingf("pod %s was deleted before it was taken over, but there is a fact %s of %s", p,
			f.Kind, f.Container)
	case truth.HandlerRequested:
		h := c.handlerOfFact(f)
		if h == nil || h.kind != preStopHook {
			return nil
		}
		if d.hooks[c.id] == m.agentStarts && !m.anyFaultPossible(m.agentStartedAt, f.Time, h.call) {
			return findingf("pod %s was deleted before it was taken over, but %s gets its preStop hook "+
				"twice", p, c)
		}
		d.hooks[c.id] = m.agentStarts
	case truth.ContainerExited:
		took := f.Time.Sub(m.agentStartedAt)
		if took > d.grace+deletionSlack &&
			!m.anyFaultPossible(m.agentStartedAt, f.Time, deletionNoticeCalls...) {
			return findingf("pod %s was deleted before it was taken over, with %v, but %s has ended %v "+
				"after the agent's start", p, d.grace, c, took)
		}
	}
	return nil
}

// mayBeDelayed reports whether a fact may be of a call of one that has the node no more.
func (m *model) mayBeDelayed(f *truth.Fact) bool {
	return f.Time.Sub(m.agentStartedAt) < kubeletCallBound ||
		m.anyFaultPossible(m.agentStartedAt, f.Time, "RunPodSandbox", "CreateContainer",
			"StartContainer")
}
