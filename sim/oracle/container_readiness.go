package oracle

import (
	"time"

	v1 "k8s.io/api/core/v1"
)

// readiness fires when the agent takes back a readiness that has not changed: a container that
// was served as ready and still runs is ready, also after a restart of the agent (upstream
// #100277, #135795).
type readiness struct{} // of containers without probes; the oracle probes checks the others

func (*readiness) describe() Entry {
	return Entry{"readiness", "A container that was served as ready is served as ready while " +
		"its process runs, and never as terminated; a pod with all containers ready is ready."}
}

func (*readiness) checkServed(m *model, _ time.Time, pods []*v1.Pod) *finding {
	for _, served := range pods {
		for _, list := range containerStatuses(served) {
			for i := range list {
				if problem := m.checkServedReadiness(&list[i]); problem != nil {
					return problem
				}
			}
		}
		if served.DeletionTimestamp == nil && served.Status.Phase == v1.PodRunning &&
			areAllReady(served) && isConditionFalse(served, v1.PodReady) {
			return findingf("pod %s/%s (uid %s) is served as not ready, but "+
				"all its containers as ready", served.Namespace, served.Name, served.UID)
		}
	}
	return nil
}

// checkServedReadiness checks the status of a container whose process runs.
func (m *model) checkServedReadiness(status *v1.ContainerStatus) *finding {
	c := m.servedRun(status)
	switch {
	case c == nil || c.state != running || c.wasLost || c.pod.isInitContainer(c.name):
		return nil
	case status.State.Terminated != nil:
		return findingf("%s is served as terminated, but runs", c)
	case c.wasServedReady && !status.Ready && !c.needsProbeForReadiness() && !c.pod.mayBeKilled(m.now):
		return findingf("%s was served as ready and still runs, but is "+
			"served as not ready", c)
	}
	return nil
}

func areAllReady(pod *v1.Pod) bool {
	places := sidecarPositionsOf(pod)
	for i := range pod.Status.InitContainerStatuses {
		s := &pod.Status.InitContainerStatuses[i]
		if places[s.Name] > 0 && !s.Ready {
			return false
		}
	}
	for i := range pod.Status.ContainerStatuses {
		if !pod.Status.ContainerStatuses[i].Ready {
			return false
		}
	}
	return len(pod.Status.ContainerStatuses) > 0
}

func isConditionFalse(pod *v1.Pod, condition v1.PodConditionType) bool {
	for i := range pod.Status.Conditions {
		c := &pod.Status.Conditions[i]
		if c.Type == condition {
			return c.Status == v1.ConditionFalse
		}
	}
	return false
}
