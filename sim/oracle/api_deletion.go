package oracle

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/truth"
)

// apiDeletion fires when the agent removes a pod from the API server too early (upstream
// #116410), or not at all.
type apiDeletion struct{}

func (*apiDeletion) describe() Entry {
	return Entry{"api-deletion", "The agent removes a pod from the API server if it is marked " +
		"for deletion and in a terminal phase, and nothing of it runs: then within a bound, " +
		"else never. The mirror of a static pod that is desired stays, also if the pod runs again " +
		"after an end."}
}

func (*apiDeletion) checkFact(m *model, f *truth.Fact) *finding {
	if f.Write == nil || f.Write.Incarnation == 0 || f.Write.Before.Pod == nil {
		return nil
	}
	object, after := f.Write.Before.Pod, f.Write.After.Pod
	switch {
	case isMirror(object) && object.DeletionTimestamp == nil &&
		(after == nil || after.DeletionTimestamp != nil):
		return m.findNeedlessRemovalOfMirror(object)
	case isMirror(object), after != nil:
		return nil
	}
	name := object.Namespace + "/" + object.Name
	switch p := m.pods[string(object.UID)]; {
	case p != nil && p.liveContainers > 0:
		return findingf("pod %s was removed, but %s runs", p, p.anyLiveContainer())
	case p != nil && p.spec != nil:
		return findingf("pod %s was removed, but no deletion was requested", name)
	case !isTerminalPhase(object.Status.Phase):
		return findingf("pod %s was removed in phase %s, without having been "+
			"reported in a terminal phase", name, object.Status.Phase)
	}
	return nil
}

// findNeedlessRemovalOfMirror returns that the mirror of a static pod should have stayed. One is
// replaced if the API server cannot take the status of the pod: a container of it has ended that is
// not always restarted.
func (m *model) findNeedlessRemovalOfMirror(object *v1.Pod) *finding {
	node := m.objects.node
	if node == nil || !slices.ContainsFunc(object.OwnerReferences, isOwnedBy(node)) ||
		!alwaysRestarts(object) {
		return nil
	}
	for _, p := range m.podsOfObject(object) {
		if p.static && p.spec != nil && p.timesDesired == 1 &&
			p.spec.Annotations[annotationUID] == mirroredUID(object) {
			return findingf("the mirror of pod %s was removed, in phase %s, but its manifest is there", p,
				object.Status.Phase)
		}
	}
	return nil
}

// alwaysRestarts reports whether each container of a pod runs again after any end.
func alwaysRestarts(pod *v1.Pod) bool {
	return pod.Spec.RestartPolicy == v1.RestartPolicyAlways &&
		!slices.ContainsFunc(slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers),
			func(c v1.Container) bool {
				return c.RestartPolicy != nil && *c.RestartPolicy != v1.ContainerRestartPolicyAlways
			})
}

// deletionBound is how long a pod of which nothing runs may still be at the API server, without a
// fault. It allows for the time in which the agent waits for a runtime that does not remove its
// containers.
const deletionBound = 4 * time.Minute

// deletionCalls are the calls that it takes to remove a pod of which nothing runs from the API
// server. One with a volume of a CSI driver needs another one.
var deletionCalls = []string{"WatchObjects", "ObjectChanged", "GetObject", "PatchObject",
	"DeleteObject", "ListPodSandbox", "ListContainers", "PodSandboxStatus", "ContainerStatus",
	"RunPodSandbox", "CreateContainer", "StartContainer", "StopContainer", "StopPodSandbox",
	"ReadTail", "ReadFiles", "StatPath", "ListDir", "ReadLinks", "MakeDir", "MakeLink",
	"WriteFile", "WriteDir", "Rename", "MountMemory", "BindSubPath", "Unmount", "RemoveTree",
	"SetCgroup", "ListCgroups", "RemoveCgroup"}

func (*apiDeletion) checkServed(m *model, now time.Time, _ []*v1.Pod) *finding {
	if m.agentDown {
		return nil
	}
	for _, p := range m.podsInOrder {
		object := m.objects.pods[p.fullName.name]
		if object == nil || string(object.UID) != p.uid || object.DeletionTimestamp == nil ||
			len(object.Finalizers) > 0 || isMirror(object) || !p.hasNothingRunning() ||
			p.isHostile() || // progress wants it to be removed in the end
			p.keepsVolume(now, deletionBound) {
			continue
		}
		from := later(later(p.changedAt, object.DeletionTimestamp.Time), m.agentStartedAt)
		if now.Sub(from) > deletionBound && !m.anyFaultPossible(from, now, deletionCalls...) &&
			!(p.hasDriverVolume("") && m.faultPossible("UnpublishVolume", from, now)) {
			return findingf("pod %s is marked for deletion and nothing of it has run for %v, but it "+
				"still exists", p, now.Sub(from).Round(time.Second))
		}
	}
	return nil
}

// hasNothingRunning reports whether no container of the pod runs and no sandbox of it is ready.
func (p *pod) hasNothingRunning() bool {
	isReady := func(s *sandbox) bool { return s.ready }
	return p.liveContainers == 0 && !slices.ContainsFunc(p.sandboxes, isReady)
}
