package oracle

import (
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/sim/truth"
)

// restartCount fires when a restart is not counted, in the annotation of the container or in the
// served status, also across restarts of the agent. A pod whose manifest was removed and came
// back may start over.
type restartCount struct{}

func (*restartCount) describe() Entry {
	return Entry{"restart-count", "Each run of a container has a higher restart count than the " +
		"run before; the served count is that of the run, and never decreases."}
}

func (*restartCount) checkFact(m *model, f *truth.Fact) *finding {
	if f.Kind != truth.ContainerCreated {
		return nil
	}
	p := m.pods[f.PodUID]
	if p == nil {
		return nil
	}
	isLate := m.noteCreated(createKey{p.uid, f.Container, f.Attempt}, f.Time)
	h := p.histories[f.Container]
	if isLate || h == nil || p.countLost {
		return nil
	}
	if int64(f.Attempt) <= h.maxAttempt {
		return findingf("container %s (%.12s) of pod %s was created as "+
			"attempt %d, but attempt %d was already used", f.Container, f.ContainerID, p, f.Attempt,
			h.maxAttempt)
	}
	count := annotatedRestartCount(f)
	if h.last == nil || !h.last.hasRun() || h.last.restartCount < 0 || count < 0 ||
		count > h.last.restartCount {
		return nil
	}
	return findingf("container %s (%.12s) of pod %s was created with "+
		"restart count %d, after a run with %d", f.Container, f.ContainerID, p, count,
		h.last.restartCount)
}

// createKey identifies a run of a container by what the agent asks for.
type createKey struct {
	uid, container string
	attempt        uint32
}

// creates are the requests to create a run, and the runs that were created for them.
type creates struct{ sentAt, createdAt []time.Time }

// noteCreate records that the agent asks for a run.
func (m *model) noteCreate(now time.Time, request any) {
	if r, isCreate := request.(*runtimeapi.CreateContainerRequest); isCreate {
		of := r.GetConfig().GetMetadata()
		c := m.createsOf(createKey{r.GetSandboxConfig().GetMetadata().GetUid(), of.GetName(),
			of.GetAttempt()})
		c.sentAt = append(c.sentAt, now)
	}
}

func (m *model) createsOf(key createKey) *creates {
	if m.creates == nil {
		m.creates = map[createKey]*creates{}
	}
	if m.creates[key] == nil {
		m.creates[key] = &creates{}
	}
	return m.creates[key]
}

// noteCreated records that a run was created, and reports whether that may be the effect of a
// request of an earlier agent: one of those had no effect while that agent lived, and a fault
// delays it.
func (m *model) noteCreated(key createKey, now time.Time) (isLate bool) {
	c := m.createsOf(key)
	before := func(at time.Time) bool { return at.Before(m.agentStartedAt) }
	sent, created := countOf(c.sentAt, before), countOf(c.createdAt, before)
	c.createdAt = append(c.createdAt, now)
	return sent > created && len(c.createdAt) <= len(c.sentAt) &&
		m.anyFaultPossible(c.sentAt[0], now, "CreateContainer")
}

func countOf(times []time.Time, counts func(time.Time) bool) (n int) {
	for _, at := range times {
		if counts(at) {
			n++
		}
	}
	return n
}

func (*restartCount) checkServed(m *model, _ time.Time, pods []*v1.Pod) *finding {
	for _, served := range pods {
		p := m.pods[string(served.UID)]
		if p == nil {
			continue
		}
		for _, list := range containerStatuses(served) {
			for i := range list {
				if problem := m.checkServedCount(p, &list[i]); problem != nil {
					return problem
				}
			}
		}
	}
	return nil
}

// checkServedCount checks the restart count of a container status.
func (m *model) checkServedCount(p *pod, status *v1.ContainerStatus) *finding {
	h := p.histories[status.Name]
	hasLost := p.countLost ||
		!p.unreportedLostAt.IsZero() && m.agentStartedAt.After(p.unreportedLostAt)
	if h != nil && !p.wasRemoved() && !hasLost && status.RestartCount < h.maxServedCount {
		return findingf("container %s of pod %s is served with restart count "+
			"%d, after %d", status.Name, p, status.RestartCount, h.maxServedCount)
	}
	c := m.servedRun(status)
	if c == nil || c.restartCount < 0 || c.restartCount == status.RestartCount {
		return nil
	}
	return findingf("%s is served with restart count %d, but was created "+
		"with %d", c, status.RestartCount, c.restartCount)
}

// servedRun returns the run that a container status is about; nil if that run does not exist.
func (m *model) servedRun(status *v1.ContainerStatus) *container {
	_, id, _ := strings.Cut(status.ContainerID, "://")
	return m.containers[id]
}

// containerStatuses returns the lists of container statuses of a pod.
func containerStatuses(pod *v1.Pod) [2][]v1.ContainerStatus {
	return [2][]v1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses}
}
