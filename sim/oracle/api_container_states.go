package oracle

import (
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/truth"
)

// containerStates fires when the agent reports something untrue of how a run of a container has
// started or ended, or reports it too late. That the reason is OOMKilled is judged by oom-killed.
type containerStates struct {
	runs map[string]*trueRun // by container ID, also after its removal
}

// trueRun is what has really happened to one run of a container.
type trueRun struct {
	pod, name             string // the UID of the pod, and the container's name
	restarts              int32  // as the agent has written on it; -1: it has not
	startedAt, exitedAt   time.Time
	startSkews, exitSkews [2]time.Duration // of the runtime's clock then: before and after a change
	exitCode              int32
	cause                 string
	removed               bool
}

func (*containerStates) describe() Entry {
	return Entry{"container-states", "The API server has the exit code, signal, reason, start, end " +
		"and restart count of each run of a container as the run was, and as the last state that of " +
		"an earlier run; and a start or an exit that no fault hides within 30 s."}
}

// containerStateBound is how long after a start or an exit the API server may not have it, without
// a fault: a pending pod is reported every ten seconds, and a response may be that old.
const containerStateBound = 30 * time.Second

func (o *containerStates) checkFact(m *model, f *truth.Fact) *finding {
	switch f.Kind {
	case truth.ContainerCreated:
		if o.runs == nil {
			o.runs = map[string]*trueRun{}
		}
		o.runs[f.ContainerID] = &trueRun{pod: f.PodUID, name: f.Container,
			restarts: annotatedRestartCount(f)}
	case truth.ContainerStarted, truth.ContainerExited, truth.ContainerRemoved:
		if run := o.runs[f.ContainerID]; run != nil {
			run.apply(m, f)
		}
	}
	if !isAgentStatus(f) || f.Write.Before.Pod == nil {
		return nil
	}
	object, p := f.Write.After.Pod, m.pods[string(f.Write.After.Pod.UID)]
	for _, s := range allContainerStatuses(object) {
		problem := o.problem(s)
		before := statusOf(f.Write.Before.Pod, s.Name).RestartCount
		if p != nil && !p.countLost && !p.wasRemoved() && s.RestartCount < before {
			problem = fmt.Sprintf("it is reported with restart count %d, and had %d", s.RestartCount,
				before)
		}
		if problem != "" {
			return findingf("container %s of pod %s/%s: %s", s.Name, object.Namespace, object.Name,
				problem)
		}
	}
	return nil
}

func (r *trueRun) apply(m *model, f *truth.Fact) {
	skews := [2]time.Duration{m.clockSkew(f.Time.Add(-1)), m.clockSkew(f.Time)}
	switch f.Kind {
	case truth.ContainerStarted:
		r.startedAt, r.startSkews = f.Time, skews
	case truth.ContainerExited:
		r.exitedAt, r.exitSkews, r.exitCode, r.cause = f.Time, skews, f.ExitCode, f.Cause
	default:
		r.removed = true
	}
}

// allContainerStatuses returns the container statuses of a pod, of all kinds.
func allContainerStatuses(pod *v1.Pod) []*v1.ContainerStatus {
	var all []*v1.ContainerStatus
	for _, list := range [][]v1.ContainerStatus{pod.Status.InitContainerStatuses,
		pod.Status.ContainerStatuses, pod.Status.EphemeralContainerStatuses} {
		for i := range list {
			all = append(all, &list[i])
		}
	}
	return all
}

// runOf returns the run with an ID as in a status; nil if it is not known.
func (o *containerStates) runOf(id string) *trueRun {
	_, id, _ = strings.Cut(id, "://")
	return o.runs[id]
}

// problem returns what is untrue in a container status; empty if nothing is.
func (o *containerStates) problem(s *v1.ContainerStatus) string {
	run := o.runOf(s.ContainerID)
	if run != nil && run.restarts >= 0 && run.restarts != s.RestartCount {
		return fmt.Sprintf("it is reported with restart count %d, its run has %d", s.RestartCount,
			run.restarts)
	}
	if state := s.State.Running; state != nil && run != nil {
		if run.startedAt.IsZero() {
			return "it is reported as running, and has never run"
		}
		// An agent that could not inspect the run yet does not know its start.
		if !state.StartedAt.IsZero() &&
			!isDateOf(state.StartedAt.Time, run.startedAt, run.startSkews) {
			return fmt.Sprintf("its start is reported as %v, and was %v", state.StartedAt.UTC(),
				run.startedAt)
		}
	}
	if state := s.State.Terminated; state != nil {
		if problem := o.endProblem(state); problem != "" {
			return problem
		}
		if run != nil && state.ContainerID != "" && state.ContainerID != s.ContainerID {
			return fmt.Sprintf("its state is the end of %s, its ID is %s", state.ContainerID,
				s.ContainerID)
		}
	}
	last := s.LastTerminationState.Terminated
	if last == nil {
		return ""
	}
	if problem := o.endProblem(last); problem != "" {
		return "of its last state, " + problem
	}
	return o.orderProblem(s, run)
}

// orderProblem returns what is wrong with the run of the last state, beside the run of the status.
// A container that waits to be restarted, or whose record was removed, has the end of the run of
// its status there.
func (o *containerStates) orderProblem(s *v1.ContainerStatus, run *trueRun) string {
	last := o.runOf(s.LastTerminationState.Terminated.ContainerID)
	isUnknown := slices.ContainsFunc(terminatedStates(s), func(t *v1.ContainerStateTerminated) bool {
		return t.Reason == reasonUnknownExit
	})
	switch {
	case last == nil || run == nil || last == run && (s.State.Waiting != nil || isUnknown):
		return ""
	case last == run:
		return "its last state is that of the run that it has as its state"
	case last.pod != run.pod || last.name != run.name:
		return fmt.Sprintf("its last state is that of container %s", last.name)
	case last.exitedAt.After(later(run.startedAt, run.exitedAt)) && last.restarts > run.restarts:
		return "its last state is that of a later run"
	}
	return ""
}

// endProblem returns what is untrue of the end of a run.
func (o *containerStates) endProblem(t *v1.ContainerStateTerminated) string {
	run := o.runOf(t.ContainerID)
	switch {
	case run == nil:
		return ""
	case t.Reason == reasonUnknownExit && run.removed:
		return "" // its record is gone
	case (t.Reason == reasonOOMKilled) != (run.cause == truth.CauseOOM):
		return "" // see oom-killed
	case run.exitedAt.IsZero():
		return "it is reported as terminated, and has not exited"
	case t.ExitCode != run.exitCode || t.Signal != 0:
		return fmt.Sprintf("it is reported with exit code %d (%s) and signal %d, and has exited with %d",
			t.ExitCode, t.Reason, t.Signal, run.exitCode)
	case t.Reason != run.reason():
		return fmt.Sprintf("it is reported with reason %q, its exit (%s) has %q", t.Reason, run.cause,
			run.reason())
	case !run.startedAt.IsZero() && !isDateOf(t.StartedAt.Time, run.startedAt, run.startSkews):
		return fmt.Sprintf("its start is reported as %v, and was %v", t.StartedAt.UTC(), run.startedAt)
	case run.startedAt.IsZero() && t.StartedAt.Unix() > 0:
		return fmt.Sprintf("its start is reported as %v, and it never ran", t.StartedAt.UTC())
	case !isDateOf(t.FinishedAt.Time, run.exitedAt, run.exitSkews):
		return fmt.Sprintf("its end is reported as %v, and was %v", t.FinishedAt.UTC(), run.exitedAt)
	}
	return ""
}

// reason returns the reason that a runtime gives for the end of a run, as containerd does.
func (r *trueRun) reason() string {
	switch {
	case r.cause == truth.CauseOOM:
		return reasonOOMKilled
	case r.cause == truth.CauseReboot:
		return "Unknown"
	case r.cause == truth.CauseStart:
		return "StartError"
	case r.exitCode == 0:
		return "Completed"
	}
	return "Error"
}

// exitNoticeMax is how long after the end of a process the runtime notices it.
const exitNoticeMax = time.Millisecond

// isDateOf reports whether a date in whole seconds is that of a moment, by the runtime's clock.
func isDateOf(date, at time.Time, skews [2]time.Duration) bool {
	return slices.ContainsFunc(skews[:], func(skew time.Duration) bool {
		d := at.Add(skew).Sub(date)
		return d >= 0 && d < time.Second+exitNoticeMax
	})
}

// checkServed checks what the API server has, while a client looks at the agent.
func (o *containerStates) checkServed(m *model, now time.Time, _ []*v1.Pod) *finding {
	if m.agentDown || m.objects.node == nil {
		return nil
	}
	if !m.isReportingUndisturbed(now) {
		return nil
	}
	for _, p := range m.podsInOrder {
		object := m.objects.pods[p.fullName.name]
		if object == nil || p.spec == nil || !p.isOf(object) || p.mayBeReportedOtherwise(object) ||
			now.Sub(later(p.desiredAt, object.CreationTimestamp.Time)) <= containerStateBound {
			continue
		}
		for _, name := range p.containerNames() {
			if problem := p.lateness(statusOf(object, name), now); problem != "" {
				return findingf("container %s of pod %s/%s: %s", name, object.Namespace, object.Name,
					problem)
			}
		}
	}
	return nil
}

// isReportingUndisturbed reports whether no fault and no start of the agent can be why something
// that is older than containerStateBound is not at the API server. A call whose response was lost
// holds up the next one of its kind until its deadline.
func (m *model) isReportingUndisturbed(now time.Time) bool {
	since := later(m.agentStartedAt, m.objects.nodeCreatedAt)
	if last := m.lastFault(now); !last.IsZero() {
		since = later(since, last.Add(callBound))
	}
	return now.Sub(since) > containerStateBound
}

// containerNames returns the names of the init and app containers of a pod that is desired.
func (p *pod) containerNames() []string {
	var names []string
	for _, list := range [][]v1.Container{p.spec.Spec.InitContainers, p.spec.Spec.Containers} {
		for i := range list {
			names = append(names, list[i].Name)
		}
	}
	return names
}

// statusOf returns the status of a container; one that has only the name if there is none.
func statusOf(pod *v1.Pod, name string) *v1.ContainerStatus {
	for _, s := range allContainerStatuses(pod) {
		if s.Name == name {
			return s
		}
	}
	return &v1.ContainerStatus{Name: name}
}

// isOf reports whether an object has the status of the pod: it is the pod's own, or the mirror of
// its manifest.
func (p *pod) isOf(object *v1.Pod) bool {
	if isMirror(object) {
		return p.static && p.spec.Annotations[annotationUID] == mirroredUID(object)
	}
	return string(object.UID) == p.uid
}

// mayBeReportedOtherwise reports whether the status of a pod is not that of its containers, or not
// written any more.
func (p *pod) mayBeReportedOtherwise(object *v1.Pod) bool {
	return isTerminalPhase(object.Status.Phase) || object.DeletionTimestamp != nil || p.rejected ||
		p.isHostile() || p.panics > 0 || p.removedByHand || p.mayBeKilled(p.model.now) ||
		len(p.specs) != 1 || p.wasRemoved() || p.model.shutdown.underWay
}

// lateness returns what the API server should have of the newest run of a container, and has not.
func (p *pod) lateness(s *v1.ContainerStatus, now time.Time) string {
	c := p.newestRun(s.Name)
	if c == nil || c.wasLost || c.hadPowerLoss || !c.hasRun() {
		return ""
	}
	if last := p.historyOf(c.name).last; last != nil && last.attempt > c.attempt {
		return "" // the newest run was removed by hand
	}
	isOf := func(id string) bool { return strings.HasSuffix(id, "://"+c.id) }
	switch {
	case c.state == running && now.Sub(c.startedAt) > containerStateBound:
		if s.State.Running == nil && c.isPostStartDone() &&
			now.Sub(c.postStartEndedAt()) > containerStateBound || !isOf(s.ContainerID) ||
			s.State.Running != nil && s.State.Running.StartedAt.IsZero() {
			return fmt.Sprintf("%s has run since %v, and is not reported", c, c.startedAt)
		}
	case c.state == exited && now.Sub(c.exitedAt) > containerStateBound:
		if !slices.ContainsFunc(terminatedStates(s), func(t *v1.ContainerStateTerminated) bool {
			return isOf(t.ContainerID)
		}) {
			return fmt.Sprintf("%s has exited at %v, and is not reported", c, c.exitedAt)
		}
	}
	return ""
}
