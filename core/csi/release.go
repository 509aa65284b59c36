package csi

import (
	"fmt"
	"strings"

	"seedlet.dev/core/op"
	"seedlet.dev/core/volumeop"
	"seedlet.dev/world"
)

// mayUnpublish reports whether nothing needs a publication any more. One that was found is needed
// for as long as its pod is known or may become known, until the pod takes its uses back. One with
// an outdated label makes room for the one that its pod needs.
func (n *Node) mayUnpublish(v *Volume, target string, env *Env) bool {
	p := v.Publications[target]
	if v.Uses[target] != nil {
		return v.hasOutdatedLabel(target, env)
	}
	return p.Released || env.CleansUp && !env.IsKnownPod(p.UID)
}

// mayUnstage reports whether nothing needs a staged volume any more, and it is known what is
// published from it.
func (n *Node) mayUnstage(v *Volume, env *Env) bool {
	return v.Staging != Staging{} && env.CleansUp && !n.hides(v.Driver, v)
}

// unpublish issues the next operation that undoes a publication, and reports whether it has. Until
// its driver is registered, a volume waits. Sub-paths are unmounted before, as they show the same
// file system (CleanSubPaths upstream). Nothing is removed before the mount table shows that
// nothing is mounted there, and the directory that its driver has left is empty.
func (n *Node) unpublish(v *Volume, p *Publication, env *Env) bool {
	subject, dir := subjectUndo+TargetOf(p.UID, p.SpecName), n.publicationDir(p)
	switch {
	case n.unbind(v, p, subject, env):
	case p.State != "" && !p.Block && !p.Released && v.Uses[TargetOf(p.UID, p.SpecName)] == nil &&
		!p.Removal.SubPaths: // no pod is known that would unmount them
		at := volumeop.SubPathDir(n.PodsDir+"/"+p.UID) + "/" + p.SpecName
		v.issueAt(at, subject, fsTimeout, &world.Unmount{Path: at}, env)
	case p.State != "":
		session := n.session(v.Driver)
		if v.waitsForDriver(session, dir, env) {
			return false
		}
		v.call(subject, &world.UnpublishVolume{Driver: session.driver(v.Driver), Handle: v.Handle,
			TargetPath: n.publishedPath(p)}, env)
	case !p.Removal.Unmounted && p.Block:
		v.issue(subject, &world.ListMounts{Path: n.publishedPath(p)}, env)
	case !p.Removal.Unmounted:
		v.issue(subject, &world.ListMounts{Path: dir}, env)
	case !p.Removal.Empty && p.Block:
		v.issue(subject, &world.StatPath{Path: n.publishedPath(p)}, env)
	case !p.Removal.Empty:
		v.issueAt(n.publishedPath(p), subject, fsTimeout, &world.ListDir{Path: n.publishedPath(p)},
			env)
	default:
		v.issue(subject, &world.RemoveTree{Path: dir}, env)
	}
	begin(&p.UndoneSince, env)
	return true
}

// waitsForDriver reports whether the driver of a volume is missing, so that it cannot be undone,
// and logs that once.
func (v *Volume) waitsForDriver(session *Session, path string, env *Env) bool {
	waiting := ""
	if session == nil {
		waiting = notFound(v.Driver)
	}
	if waiting != "" && waiting != v.Waiting {
		env.Effects.Log(world.LevelWarning, "A volume waits to be unpublished or unstaged",
			"volume", v.name(), "path", path, "reason", waiting)
	}
	v.Waiting = waiting
	return waiting != ""
}

// handleUnpublishing handles the completion of an operation of unpublish.
func (n *Node) handleUnpublishing(v *Volume, target string, r op.Record, ev world.Event, env *Env) {
	p := v.Publications[target]
	if p == nil {
		return
	}
	problem := p.Removal.note(r, ev)
	switch {
	case problem == "" && p.Removal.noteDevice(p, r):
	case problem != "" && !p.Block && r.Call == "Unmount": // its driver was not asked
		p.Attempts.Fail(ev.Time, problem)
		logFailure(v, n.publicationDir(p), &p.Attempts, env)
	case problem != "":
		if p.Removal, p.Mounted = (Removal{}), false; v.Driver != "" {
			p.State = Uncertain // the call is repeated
		}
		p.Attempts.Fail(ev.Time, problem)
		logFailure(v, n.publicationDir(p), &p.Attempts, env)
		v.end(OperationUnmount, &p.UndoneSince, true, env)
		n.countCleaning(v, true)
	case r.Call == "Unmount":
		p.Removal.SubPaths = true
	case r.Call == "UnpublishVolume":
		p.State = ""
	case r.Call == "RemoveTree":
		delete(v.Publications, target)
		n.dropOwner(v, p.UID)
		v.end(OperationUnmount, &p.UndoneSince, false, env)
		n.countCleaning(v, false)
	}
}

// countCleaning counts the removal of a directory that was found without readable data.
func (n *Node) countCleaning(v *Volume, failed bool) {
	if v.Driver != "" {
		return
	}
	if n.Search.Cleanings++; failed {
		n.Search.FailedCleanings++
	}
}

// note applies the completion of an operation that undoes something, and returns why it failed;
// empty if it has not.
func (m *Removal) note(r op.Record, ev world.Event) (problem string) {
	switch {
	case (r.Call == "ListDir" || r.Call == "StatPath") && ev.Err.Has(world.KindNotFound):
		m.Empty = true
		return ""
	case ev.Err != nil:
		return ev.Err.Message
	}
	switch body := ev.Body.(type) {
	case *world.MountsListed:
		if len(body.Mounts) > 0 {
			return fmt.Sprintf("%s is still mounted", body.Mounts[0].Path)
		}
		m.Unmounted = true
	case *world.PathInfo:
		if body.Kind == world.PathFile && body.Size == 0 { // the mount point of the device
			m.Empty = true
			return ""
		}
		return "its driver has left the device"
	case *world.DirListed:
		if len(body.Entries) > 0 {
			return "its driver has left files in the directory"
		}
		m.Empty = true
	}
	return ""
}

// logFailure logs why a volume cannot be undone, for the first time in a row.
func logFailure(v *Volume, path string, a *volumeop.Attempts, env *Env) {
	if a.Failures == 1 {
		env.Effects.Log(world.LevelWarning, "Failed to unpublish or unstage a volume", "volume", v.name(),
			"path", path, "err", a.Problem)
	}
}

// unstage issues the next operation that undoes the staging of a volume.
func (n *Node) unstage(v *Volume, env *Env) {
	s, dir := &v.Staging, n.stagingDir(v)
	session := n.session(v.Driver)
	s.Attempts = volumeop.Attempts{} // of staging it
	if s.State == "" || session != nil {
		begin(&s.UndoneSince, env)
	}
	switch {
	case s.State != "" && v.waitsForDriver(session, dir, env):
	case s.State != "" && !session.Info.Capabilities.StageUnstage:
		s.State = "" // another version of the driver has staged it
		n.unstage(v, env)
	case s.State != "" && !s.Removal.Checked:
		v.issue(subjectUnstaging, &world.ListMounts{Path: n.RootDir}, env)
	case s.State != "":
		v.call(subjectUnstaging, &world.UnstageVolume{Driver: session.driver(v.Driver),
			Handle: v.Handle, StagingPath: n.stagingPath(v)}, env)
	case !s.Dir:
		v.Staging = Staging{}
	case !s.Removal.Unmounted:
		v.issue(subjectUnstaging, &world.ListMounts{Path: n.mountsBelow(v)}, env)
	case !s.Removal.Empty:
		v.issueAt(n.stagingPath(v), subjectUnstaging, fsTimeout,
			&world.ListDir{Path: n.stagingPath(v)}, env)
	default:
		s.DirsMade, s.DataWritten = 0, false
		v.issue(subjectUnstaging, &world.RemoveTree{Path: n.stagingTrees(v)[s.Removal.Removed]}, env)
	}
}

// handleUnstaging handles the completion of an operation of unstage.
func (n *Node) handleUnstaging(v *Volume, r op.Record, ev world.Event, env *Env) {
	s, problem := &v.Staging, ""
	listed, isTable := ev.Body.(*world.MountsListed)
	if isTable && s.State == "" {
		ev.Body = n.ofVolume(v, listed)
	}
	if isTable && s.State != "" && ev.Err == nil {
		if problem = n.findReference(v, listed); problem == "" {
			s.Removal.Checked = true
			return
		}
	} else {
		problem = s.Removal.note(r, ev)
	}
	switch {
	case problem != "":
		s.State, s.DirsMade, s.DataWritten, s.Removal = Uncertain, 0, false, Removal{}
		s.Undoing.Fail(ev.Time, problem)
		logFailure(v, n.stagingDir(v), &s.Undoing, env)
		v.end(OperationUnmountDevice, &s.UndoneSince, true, env)
	case r.Call == "UnstageVolume":
		s.State, v.Attachment, v.Expansion = "", Attachment{}, Expansion{}
		s.DirsMade, s.DataWritten = 0, false
		env.ReportsInUse()
	case r.Call == "RemoveTree":
		if s.Removal.Removed++; s.Removal.Removed == len(n.stagingTrees(v)) {
			v.end(OperationUnmountDevice, &s.UndoneSince, false, env)
			v.Staging = Staging{}
		}
	}
}

// findReference returns which other mount shows the staged volume; empty if none does. It is a last
// check: a publication that is known is unpublished before. The device of a block volume is bound
// from the file system of all devices, so its mounts are known by their directories.
func (n *Node) findReference(v *Volume, listed *world.MountsListed) string {
	path := n.stagingPath(v)
	if v.Device != "" {
		bound, published := n.boundDir(v.Device)+"/", n.publishDir(v.Device)+"/"
		for _, m := range listed.Mounts {
			if strings.HasPrefix(m.Path, bound) || strings.HasPrefix(m.Path, published) {
				return stillMounted(path, m.Path)
			}
		}
	}
	var staged *world.Mount
	for i := range listed.Mounts {
		if listed.Mounts[i].Path == path {
			staged = &listed.Mounts[i]
		}
	}
	if staged == nil {
		return ""
	}
	for i := range listed.Mounts {
		m := &listed.Mounts[i]
		isOther := m.Path != path && !strings.HasPrefix(m.Path, path+"/")
		if isOther && m.Device == staged.Device && m.Root == staged.Root {
			return stillMounted(path, m.Path)
		}
	}
	return ""
}

func stillMounted(staged, other string) string {
	return fmt.Sprintf("GetDeviceMountRefs check failed: The device mount path %q is still mounted "+
		"by other references %v", staged, []string{other})
}
