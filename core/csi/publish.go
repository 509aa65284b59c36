package csi

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"seedlet.dev/core/budget"
	"seedlet.dev/core/op"
	"seedlet.dev/core/timer"
	"seedlet.dev/core/volumeop"
	"seedlet.dev/world"
)

// planUse issues the next operation for a use, reports whether it has, and returns when to plan
// again.
func (n *Node) planUse(v *Volume, u *Use, env *Env) (issued bool, wake time.Time) {
	p := v.Publications[u.target()]
	if p != nil && p.Block {
		p.keepDevice()
	}
	now := env.Effects.Now()
	isDone := p != nil && p.State == Done
	if p != nil && p.isReady() {
		due := n.republishAt(v, p, env)
		if due.IsZero() || now.Before(due) {
			issued, wake = n.regroup(v, u, p, env)
			return issued, timer.Soonest(wake, due)
		}
	}
	if u.Attempts.IsWaiting(now, &wake) {
		return false, wake
	}
	if isDone && !p.Checked {
		path := n.publishedPath(p)
		v.issueAt(path, subjectUse+u.target(), fsTimeout, &world.StatPath{Path: path}, env)
		return true, wake
	}
	if isDone && !p.LabelsKnown {
		v.issue(subjectUse+u.target(), &world.ListMounts{Path: "/"}, env)
		return true, wake
	}
	if isDone && !p.GroupSet {
		if issued, wake = n.setGroup(v, u, p, env); !p.GroupSet {
			return issued, wake
		}
	}
	if isDone && p.Block && !p.isGiven() {
		n.bind(v, u, p, env)
		return true, wake
	}
	if isDone && !p.Sized {
		return n.expandFirst(v, u, p, env)
	}
	agreed, problem := n.agreeOnLabel(v, u, env)
	u.noteLabelConflict(problem, env)
	if !agreed {
		return false, wake
	}
	ready, wake := n.prepare(v, env)
	if !ready {
		return v.Op != 0, wake
	}
	err := n.checkUse(v, u, env)
	if err == nil {
		wake, err = n.publish(v, u, env)
	}
	if u.OverBudget = budget.NameOf(err); err != nil {
		u.fail(now, err.Error())
		v.endMount(u, true, env)
		env.EnqueuePod(u.UID)
		return false, u.Attempts.NotBefore
	}
	return v.Op != 0, wake
}

// expandFirst has a volume expanded, if it has to be, before a pod gets it: its driver may refuse
// to do that later. The driver that has published the volume may have gone meanwhile.
func (n *Node) expandFirst(v *Volume, u *Use, p *Publication, env *Env) (issued bool,
	wake time.Time) {
	issued, done, wake := n.expand(v, u, p, env)
	if done {
		if u.ReadOnly && u.Claim != "" {
			u.recordReadOnly(env)
		}
		p.Sized = true
		u.Attempts.Succeed()
		env.EnqueuePod(u.UID)
		return false, n.republishAt(v, p, env)
	}
	if n.session(v.Driver) == nil {
		u.Attempts.Fail(env.Effects.Now(), v.expandProblem(u, notFound(v.Driver)))
		env.EnqueuePod(u.UID)
		return false, u.Attempts.NotBefore
	}
	if e := &v.Expansion.Attempts; !issued && e.Failures > 0 {
		u.Attempts.Failures, u.Attempts.Problem = e.Failures, e.Problem
		env.EnqueuePod(u.UID)
	}
	return issued, wake
}

// republishAt returns when to publish a volume again whose driver wants that, as a kubelet does in
// each sync of the pod; zero: never.
func (n *Node) republishAt(v *Volume, p *Publication, env *Env) time.Time {
	d, _ := env.driverObject(v.Driver)
	if d == nil || d.Spec.RequiresRepublish == nil || !*d.Spec.RequiresRepublish {
		return time.Time{}
	}
	return p.PublishedAt.Add(env.Objects.StoragePeriod())
}

func (u *Use) fail(now time.Time, problem string) { u.Attempts.Fail(now, u.setUpProblem(problem)) }

// checkUse returns why a pod cannot have a volume as it asks for it.
func (n *Node) checkUse(v *Volume, u *Use, env *Env) error {
	if u.isOfOnePod() {
		for _, p := range v.Publications { //ordered: whether there is one
			if p.UID != u.UID && p.State != "" {
				return errors.New(InUseElsewhere)
			}
		}
	}
	d, _ := env.driverObject(v.Driver)
	mode := lifecycleMode(v)
	switch {
	case d == nil && !v.Ephemeral:
	case d == nil:
		return fmt.Errorf("kubernetes.io/csi: mounter.SetupAt failed to check volume lifecycle mode: "+
			"volume mode %q not supported by driver %s (no CSIDriver object)", mode, v.Driver)
	case !slices.Contains(d.Spec.VolumeLifecycleModes, mode):
		return fmt.Errorf("kubernetes.io/csi: mounter.SetupAt failed to check volume lifecycle mode: "+
			"volume mode %q not supported by driver %s (only supports %q)", mode, v.Driver,
			d.Spec.VolumeLifecycleModes)
	case d.Spec.FSGroupPolicy == nil || *d.Spec.FSGroupPolicy == "":
		return errors.New("kubernetes.io/csi: mounter.SetupAt failed to check fsGroup policy: " +
			"expected valid fsGroupPolicy, received nil value or empty string")
	}
	return nil
}

// publish issues the next operation that publishes a volume for a pod, and returns when to plan
// again. As with the staging, the data is durable before the call.
func (n *Node) publish(v *Volume, u *Use, env *Env) (time.Time, error) {
	p := v.Publications[u.target()]
	if p == nil {
		if v.Publications == nil {
			v.Publications = map[string]*Publication{}
		}
		p = &Publication{UID: u.UID, SpecName: u.SpecName, Block: u.Block,
			Label: v.Staging.Label}
		v.Publications[u.target()] = p
	}
	if p.Removal != (Removal{}) { // its removal had started, and the directory may be gone
		p.Removal, p.DirMade, p.DataWritten = Removal{}, false, false
		p.UndoneSince = time.Time{}
	}
	dir, subject := n.publicationDir(p), subjectUse+u.target()
	switch {
	case p.Block && !p.DataWritten:
		v.issue(subject, &world.WriteFile{Path: dir, Mode: deviceMode}, env)
		return time.Time{}, nil
	case p.Block:
	case !p.DirMade:
		v.issue(subject, &world.MakeDir{Path: dir, Mode: dirMode}, env)
		return time.Time{}, nil
	case !p.DataWritten:
		v.issue(subject, &world.WriteFile{Path: dir + "/" + dataFile, Data: n.publicationData(v, p),
			Mode: dataMode}, env)
		return time.Time{}, nil
	}
	request, wake, err := n.publishRequest(v, u, p, env)
	if request == nil || err != nil {
		return wake, err
	}
	if p.State != Done { // a volume that is published again stays so, whatever comes of that
		p.Fresh, p.State, p.Checked, p.GroupSet = p.State == "", Uncertain, false, false
		p.LabelsKnown, p.Relabel = false, false
		p.Bound, p.Held, p.Linked, p.Sized = false, false, false, false
		p.Regroup = false
	}
	v.call(subject, request, env)
	return time.Time{}, nil
}

// handlePublishing handles the completion of an operation of publish or setGroup.
func (n *Node) handlePublishing(v *Volume, target string, r op.Record, ev world.Event, env *Env) {
	p, u := v.Publications[target], v.Uses[target]
	if p == nil {
		return
	}
	if info, is := ev.Body.(*world.PathInfo); is && p.Block && info.Kind != world.PathBlockDevice {
		ev.Err = world.Errorf(world.KindInternal, r.Call, notDevice)
	}
	switch {
	case ev.Err != nil:
		p.handleFailure(v, u, r, ev)
	case r.Call == "ListMounts":
		if listed, ok := ev.Body.(*world.MountsListed); ok {
			p.LabelsKnown, p.Relabel = true, hasLabels(listed, n.publishedPath(p))
		}
	case r.Call == "MakeDir":
		p.DirMade = true
	case r.Call == "WriteFile":
		p.DataWritten = true
	case r.Call == "ShareWithGroup":
		p.GroupSet, p.Regroup = true, false
	case r.Call == "StatPath":
		p.Checked, p.LabelsKnown = true, !p.mayNeedRelabeling(env)
	case r.Call == "BindMount":
		p.Bound = true
	case r.Call == "HoldDevice":
		p.Held = true
	case r.Call == "MakeLink":
		p.Linked = true
		if u != nil {
			volumeop.RecordMapped(env.Effects, u.pod(), p.SpecName, n.boundPath(p), n.linkPath(p))
		}
	default:
		p.State, p.PublishedAt, p.Regroup = Done, ev.Time, p.isReady()
		if session := n.session(v.Driver); u != nil && session != nil {
			p.GroupSet = p.GroupSet || !mustSetGroup(v, u, session, env)
		}
	}
	p.Fresh = false
	switch {
	case u == nil:
	case ev.Err != nil:
		v.endMount(u, true, env)
	case p.isReady():
		u.Attempts.Succeed()
	}
}

// hasLabels reports whether the files at a path have SELinux labels that can be changed: by the
// mount that they are in, as upstream (GetSELinux in pkg/volume/util/hostutil).
func hasLabels(listed *world.MountsListed, path string) bool {
	var in world.Mount
	for _, m := range listed.Mounts { // of two mounts at one path the later one is on top
		isAbove := m.Path == path || strings.HasPrefix(path, strings.TrimSuffix(m.Path, "/")+"/")
		if isAbove && len(m.Path) >= len(in.Path) {
			in = m
		}
	}
	return in.SELinuxLabels
}

// handleFailure handles that an operation of publish, or one after it, has failed. Unless the
// volume was published before, it is published again.
func (p *Publication) handleFailure(v *Volume, u *Use, r op.Record, ev world.Event) {
	message := ev.Err.Message
	switch r.Call {
	case "ShareWithGroup":
		if !p.Regroup { // a volume that the pod has stays published
			p.State = Uncertain
		}
		message = fmt.Sprintf("applyFSGroup failed for vol %s: %s", v.Handle, message)
	case "StatPath":
		p.State = Uncertain
		if message != notDevice {
			message = "NodePublishVolume has succeeded, but: " + message
		}
	case "ListMounts": // the volume is published, and the mount table is read again
		message = "error checking for SELinux support: " + message
	case "BindMount", "HoldDevice":
		p.State = Uncertain
	case "PublishVolume":
		v.Attachment.Known = false // the driver may have got an outdated context
		v.doubtStaging(ev.Err)
		if p.Fresh && hadNoEffect(ev.Err) {
			p.State = ""
		}
		if p.State == Done {
			p.PublishedAt = ev.Time // the next attempt follows its back-off
		}
	}
	if u != nil {
		u.fail(ev.Time, message)
	}
}

// regroup gives the files of a volume that was published again to the group of its pod, which has
// it meanwhile, and returns when to plan again.
func (n *Node) regroup(v *Volume, u *Use, p *Publication, env *Env) (issued bool, wake time.Time) {
	if !p.Regroup || u.Attempts.IsWaiting(env.Effects.Now(), &wake) {
		return false, wake
	}
	if issued, wake = n.setGroup(v, u, p, env); !p.Regroup {
		u.Attempts.Succeed() // an attempt that has failed counts no more
		env.EnqueuePod(u.UID)
	}
	return issued, wake
}

// setGroup gives the files of a published volume to the group of its pod, if they have to be, and
// returns when to plan again. Without a registered driver it is planned again once there is one.
func (n *Node) setGroup(v *Volume, u *Use, p *Publication, env *Env) (issued bool, wake time.Time) {
	session := n.session(v.Driver)
	if _, known := env.driverObject(v.Driver); !known || session == nil {
		return false, time.Time{}
	}
	if !mustSetGroup(v, u, session, env) {
		p.GroupSet, p.Regroup = true, false
		return false, time.Time{}
	}
	return true, n.shareWithGroup(v, u, p, env)
}

// StatsRequest returns the request for the usage of a volume where it is published for a use, and
// whether its driver reports the health of the volume. The request is nil if the driver is not
// registered or has no statistics.
func (n *Node) StatsRequest(u *Use) (r *world.GetVolumeStats, hasCondition, isPublished bool) {
	v := n.Volumes[UniqueName(u.Driver, u.Handle)]
	if v == nil || v.Uses[u.target()] == nil {
		return nil, false, false
	}
	p, session := v.Publications[u.target()], n.session(v.Driver)
	switch {
	case p == nil || !p.isReady():
		return nil, false, false
	case session == nil || !session.Info.Capabilities.Stats:
		return nil, false, true
	}
	return &world.GetVolumeStats{Driver: session.driver(v.Driver), Handle: v.Handle,
		Path: n.publishedPath(p)}, session.Info.Capabilities.Condition, true
}
