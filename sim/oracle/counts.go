package oracle

import (
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/truth"
)

// counts fires when a restart is not counted: in what the agent writes on containers, or in what
// the API shows, also across restarts of the agent. A pod whose manifest was back may count anew.
type counts struct{}

func (*counts) entry() Entry {
	return Entry{"restart-count", "Each run of a container has a higher restart count than the " +
		"one before, and the count that the API shows is that of the run and never goes back."}
}

func (*counts) fact(w *world, f *truth.Fact) *finding {
	if f.Kind != truth.ContainerCreated {
		return nil
	}
	p := w.pods[f.PodUID]
	if p == nil || p.history[f.Container] == nil || p.uncounted {
		return nil
	}
	h := p.history[f.Container]
	if int64(f.Attempt) <= h.attempts {
		return &finding{message: fmt.Sprintf("container %s (%.12s) of pod %s was created as "+
			"attempt %d, but attempt %d has been tried", f.Container, f.ContainerID, p, f.Attempt,
			h.attempts)}
	}
	made := restartsOf(f)
	if h.last == nil || !h.last.ran() || h.last.restarts < 0 || made < 0 || made > h.last.restarts {
		return nil
	}
	return &finding{message: fmt.Sprintf("container %s (%.12s) of pod %s was created with "+
		"restart count %d, after a run with %d", f.Container, f.ContainerID, p, made,
		h.last.restarts)}
}

func (*counts) answer(w *world, _ time.Time, pods []*v1.Pod) *finding {
	for _, shown := range pods {
		p := w.pods[string(shown.UID)]
		if p == nil {
			continue
		}
		for _, list := range statuses(shown) {
			for i := range list {
				if what := w.miscounted(p, &list[i]); what != nil {
					return what
				}
			}
		}
	}
	return nil
}

// miscounted judges the restart count in a container status.
func (w *world) miscounted(p *pod, status *v1.ContainerStatus) *finding {
	h := p.history[status.Name]
	if h != nil && !p.loose() && !p.uncounted && status.RestartCount < h.restarts {
		return &finding{message: fmt.Sprintf("container %s of pod %s is shown with restart count "+
			"%d, after %d", status.Name, p, status.RestartCount, h.restarts)}
	}
	c := w.shownRun(status)
	if c == nil || c.restarts < 0 || c.restarts == status.RestartCount {
		return nil
	}
	return &finding{message: fmt.Sprintf("%s is shown with restart count %d, but was created "+
		"with %d", c, status.RestartCount, c.restarts)}
}

// shownRun is the run that a container status is about; nil if it names none that exists.
func (w *world) shownRun(status *v1.ContainerStatus) *container {
	_, id, _ := strings.Cut(status.ContainerID, "://")
	return w.containers[id]
}

// statuses are the lists of container statuses of a pod.
func statuses(pod *v1.Pod) [2][]v1.ContainerStatus {
	return [2][]v1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses}
}
