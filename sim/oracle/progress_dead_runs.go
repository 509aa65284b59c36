package oracle

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
)

// exitedRunsMax is how many exited runs of a container stay in the runtime: the default of the
// kubelet's --maximum-dead-containers-per-container.
const exitedRunsMax = 1

// deadRunsProblem returns which exited containers of a desired pod are left that garbage collection
// has to remove: all runs of a container but the newest that has exited, and all of a pod that was
// evicted or preempted. What is left of a pod that is not desired is in leftovers.
func (p *pod) deadRunsProblem() string {
	if p.isHostile() {
		return ""
	}
	object, exitedRuns := p.object(), map[string]int{}
	for _, c := range p.containers {
		if c.state != exited {
			continue
		}
		exitedRuns[c.name]++
		if n := exitedRuns[c.name]; n > exitedRunsMax {
			return fmt.Sprintf("container %s has %d exited runs, of which %d stays", c.name, n,
				exitedRunsMax)
		}
		if object != nil && isEvictedOrPreempted(object) && p.hasEndedWithThisAgent() {
			return fmt.Sprintf("%s is left, although its pod was removed from the node (%s)", c,
				object.Status.Reason)
		}
	}
	return ""
}

// hasEndedWithThisAgent reports whether the agent that runs has reported the end of the pod. An
// agent that is started later takes what is left for that of any pod that has ended, as the kubelet
// does.
func (p *pod) hasEndedWithThisAgent() bool {
	return !p.terminalAt.IsZero() && p.terminalAt.After(p.model.agentStartedAt) &&
		p.externalPhase == ""
}

// isEvictedOrPreempted reports whether a pod has ended for the sake of the node or of another pod.
func isEvictedOrPreempted(object *v1.Pod) bool {
	reason := object.Status.Reason
	return object.Status.Phase == v1.PodFailed &&
		(reason == reasonEvicted || reason == reasonPreempted)
}
