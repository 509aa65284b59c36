package core

import (
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/admission"
	"seedlet.dev/core/pod"
	"seedlet.dev/core/status"
	"seedlet.dev/core/sysctl"
	"seedlet.dev/world"
)

// Refusal is why a pod that the sources want is not run, in the words of its status. What may
// still be run is pending. One that has failed may not, in this life of the agent: only another
// manifest, which is another pod, or another configuration can help.
type Refusal struct {
	Phase   v1.PodPhase `json:"phase"`
	Reason  string      `json:"reason"`
	Message string      `json:"message"`
	Waits   bool        `json:"waits,omitempty"` // for others to end, and it is admitted after that
}

// roomUnknown is that another pod may be over, which leaves room if it is. It has no reason, which
// kubectl would show in the place of the phase.
var roomUnknown = Refusal{Phase: v1.PodPending, Waits: true,
	Message: "waiting to learn whether another pod has ended and leaves room for this one"}

// makesRoom says whether others are being ended for the pod.
func (r Refusal) makesRoom() bool { return r.Waits && r.Reason == admission.PreemptedReason }

func rejected(reason, message string) Refusal {
	return Refusal{Phase: v1.PodFailed, Reason: reason, Message: rejectedPrefix + message}
}

// rejectedPrefix is what a status says besides what an event does.
const rejectedPrefix = "Pod was rejected: "

// tellRefused tells why a pod is not run.
func (a *Agent) tellRefused(spec *v1.Pod, why Refusal) {
	if why.Waits { // it is not over with it yet
		a.out.Log(world.LevelWarning, "pod waits", "pod", spec.Namespace+"/"+spec.Name,
			"uid", string(spec.UID), "reason", why.Reason, "message", why.Message)
		return
	}
	a.countRejected(why.Reason)
	a.out.Event(pod.Reference(spec), v1.EventTypeWarning, why.Reason, "%s",
		strings.TrimPrefix(why.Message, rejectedPrefix))
}

// looked says whether it is known what earlier agents have left: what runs, and which pods were
// begun. Before that no pod is asked whether there is room for it.
func (a *Agent) looked() bool { return !a.state.Relist.AsOf.IsZero() && a.state.Begun.Listed }

// begunAnswered takes which pods were begun. Others may have waited for that.
func (a *Agent) begunAnswered(ev world.Event) {
	a.state.Begun.Answered(ev, &a.out)
	if a.looked() {
		a.wantAll(ev.Time)
	}
}

// wantAll asks anew for all pods: some may be admitted, and others ended, only now.
func (a *Agent) wantAll(now time.Time) {
	a.bindAll(now)
	a.reconcile(now)
}

// unrunnable is why a pod can never be run as it is; none if it can.
func (a *Agent) unrunnable(spec *v1.Pod) Refusal {
	if missing := pod.Unsupported(spec, a.state.Node.RestartsAll); len(missing) > 0 {
		return Refusal{Phase: v1.PodPending, Reason: "Refused",
			Message: "not supported yet: " + strings.Join(missing, ", ")}
	}
	if admission.WantsAppArmor(spec) && !a.state.Boot.Machine.AppArmor {
		return Refusal{Phase: v1.PodPending, Reason: "AppArmor",
			Message: "Cannot enforce AppArmor: AppArmor is not enabled on the host"}
	}
	if why := sysctl.Forbidden(&spec.Spec, a.state.Sysctls); why != "" {
		return rejected(sysctl.Reason, why)
	}
	return Refusal{}
}

// admit says which of the static pods are run, and why each of the others is refused, by UID. What
// has been admitted, or has something running, stays: a manifest that is added never ends a static
// pod that is there, nor does a restart of the agent. So while it is not known what runs, what may
// have to be refused is neither admitted nor refused.
func (a *Agent) admit() ([]*v1.Pod, map[string]Refusal) {
	var run, late []*v1.Pod
	refused := map[string]Refusal{}
	looked := a.looked()
	for _, p := range a.state.Manifests.Pods() {
		known := a.state.Pods[string(p.UID)]
		switch why := a.unrunnable(p); {
		case why.Phase == v1.PodPending:
			refused[string(p.UID)] = why
		case known != nil && (known.Spec != nil || known.Holds()),
			looked && a.state.Begun.May(string(p.UID)):
			run = append(run, p)
		case why == Refusal{}:
			late = append(late, p)
		case looked: // the kubelet fails a static pod like any other
			refused[string(p.UID)] = why
		}
	}
	if !looked && a.state.API {
		return run, refused // the server's pods run, and have their room
	}
	others := a.active(run)
	var admitted []*v1.Pod
	for _, p := range late {
		why := a.room(p, true, others, looked)
		if why != (Refusal{}) && !looked {
			return run, refused // who else is there is not known yet
		}
		if why == (Refusal{}) {
			others, admitted = append(others, p), append(admitted, p)
			continue
		}
		refused[string(p.UID)] = why
	}
	return append(run, admitted...), refused
}

// active are the pods that take a place and resources: those that are known, or run although no
// source has told of them, and those of the given that are not known yet.
func (a *Agent) active(also []*v1.Pod) []*v1.Pod {
	var active []*v1.Pod
	for _, uid := range a.uids {
		if p := a.state.Pods[uid]; p.TakesRoom() {
			active = append(active, p.Claim())
		}
	}
	for _, spec := range also {
		if p := a.state.Pods[string(spec.UID)]; p == nil || p.Spec == nil {
			active = append(active, spec)
		}
	}
	return active
}

// room is why a pod is not taken now; none if it is. For a critical pod others are ended, if that
// helps and it is not only a question; it waits until they have.
func (a *Agent) room(spec *v1.Pod, static bool, others []*v1.Pod, preempt bool) Refusal {
	if !admission.Critical(spec, static) {
		others = append(slices.Clip(others), a.makingRoom()...)
	}
	check := admission.Check{Pod: spec, Static: static, Node: a.place(),
		Allocatable: a.state.OwnNode.Allocatable(&a.state.Boot), Others: others}
	failures := check.Reject()
	if len(failures) == 0 {
		return Refusal{}
	}
	decisive := admission.Decisive(spec, static, failures)
	if admission.OfRoom(decisive) && slices.ContainsFunc(others, a.mayBeOver) {
		return roomUnknown
	}
	why := rejected(decisive.Reason, decisive.Message)
	if preempt && a.preempt(&check, failures) {
		why = Refusal{Phase: v1.PodPending, Reason: admission.PreemptedReason,
			Message: "waiting for other pods to make room", Waits: true}
	}
	if static { // it comes from here, and there is nowhere else for it to go
		why.Phase, why.Waits = v1.PodPending, true
	}
	return why
}

// mayBeOver says whether it is not known yet if a pod that takes room goes on.
func (a *Agent) mayBeOver(spec *v1.Pod) bool {
	p := a.state.Pods[string(spec.UID)]
	return p != nil && p.MayBeOver()
}

// looksAgain says whether a pod waits until more is known of the others.
func (a *Agent) looksAgain() bool {
	for _, why := range a.state.Rejected { //ordered: whether there is one
		if why == roomUnknown {
			return true
		}
	}
	for _, why := range a.state.Refused { //ordered: whether there is one
		if why == roomUnknown {
			return true
		}
	}
	return false
}

// makingRoom are the critical pods that others are being ended for: nobody else takes that room.
func (a *Agent) makingRoom() []*v1.Pod {
	s, waiting := &a.state, []*v1.Pod(nil)
	for _, uid := range slices.Sorted(maps.Keys(s.Rejected)) {
		if e := s.Status.Entries[uid]; e != nil && s.Rejected[uid].makesRoom() {
			waiting = append(waiting, e.Stored)
		}
	}
	for _, p := range s.Manifests.Pods() {
		if s.Refused[string(p.UID)].makesRoom() {
			waiting = append(waiting, p)
		}
	}
	return waiting
}

// preempt ends what has to end for a critical pod to fit, and reports whether it can come to fit.
// What is ending already is counted as gone first.
func (a *Agent) preempt(check *admission.Check, failures []admission.Failure) bool {
	staying := *check
	staying.Others = nil
	var candidates []admission.Candidate
	for _, other := range check.Others {
		p := a.state.Pods[string(other.UID)]
		if p != nil && p.Stage != pod.Syncing {
			continue
		}
		staying.Others = append(staying.Others, other)
		if p != nil && p.Spec != nil {
			candidates = append(candidates, admission.Candidate{
				Pod: other, Static: !a.isBound(p), QOS: pod.QOS(other)})
		}
	}
	if len(staying.Others) < len(check.Others) {
		if failures = staying.Reject(); len(failures) == 0 {
			return admission.Critical(check.Pod, check.Static)
		}
	}
	victims, ok := admission.Victims(check.Pod, check.Static, failures, candidates)
	for _, v := range victims {
		a.out.Event(pod.Reference(v), v1.EventTypeWarning, admission.PreemptedReason,
			admission.PreemptedMessage)
		a.state.Pods[string(v.UID)].Preempt(a.state.Last)
		a.state.Tally.Preempted.Add(string(failures[0].Missing.Resource))
		a.touchPod(string(v.UID))
	}
	return ok
}

// retryAdmission asks again for what waits for others to end: one of them has.
func (a *Agent) retryAdmission() {
	for _, uid := range slices.Sorted(maps.Keys(a.state.Rejected)) {
		if e := a.state.Status.Entries[uid]; e != nil && a.state.Rejected[uid].Waits {
			a.wantBound(e.Stored, a.state.Last)
			a.touched.add(status.Key(uid))
		}
	}
	for _, why := range a.state.Refused { //ordered: whether there is one
		if why.Waits {
			a.reconcile(a.state.Last)
			return
		}
	}
}
