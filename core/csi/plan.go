package csi

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"seedlet.dev/core/op"
	"seedlet.dev/core/timer"
	"seedlet.dev/world"
)

// PlanVolume issues the next operation on a volume, and returns when to plan again.
func (n *Node) PlanVolume(name string, env *Env) time.Time {
	v := n.Volumes[name]
	if v == nil {
		return time.Time{}
	}
	wake := n.planVolume(v, env)
	if v.isGone() {
		n.uncountName(v)
		delete(n.Volumes, name)
		if v.Refused || n.Full {
			n.Full = false
			env.EnqueuePods()
		}
		env.ReportsInUse()
	}
	return wake
}

// isGone reports whether nothing is desired of a volume, and nothing is left of it.
func (v *Volume) isGone() bool {
	return v.Op == 0 && len(v.Uses) == 0 && len(v.Publications) == 0 && v.Staging == Staging{}
}

// planVolume takes the first step that is possible, and only one: a volume is one call at a time.
// What is undone comes first, so that a volume which hangs while it is mounted again for one pod
// still lets go of another, and so that no pod gets what is about to be taken away.
func (n *Node) planVolume(v *Volume, env *Env) time.Time {
	var wake time.Time
	if v.Op != 0 {
		return n.watchGroup(v, env)
	}
	if !n.Search.Passed {
		return wake
	}
	if v.mayBecomeUnneeded(env) { // nothing else plans it once it is
		wake = env.Effects.Now().Add(listedPeriod)
	}
	n.planMode(v, env)
	n.watchSecrets(v, env)
	n.keepFound(v, env)
	for _, target := range slices.Sorted(maps.Keys(v.Publications)) {
		if p := v.Publications[target]; n.mayUnpublish(v, target, env) &&
			!p.Attempts.IsWaiting(env.Effects.Now(), &wake) && n.unpublish(v, p, env) {
			return wake
		}
	}
	if len(v.Uses) == 0 && len(v.Publications) == 0 || v.mustBeRestaged(env) {
		if n.mayUnstage(v, env) && !v.Staging.Undoing.IsWaiting(env.Effects.Now(), &wake) {
			n.unstage(v, env)
		}
	}
	if len(v.Uses) == 0 || v.Op != 0 {
		return wake
	}
	for _, target := range slices.Sorted(maps.Keys(v.Uses)) {
		u := v.Uses[target]
		previous := env.Effects.WorkOn(u.UID)
		issued, at := n.planUse(v, u, env)
		v.beginMount(u, env)
		v.endMount(u, false, env)
		env.Effects.WorkOn(previous)
		if wake = timer.Soonest(wake, at); issued {
			return wake
		}
	}
	if !env.CleansUp && v.hasLabelConflict() { // it may be let go of later
		wake = timer.Soonest(wake, env.Effects.Now().Add(listedPeriod))
	}
	return timer.Soonest(wake, n.planExpansion(v, env))
}

// mayBecomeUnneeded reports whether the volume may have to be released without a pod that says so:
// before all pods were listed, or if it was found published for a pod that is known and waits.
func (v *Volume) mayBecomeUnneeded(env *Env) bool {
	if !env.CleansUp {
		return len(v.Publications) >= len(v.Uses)
	}
	for target, p := range v.Publications { //ordered: whether there is one
		if v.Uses[target] == nil && !p.Released && env.IsKnownPod(p.UID) {
			return true
		}
	}
	return false
}

// keepFound keeps the publications that were found mounted and whose pods have containers in their
// sandboxes, and the staging under them: the pods got their containers after their volumes.
func (n *Node) keepFound(v *Volume, env *Env) {
	for _, target := range slices.Sorted(maps.Keys(v.Uses)) {
		u, p := v.Uses[target], v.Publications[target]
		if p == nil || !p.Mounted || !u.HasRun || p.State != Uncertain {
			continue
		}
		p.State, p.Checked, p.GroupSet, p.DirMade, p.DataWritten = Done, true, true, true, true
		p.Bound, p.Sized = p.Block, true // a device may not be held or linked yet since a reboot
		p.LabelsKnown = !p.mayNeedRelabeling(env)
		p.PublishedAt = u.Since
		env.EnqueuePod(u.UID)
		if v.Staging.State == Uncertain {
			v.Staging.State, v.Staging.DataWritten = Done, true
			v.Staging.DirsMade = len(n.stagingDirs(v))
		}
	}
}

// The subjects of operations on a volume; those on a publication are followed by its target.
const (
	subjectAttach    = "attachment"
	subjectOverdue   = "overdue"
	subjectStaging   = "staging"
	subjectUnstaging = "unstaging"
	subjectUse       = "use/"
	subjectUndo      = "undo/"
	subjectExpand    = "expand/"
	subjectToken     = "token/"
)

// tenant returns the tenant of an operation on a volume: the pod of the publication that it is for,
// or else the one that has used the volume last. A pod with many volumes has one share.
func (v *Volume) tenant(subject string) string {
	if _, target := splitSubject(subject); target != "" {
		return uidOf(target)
	}
	return cmp.Or(v.User, VolumeKey(v.name()).String())
}

// call issues a call to the driver of a volume.
func (v *Volume) call(subject string, body any, env *Env) {
	v.issueWithin(subject, callTimeout, body, env)
}

// issue issues an operation on files of the node's own disk.
func (v *Volume) issue(subject string, body any, env *Env) {
	v.issueWithin(subject, fsTimeout, body, env)
}

func (v *Volume) issueWithin(subject string, timeout time.Duration, body any, env *Env) {
	v.Op = env.Effects.IssueFor(v.tenant(subject), VolumeKey(v.name()), subject, timeout, body)
}

// issueAt issues an operation on a path that may be in a volume, whose file system may hang.
func (v *Volume) issueAt(path, subject string, timeout time.Duration, body any, env *Env) {
	v.Op = env.Effects.IssueAtFor(v.tenant(subject), path, VolumeKey(v.name()), subject, timeout,
		body)
}

// HandleVolumeCompletion handles the completion of an operation on a volume.
func (n *Node) HandleVolumeCompletion(id world.OpID, r op.Record, ev world.Event, env *Env) {
	v := n.Volumes[r.Owner.Name]
	if v == nil {
		return
	}
	kind, target := splitSubject(r.Subject)
	if kind == subjectToken {
		if u := v.Uses[target]; u != nil {
			u.Tokens.HandleCompletion(id, r, ev)
		}
		return
	}
	if v.Op != id {
		panic("csi: " + v.name() + ": completion of an operation it did not issue: " + r.Call)
	}
	v.Op = 0
	switch kind {
	case subjectAttach:
		n.handleAttachment(v, ev, env)
		n.enqueueUsers(v, env)
	case subjectOverdue:
		n.handleOverdue(v, ev, env)
	case subjectStaging:
		n.handleStaging(v, r, ev, env)
		n.enqueueUsers(v, env)
	case subjectUnstaging:
		n.handleUnstaging(v, r, ev, env)
	case subjectUse:
		n.handlePublishing(v, target, r, ev, env)
		env.EnqueuePod(uidOf(target))
	case subjectExpand:
		n.handleExpanding(v, target, r, ev, env)
		env.EnqueuePod(uidOf(target))
	case subjectUndo:
		n.handleUnpublishing(v, target, r, ev, env)
		env.EnqueuePod(uidOf(target))
	}
}

// enqueueUsers plans the pods that wait for a volume.
func (n *Node) enqueueUsers(v *Volume, env *Env) {
	for _, target := range slices.Sorted(maps.Keys(v.Uses)) {
		env.EnqueuePod(v.Uses[target].UID)
	}
}

// uidOf returns the UID of the pod in a target.
func uidOf(target string) string {
	uid, _, _ := strings.Cut(target, "/")
	return uid
}

// splitSubject splits a subject into its kind and the target.
func splitSubject(subject string) (kind, target string) {
	for _, kind := range []string{subjectUse, subjectUndo, subjectToken, subjectExpand} {
		if target, has := strings.CutPrefix(subject, kind); has {
			return kind, target
		}
	}
	return subject, ""
}
