package core

import (
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/op"
	"seedlet.dev/core/pod"
	"seedlet.dev/core/probe"
	"seedlet.dev/core/status"
	"seedlet.dev/core/tally"
	"seedlet.dev/world"
)

// What is counted for dashboards. Each event, operation and plan of a pod counts what is its own:
// nothing here walks over all pods.

// Tally is what has been counted in this life of the agent.
type Tally struct {
	Pods  map[string]*PodTally `json:"pods,omitempty"` // by UID
	Total pod.Census           `json:"total"`          // of all of them

	PodsStarted   uint64         `json:"podsStarted,omitempty"`   // sandboxes asked for
	PodsFailed    uint64         `json:"podsFailed,omitempty"`    // and not got
	PodsRestarted tally.Counters `json:"podsRestarted,omitempty"` // by "true" for static pods
	Orphans       uint64         `json:"orphans,omitempty"`       // pods that only the runtime knew
	// Containers started, by type, and those that could not be, by type and reason.
	Started   tally.Counters `json:"started,omitempty"`
	Failed    tally.Counters `json:"failed,omitempty"`
	Rejected  tally.Counters `json:"rejected,omitempty"`  // pods, by the reason
	Preempted tally.Counters `json:"preempted,omitempty"` // pods, by the resource
	Evicted   tally.Counters `json:"evicted,omitempty"`   // pods, by what there was too much of

	PodStart      tally.Histogram  `json:"podStart"`      // from when it was seen to Running
	PodStartTotal tally.Histogram  `json:"podStartTotal"` // from its creation to all containers
	PodStartSLI   tally.Histogram  `json:"podStartSLI"`   // without images and init containers
	WorkStart     tally.Histogram  `json:"workStart"`     // from when it was seen to the first work
	Work          tally.Histograms `json:"work,omitempty"`
	Pulls         tally.Histograms `json:"pulls,omitempty"` // by the size of the image

	Relist         tally.Histogram `json:"relist"`
	RelistInterval tally.Histogram `json:"relistInterval"`
	RelistAsked    time.Time       `json:"relistAsked"` // the one before
}

// PodTally is what is counted of one pod.
type PodTally struct {
	Census pod.Census  `json:"census"`
	Known  time.Time   `json:"known"` // when this agent first knew of it
	Phase  v1.PodPhase `json:"phase,omitempty"`

	// Work is what is being done for it, and since when; zero if nothing is.
	Work    time.Time `json:"work"`
	Kind    string    `json:"kind,omitempty"`
	Worked  bool      `json:"worked,omitempty"`  // there was some work before
	Changed bool      `json:"changed,omitempty"` // what is wanted is another thing since then

	// Of the start of a pod of the API server, until it has been seen there: what of it was spent
	// with pulling images, and since when one is being pulled.
	Starting  bool          `json:"starting,omitempty"`
	Pulled    time.Duration `json:"pulled,omitempty"`
	PullBegan time.Time     `json:"pullBegan"`

	Probes map[string]*ProbeTally `json:"asked,omitempty"` // by container and kind
}

// ProbeTally is what came of one probe of the containers of one name.
type ProbeTally struct {
	Good    uint64          `json:"good,omitempty"`
	Bad     uint64          `json:"bad,omitempty"`
	Unknown uint64          `json:"unknown,omitempty"`
	Took    tally.Histogram `json:"took"` // those that were not bad
}

// The kubelet's words for what is being done for a pod.
const (
	workCreate     = "create"
	workUpdate     = "update"
	workSync       = "sync"
	workKill       = "kill"
	workTerminated = "terminated"
)

// of is what is counted of a pod.
func (t *Tally) of(uid string) *PodTally {
	if t.Pods == nil {
		t.Pods = map[string]*PodTally{}
	}
	if t.Pods[uid] == nil {
		t.Pods[uid] = &PodTally{}
	}
	return t.Pods[uid]
}

// countNew begins to count a pod.
func (a *Agent) countNew(p *pod.Pod) {
	t := a.state.Tally.of(p.UID)
	*t = PodTally{Known: a.state.Last}
	if p.Spec == nil {
		a.state.Tally.Orphans++
		return
	}
	t.Starting = !p.IsStatic() && p.Spec.Status.StartTime == nil && !status.Terminal(&p.Spec.Status)
}

// countGone counts a pod no more.
func (a *Agent) countGone(uid string) {
	t := a.state.Tally.of(uid)
	a.state.Tally.Total.Add(t.Census, -1)
	delete(a.state.Tally.Pods, uid)
}

// countChange notes that something else is wanted of a pod.
func (a *Agent) countChange(uid string) { a.state.Tally.of(uid).Changed = true }

// countPod counts what a plan of a pod has changed.
func (a *Agent) countPod(p *pod.Pod) {
	all, t, now := &a.state.Tally, a.state.Tally.of(p.UID), a.state.Last
	is := p.Census()
	all.Total.Add(t.Census, -1)
	all.Total.Add(is, 1)
	t.Census = is
	a.countWork(p, t)
	if p.Known {
		if t.Phase == v1.PodPending && p.Phase == v1.PodRunning {
			all.PodStart.Add(podStartBounds, now.Sub(t.Known))
		}
		t.Phase = p.Phase
	}
	switch pulling := t.Starting && p.Pulling(&a.state.Images); {
	case pulling && t.PullBegan.IsZero():
		t.PullBegan = now
	case !pulling && !t.PullBegan.IsZero():
		t.Pulled, t.PullBegan = t.Pulled+now.Sub(t.PullBegan), time.Time{}
	}
}

// countWork counts how long something was done for a pod without a break. That is what a sync of
// the kubelet's is: it takes as long as what it waits for.
func (a *Agent) countWork(p *pod.Pod, t *PodTally) {
	all, now, busy := &a.state.Tally, a.state.Last, p.Busy()
	kind := workSync
	switch {
	case p.Stage == pod.Terminating:
		kind = workKill
	case p.Stage == pod.Terminated:
		kind = workTerminated
	case t.Kind == workCreate, t.Kind == workUpdate:
		kind = t.Kind
	case !t.Worked && len(p.Sandboxes) == 0:
		kind = workCreate
	case t.Changed:
		kind = workUpdate
	}
	if !t.Work.IsZero() && (!busy || kind != t.Kind) {
		all.Work.Add(t.Kind, defaultBounds, now.Sub(t.Work))
		t.Work, t.Kind = time.Time{}, ""
	}
	if !busy || !t.Work.IsZero() {
		return
	}
	if kind == workCreate {
		all.WorkStart.Add(defaultBounds, now.Sub(t.Known))
	}
	t.Work, t.Kind, t.Worked, t.Changed = now, kind, true, false
}

// countWatched counts how long a pod has taken to start, once its status is seen at the API server
// that says so. That is how its users know.
func (a *Agent) countWatched(is *v1.Pod, now time.Time) {
	all, t := &a.state.Tally, a.state.Tally.Pods[string(is.UID)]
	switch {
	case t == nil || !t.Starting:
		return
	case status.Terminal(&is.Status):
		t.Starting = false
		return
	case is.Status.Phase != v1.PodRunning || !pod.AllStarted(&is.Status):
		return
	}
	t.Starting = false
	took := now.Sub(is.CreationTimestamp.Time)
	all.PodStartTotal.Add(podStartBounds, took)
	if p := a.state.Pods[string(is.UID)]; p != nil && !pod.Stateful(is) {
		all.PodStartSLI.Add(podStartBounds, took-t.Pulled-p.InitTime())
	}
}

// count counts an operation that was answered, before its owner takes the answer. What was never
// begun does not count.
func (a *Agent) count(r op.Record, ev world.Event) {
	if r.Owner.Component != pod.Component || ev.Err.Has(world.KindCanceled) {
		return
	}
	p, t := a.state.Pods[r.Owner.Name], &a.state.Tally
	if p == nil {
		return
	}
	switch r.Call {
	case "RunPodSandbox":
		t.PodsStarted++
		if ev.Err != nil {
			t.PodsFailed++
		}
	case "CreateContainer":
		if ev.Err != nil {
			t.containerFailed(p.RoleIn(r), "CreateContainerError")
		}
	case "StartContainer":
		if ev.Err != nil {
			t.containerFailed(p.RoleIn(r), "RunContainerError")
			return
		}
		t.Started.Add(containerTypes[p.RoleIn(r)])
	case "ExecSync", "HTTPGet", "TCPConnect", "GRPCCheck":
		if container, kind, ok := p.Probed(r); ok {
			t.of(p.UID).probed(container, kind, r, ev)
		}
	}
}

// containerTypes are the kubelet's words. Sidecars are init containers there.
var containerTypes = map[pod.Role]string{
	pod.App: "container", pod.Init: "init_container", pod.Sidecar: "init_container",
	pod.Ephemeral: "ephemeral_container",
}

// containerFailed counts a container that could not be started. The attempt counts as well.
func (t *Tally) containerFailed(role pod.Role, reason string) {
	t.Started.Add(containerTypes[role])
	t.Failed.Add(containerTypes[role] + " " + reason)
}

// probed counts the answer to a probe.
func (t *PodTally) probed(container string, kind probe.Kind, r op.Record, ev world.Event) {
	key := container + " " + string(kind)
	if t.Probes == nil {
		t.Probes = map[string]*ProbeTally{}
	}
	if t.Probes[key] == nil {
		t.Probes[key] = &ProbeTally{}
	}
	its := t.Probes[key]
	switch answer, _ := probe.Judge(r, ev); answer {
	case probe.Good:
		its.Good++
	case probe.Bad:
		its.Bad++
		return
	default:
		its.Unknown++
	}
	its.Took.Add(defaultBounds, ev.Time.Sub(r.Began))
}

// countPull counts that a pull has ended, after it is known what came of it.
func (a *Agent) countPull(r op.Record, ev world.Event) {
	img, t := a.state.Images.Images[r.Owner.Name], &a.state.Tally
	switch {
	case r.Call != "PullImage" || img == nil || ev.Err.Has(world.KindCanceled):
	case ev.Err == nil && img.ID != "":
		size := int64(0)
		if img.UserOf == img.ID {
			size = img.Bytes
		}
		t.Pulls.Add(sizeOf(size), imagePullBounds, ev.Time.Sub(r.Began))
	case img.Try == 0: // else other credentials are tried
		for _, w := range img.Waiters {
			if p := a.state.Pods[w.UID]; p != nil {
				for _, role := range p.Awaiting(img.Name) {
					t.containerFailed(role, "ErrImagePull")
				}
			}
		}
	}
}

// countRelist counts a relist that has ended, well or not.
func (a *Agent) countRelist(now time.Time) {
	t, asked := &a.state.Tally, a.state.Relist.Asked
	t.Relist.Add(defaultBounds, now.Sub(asked))
	if !t.RelistAsked.IsZero() {
		t.RelistInterval.Add(defaultBounds, asked.Sub(t.RelistAsked))
	}
	t.RelistAsked = asked
}

// signalEmptyDir is why a pod is evicted one of whose volumes is above its limit, in the kubelet's
// word.
const signalEmptyDir = "emptydirfs.limit"

// countRejected counts a pod that is not run.
func (a *Agent) countRejected(reason string) {
	const resource = "OutOf"
	switch name, is := strings.CutPrefix(reason, resource); {
	case !is:
	case name == "cpu", name == "memory", name == "pods", name == "ephemeral-storage":
	default:
		reason = resource + "ExtendedResources" // there are as many as people make up
	}
	a.state.Tally.Rejected.Add(reason)
}

// countRestarted counts a pod that is made again with the UID of one that has just gone.
func (a *Agent) countRestarted(p *pod.Pod) {
	static := ""
	if p.IsStatic() {
		static = "true"
	}
	a.state.Tally.PodsRestarted.Add(static)
}
