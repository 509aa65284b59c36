package csi

import (
	"fmt"
	"time"

	"seedlet.dev/core/op"
	"seedlet.dev/world"
)

// prepare reports whether a volume can be published: its driver is registered, and it is attached
// and staged, as far as it has to be. Otherwise it issues what is next, and returns when to plan
// again.
func (n *Node) prepare(v *Volume, env *Env) (ready bool, wake time.Time) {
	if v.Staging.Attempts.IsWaiting(env.Effects.Now(), &wake) {
		return false, wake
	}
	session := n.session(v.Driver)
	if session == nil {
		problem := "kubernetes.io/csi: mounter.SetUpAt failed to get CSI client: " + notFound(v.Driver)
		switch {
		case v.Device != "":
			problem = "kubernetes.io/csi: blockMapper.SetUpDevice failed to get CSI client: " +
				notFound(v.Driver)
		case !v.Ephemeral:
			problem = "kubernetes.io/csi: attacher.MountDevice failed to create newCsiDriverClient: " +
				notFound(v.Driver)
		}
		v.failStaging(env.Effects.Now(), problem, env)
		n.enqueueUsers(v, env)
		return false, v.Staging.Attempts.NotBefore
	}
	if attached, wake := n.attach(v, env); !attached {
		return false, wake
	}
	stages := session.Info.Capabilities.StageUnstage || v.Device != "" &&
		(v.Staging.DirsMade < len(n.stagingDirs(v)) || !v.Staging.DataWritten)
	if v.Ephemeral || !stages || v.Staging.State == Done && v.Staging.Removal == (Removal{}) {
		v.Staging.Attempts.Succeed()
		return true, time.Time{}
	}
	return false, n.stage(v, session, env)
}

func notFound(driver string) string {
	return "driver name " + driver + " not found in the list of registered CSI drivers"
}

// failStaging notes that a volume cannot be staged, or that its driver is missing.
func (v *Volume) failStaging(now time.Time, problem string, env *Env) {
	step := "MountVolume.MountDevice"
	switch {
	case v.Ephemeral:
		step = "MountVolume.SetUp"
	case v.Device != "":
		step = "MapVolume.SetUpDevice"
	}
	v.Staging.Attempts.Fail(now, fmt.Sprintf("%s failed for volume %q : %s", step,
		v.specName(), problem))
	if u := v.firstUse(); u != nil {
		v.endMount(u, true, env)
	}
}

// stage issues the next operation that stages a volume. Its data is durable before the call: an
// agent that is started after a crash knows from it what it has to unstage.
func (n *Node) stage(v *Volume, session *Session, env *Env) time.Time {
	s := &v.Staging
	s.Removal, s.UndoneSince = Removal{}, time.Time{}
	switch {
	case s.DirsMade < len(n.stagingDirs(v)):
		s.Dir = true
		dir := n.stagingDirs(v)[s.DirsMade] // something of an earlier agent may be mounted there
		v.issueAt(dir, subjectStaging, fsTimeout, &world.MakeDir{Path: dir, Mode: dirMode}, env)
	case !s.DataWritten:
		v.issue(subjectStaging, &world.WriteFile{Path: n.dataPath(v), Data: n.stagingData(v),
			Mode: dataMode}, env)
	default:
		request, known, err := n.stageRequest(v, session, env)
		if err != nil {
			v.failStaging(env.Effects.Now(), err.Error(), env)
			n.enqueueUsers(v, env)
			return s.Attempts.NotBefore
		}
		if known {
			s.Fresh, s.State = s.State == "", Uncertain
			v.call(subjectStaging, request, env)
		}
	}
	return time.Time{}
}

// handleStaging handles the completion of an operation of stage.
func (n *Node) handleStaging(v *Volume, r op.Record, ev world.Event, env *Env) {
	s := &v.Staging
	switch {
	case ev.Err != nil:
		v.failStaging(ev.Time, ev.Err.Message, env)
		v.Attachment.Known = false // the driver may have got an outdated context
		if r.Call == "StageVolume" && s.Fresh && hadNoEffect(ev.Err) {
			s.State = ""
		}
	case r.Call == "MakeDir":
		s.DirsMade++
	case r.Call == "WriteFile":
		s.DataWritten = true
	default:
		s.State = Done
		s.Attempts.Succeed()
	}
	s.Fresh = false
}

// doubtStaging has a volume staged again if its driver refuses to publish it in its present state
// (FAILED_PRECONDITION): it may not be staged any more. A call to unstage it that an earlier agent
// made may take effect late, and some drivers lose what is staged when they restart. A kubelet
// repeats the publication alone, and the pod waits for ever.
func (v *Volume) doubtStaging(err *world.Error) {
	if err.Has(world.KindConflict) && v.Staging.State == Done {
		v.Staging.State = Uncertain
	}
}

// hadNoEffect reports whether a failed call is known to have changed nothing.
func hadNoEffect(err *world.Error) bool {
	switch err.Kind {
	case world.KindTimeout, world.KindUnavailable, world.KindInternal:
		return false
	}
	return true
}
