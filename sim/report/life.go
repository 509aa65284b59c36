package report

import (
	"cmp"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/truth"
)

// life is the state of a pod or container now, and since when.
type life struct {
	lane *Lane
	now  Span
}

// set begins a state, unless it is as it was.
func (l *life) set(r *Recorder, state State, label string, row int) {
	next := Span{From: r.now, State: state, Label: r.number(label), Row: row}
	if l.now.State == next.State && l.now.Label == next.Label {
		return
	}
	l.close(r.now)
	l.now = next
}

// close ends the state.
func (l *life) close(at int64) {
	if l.now.State != none && at > l.now.From {
		l.now.To = at
		l.lane.Spans = append(l.lane.Spans, l.now)
	}
	l.now = Span{}
}

// pod is what is known of a pod.
type pod struct {
	life
	containers []*container // in the order in which they were seen first

	sandbox   string // the newest; empty for none
	isUp      bool   // the sandbox is ready for containers
	isReady   bool   // as the agent has reported
	isDeleted bool   // it is marked for deletion
	isWritten bool   // the API server has had it
	isGone    bool   // the API server has it no longer, or its last sandbox is removed
	phase     v1.PodPhase
	reason    string
}

// container is what is known of the newest run of a container.
type container struct {
	life
	id        string // of the newest; empty for none
	isRunning bool
	isReady   bool // as the agent has reported
	isEnding  bool // it was sent a signal
	isLost    bool // the runtime does not know its state
	isRemoved bool
	hasExited bool
	exit      int32
	cause     string
	waits     string // the reason that the agent has reported
}

// podOf returns the pod of a UID, which is known from now on.
func (r *Recorder) podOf(uid, namespace, name string) *pod {
	p := r.byUID[uid]
	if p == nil {
		p = &pod{life: life{lane: r.addLane(&Lane{Name: uid, UID: uid, Pod: -1})}}
		r.byUID[uid] = p
		r.pods = append(r.pods, p)
	}
	if name != "" {
		p.lane.Name = name
		if namespace != "" && namespace != "default" {
			p.lane.Name = namespace + "/" + name
		}
	}
	return p
}

func (r *Recorder) containerOf(p *pod, name string) *container {
	for _, c := range p.containers {
		if c.lane.Name == name {
			return c
		}
	}
	c := &container{life: life{lane: r.addLane(&Lane{Name: name})}}
	p.containers = append(p.containers, c)
	return c
}

// laneOfPod returns the lane of the pod of a UID, or of the node.
func (r *Recorder) laneOfPod(uid string) int {
	if uid == "" {
		return 0
	}
	return r.podOf(uid, "", "").lane.number
}

// laneOf returns the lane that a fact belongs to.
func (r *Recorder) laneOf(f *truth.Fact) int {
	if w := f.Write; w != nil {
		if pod := podWritten(w); pod != nil {
			return r.podOf(uidOf(pod), pod.Namespace, pod.Name).lane.number
		}
		return 0
	}
	if f.PodUID == "" {
		return 0
	}
	p := r.podOf(f.PodUID, f.PodNamespace, f.PodName)
	if f.Container == "" {
		return p.lane.number
	}
	return r.containerOf(p, f.Container).lane.number
}

// podWritten returns the pod that a write is about: as it was, if it was deleted.
func podWritten(w *truth.Write) *v1.Pod { return cmp.Or(w.After.Pod, w.Before.Pod) }

// uidOf returns the UID that facts have of a pod: a mirror pod stands for a static one.
func uidOf(pod *v1.Pod) string {
	return cmp.Or(pod.Annotations[v1.MirrorPodAnnotationKey], string(pod.UID))
}

func isMirror(pod *v1.Pod) bool { return uidOf(pod) != string(pod.UID) }

// fact records what a fact says about the state of a pod or container.
func (r *Recorder) fact(f *truth.Fact) {
	row := r.last()
	if w := f.Write; w != nil {
		if written := podWritten(w); written != nil {
			p := r.podOf(uidOf(written), "", "")
			p.isWritten = !isMirror(written)
			p.isGone = p.isGone || p.isWritten && w.After.Pod == nil
			r.status(written, row)
		}
		return
	}
	if f.PodUID == "" {
		return
	}
	p := r.podOf(f.PodUID, "", "")
	if f.Container != "" {
		c := r.containerOf(p, f.Container)
		c.observe(f)
		c.update(r, row)
		return
	}
	p.observe(f)
	p.update(r, row)
}

// observe notes what a fact says about the pod's sandbox.
func (p *pod) observe(f *truth.Fact) {
	switch {
	case f.Kind == truth.SandboxCreated:
		p.sandbox, p.isUp, p.isGone = f.SandboxID, false, p.isGone && p.isWritten
	case f.SandboxID != p.sandbox:
	case f.Kind == truth.SandboxReady:
		p.isUp = true
	case f.Kind == truth.SandboxStopped:
		p.isUp, p.isReady = false, false
	case f.Kind == truth.SandboxRemoved:
		p.sandbox, p.isUp, p.isReady, p.isGone = "", false, false, p.isGone || !p.isWritten
	}
}

// observe notes what a fact says about the container.
func (c *container) observe(f *truth.Fact) {
	if f.Kind == truth.ContainerCreated {
		life := c.life
		*c = container{life: life, id: f.ContainerID}
	}
	if f.ContainerID != c.id {
		return
	}
	switch f.Kind {
	case truth.ContainerStarted:
		c.isRunning = true
	case truth.StopRequested, truth.KillRequested:
		c.isEnding = c.isRunning
	case truth.ContainerExited:
		c.isRunning, c.isReady, c.hasExited = false, false, true
		c.exit, c.cause = f.ExitCode, f.Cause
	case truth.ContainerRemoved:
		c.isRunning, c.isRemoved = false, true
	case truth.ContainerLost, truth.ContainerFound:
		c.isLost = f.Kind == truth.ContainerLost
	}
}

// status records the status that the agent or the API server has of a pod.
func (r *Recorder) status(reported *v1.Pod, row int) {
	p := r.podOf(uidOf(reported), reported.Namespace, reported.Name)
	s := &reported.Status
	p.phase, p.reason, p.isReady = s.Phase, s.Reason, false
	p.isDeleted = reported.DeletionTimestamp != nil && !isMirror(reported)
	for _, condition := range s.Conditions {
		if condition.Type == v1.PodReady {
			p.isReady = condition.Status == v1.ConditionTrue
		}
	}
	p.update(r, row)
	for _, list := range [][]v1.ContainerStatus{s.InitContainerStatuses, s.ContainerStatuses,
		s.EphemeralContainerStatuses} {
		for i := range list {
			c := r.containerOf(p, list[i].Name)
			c.report(&list[i])
			c.update(r, row)
		}
	}
}

// report notes what the agent has reported about the container.
func (c *container) report(s *v1.ContainerStatus) {
	_, id, _ := strings.Cut(s.ContainerID, "://")
	c.isReady = s.Ready && id == c.id && s.State.Running != nil
	c.waits = ""
	if s.State.Waiting != nil {
		c.waits = s.State.Waiting.Reason
	}
}

// update begins the state that follows from what is known of the pod.
func (p *pod) update(r *Recorder, row int) {
	switch {
	case p.isGone && p.sandbox == "":
		p.set(r, none, "", row)
	case p.phase == v1.PodSucceeded:
		p.set(r, succeeded, "Succeeded", row)
	case p.phase == v1.PodFailed:
		p.set(r, failed, cmp.Or(p.reason, "Failed"), row)
	case p.isDeleted || p.isGone:
		p.set(r, terminating, "", row)
	case p.isUp && p.isReady:
		p.set(r, ready, "", row)
	case p.isUp:
		p.set(r, running, "", row)
	default:
		p.set(r, waiting, p.reason, row)
	}
}

// update begins the state that follows from what is known of the container.
func (c *container) update(r *Recorder, row int) {
	switch {
	case c.isRemoved:
		c.set(r, none, "", row)
	case c.hasExited && c.exit == 0:
		c.set(r, succeeded, "exit 0, "+c.cause, row)
	case c.hasExited:
		c.set(r, failed, fmt.Sprintf("exit %d, %s", c.exit, c.cause), row)
	case c.isLost:
		c.set(r, unknown, "", row)
	case c.isEnding:
		c.set(r, terminating, "", row)
	case c.isRunning && c.isReady:
		c.set(r, ready, "", row)
	case c.isRunning:
		c.set(r, running, "", row)
	default:
		c.set(r, waiting, c.waits, row)
	}
}

// end ends the states of the pod and its containers with the run.
func (p *pod) end(r *Recorder) {
	p.close(r.run.End)
	for _, c := range p.containers {
		c.close(r.run.End)
	}
}
