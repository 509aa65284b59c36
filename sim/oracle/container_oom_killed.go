package oracle

import (
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/truth"
)

// oomKilled fires when a status has the reason OOMKilled for a container that has ended otherwise,
// or another reason for one that the kernel has killed for lack of memory, at the limit of its
// cgroup or because the machine was out of memory. The simulated runtime always reports the reason,
// as containerd does if it has seen the kernel's event. progress requires that an end for lack of
// memory is served in the end. An agent does not know how a container ended that was removed before
// its start, as a disk without space may demand (api-terminal-phase requires that it takes nothing
// back).
type oomKilled struct {
	causes    map[string]string    // of the exits, also of removed ones, by container ID
	removedAt map[string]time.Time // by container ID
}

func (*oomKilled) describe() Entry {
	return Entry{"oom-killed", "A terminated state, as served and at the API server, has the reason " +
		"OOMKilled if the kernel has killed the container for lack of memory, and only then."}
}

const (
	reasonOOMKilled   = "OOMKilled"
	reasonUnknownExit = "ContainerStatusUnknown"
)

func (o *oomKilled) checkFact(m *model, f *truth.Fact) *finding {
	switch f.Kind {
	case truth.ContainerExited:
		if o.causes == nil {
			o.causes, o.removedAt = map[string]string{}, map[string]time.Time{}
		}
		o.causes[f.ContainerID] = f.Cause
	case truth.ContainerRemoved:
		if o.removedAt != nil {
			o.removedAt[f.ContainerID] = f.Time
		}
	}
	if isAgentStatus(f) {
		return o.checkStatus(m, f.Write.After.Pod, "reported")
	}
	return nil
}

func (o *oomKilled) checkServed(m *model, _ time.Time, pods []*v1.Pod) *finding {
	for _, pod := range pods {
		if problem := o.checkStatus(m, pod, "served"); problem != nil {
			return problem
		}
	}
	return nil
}

func (o *oomKilled) checkStatus(m *model, pod *v1.Pod, how string) *finding {
	lists := containerStatuses(pod)
	for _, list := range append(lists[:], pod.Status.EphemeralContainerStatuses) {
		for i := range list {
			for _, t := range terminatedStates(&list[i]) {
				_, id, _ := strings.Cut(t.ContainerID, "://")
				cause, hasExited := o.causes[id]
				removedAt, wasRemoved := o.removedAt[id]
				if t.Reason == reasonUnknownExit && wasRemoved && m.agentStartedAt.After(removedAt) {
					continue
				}
				if hasExited && (cause == truth.CauseOOM) != (t.Reason == reasonOOMKilled) {
					return findingf("container %s (%.12s) of pod %s/%s is %s with reason %q, but the "+
						"cause of its exit is %q", list[i].Name, id, pod.Namespace, pod.Name, how, t.Reason,
						cause)
				}
			}
		}
	}
	return nil
}

// terminatedStates returns the terminated states of a status: of its newest run, and of the one
// before.
func terminatedStates(s *v1.ContainerStatus) []*v1.ContainerStateTerminated {
	states := []*v1.ContainerStateTerminated{s.State.Terminated, s.LastTerminationState.Terminated}
	return slices.DeleteFunc(states, func(t *v1.ContainerStateTerminated) bool { return t == nil })
}

// missesOOMKill reports whether a status does not tell of the end of a container that was killed
// for lack of memory: the newest run or, while that runs, the one before if its record exists.
func (m *model) missesOOMKill(newest *container, s *v1.ContainerStatus) bool {
	c := newest
	if last := c.pod.historyOf(c.name).last; c.state == running && last != nil {
		c = last
	}
	if c.state != exited || c.exitCause != truth.CauseOOM || m.containers[c.id] != c {
		return false
	}
	return !slices.ContainsFunc(terminatedStates(s), func(t *v1.ContainerStateTerminated) bool {
		return strings.HasSuffix(t.ContainerID, "://"+c.id) && t.Reason == reasonOOMKilled
	})
}
