package oracle

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
)

// readiness fires when the API takes back what has not changed: a process that it has shown as
// ready and that still runs is ready, also after a restart of the agent (upstream #100277,
// #135795).
type readiness struct{} // what probes say is for the oracle probes

func (*readiness) entry() Entry {
	return Entry{"readiness", "A container that was shown as ready is shown as ready while its " +
		"process runs, never as terminated, and a pod with all containers ready is ready."}
}

func (*readiness) answer(w *world, _ time.Time, pods []*v1.Pod) *finding {
	for _, shown := range pods {
		for _, list := range statuses(shown) {
			for i := range list {
				if what := w.misreported(&list[i]); what != nil {
					return what
				}
			}
		}
		if shown.DeletionTimestamp == nil && shown.Status.Phase == v1.PodRunning &&
			allReady(shown) && shownFalse(shown, v1.PodReady) {
			return &finding{message: fmt.Sprintf("pod %s/%s (uid %s) is shown as not ready, but "+
				"all its containers as ready", shown.Namespace, shown.Name, shown.UID)}
		}
	}
	return nil
}

// misreported judges the status of a container whose process runs.
func (w *world) misreported(status *v1.ContainerStatus) *finding {
	c := w.shownRun(status)
	switch {
	case c == nil || c.state != running || c.lost || c.pod.isInit(c.name):
		return nil
	case status.State.Terminated != nil:
		return &finding{message: fmt.Sprintf("%s is shown as terminated, but runs", c)}
	case c.shown && !status.Ready && !c.readyByProbe() && !c.pod.maybeKilled(w.now):
		return &finding{message: fmt.Sprintf("%s was shown as ready and still runs, but is "+
			"shown as not ready", c)}
	}
	return nil
}

func allReady(pod *v1.Pod) bool {
	places := sidecarsOf(pod)
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

func shownFalse(pod *v1.Pod, condition v1.PodConditionType) bool {
	for i := range pod.Status.Conditions {
		c := &pod.Status.Conditions[i]
		if c.Type == condition {
			return c.Status == v1.ConditionFalse
		}
	}
	return false
}
