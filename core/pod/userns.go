package pod

import (
	"bytes"
	"strconv"
	"time"

	"seedlet.dev/core/userns"
	"seedlet.dev/world"
)

// The host IDs of a pod that has a user namespace of its own (KEP-127). The range is allocated
// before the sandbox is created, and is an annotation of the sandbox, which survives a restart of
// the agent. The ranges of two pods never overlap while containers of both may run.

// hasOwnIDs reports whether the pod has a user namespace of its own (hostUsers: false).
func (p *Pod) hasOwnIDs() bool {
	users := p.Spec.Spec.HostUsers
	return users != nil && !*users
}

// AllocatedIDs returns the ranges of host IDs that must not be allocated to other pods.
func (p *Pod) AllocatedIDs() []userns.Range {
	var ranges []userns.Range
	if !p.IDs.IsEmpty() {
		ranges = append(ranges, p.IDs)
	}
	for i := range p.Sandboxes {
		if s := &p.Sandboxes[i]; !s.isDown() && !s.IDs.IsEmpty() {
			ranges = append(ranges, s.IDs)
		}
	}
	return ranges
}

// areIDsKnown reports whether the range of a sandbox is known. The range of a sandbox that another
// agent has created is known once the sandbox is inspected.
func (p *Pod) areIDsKnown(s *Sandbox) bool {
	return !p.hasOwnIDs() || !s.IDs.IsEmpty() || s.Inspected
}

// hasMatchingIDs reports whether a sandbox has the pod's range of host IDs. The range of a sandbox
// becomes the pod's unless it is allocated to another pod. If two sandboxes have overlapping
// ranges, which only the kill of an agent can cause, the pod with live containers keeps its range.
func (p *Pod) hasMatchingIDs(s *Sandbox, env *Env) bool {
	if !p.hasOwnIDs() {
		return s.IDs.IsEmpty()
	}
	if !s.IDs.IsEmpty() && p.IDs != s.IDs &&
		s.IDs.IsFree(env.AllocatedIDs(p.UID, !p.HasLiveContainers())) {
		p.IDs = s.IDs
	}
	return !s.IDs.IsEmpty() && p.IDs == s.IDs
}

// MayHaveUnknownIDs reports whether a sandbox of the pod may have a range that is not known:
// another agent has created it, and it is not inspected yet. Only an annotation of Seedlet says
// more.
func (p *Pod) MayHaveUnknownIDs() bool {
	s := p.CurrentSandbox()
	return s != nil && s.Ready && (p.Spec == nil || !p.areIDsKnown(s)) && s.IDs.IsEmpty() &&
		!s.Inspected
}

// idsPeriod is how often a pod looks whether the ranges of all others are known.
const idsPeriod = time.Second

// recordIDs writes the range of the pod into its directory, for a kubelet that takes the node over.
func (p *Pod) recordIDs(env *Env, w *wakeTimer) {
	r := &p.Record
	if p.IDs.IsEmpty() || p.IDs == r.IDs || !p.hasDir() || env.CleanupInProgress ||
		w.waitUntil(r.IDsNotBefore) {
		return
	}
	path := p.dir(env.Node) + "/" + userns.FileName
	if r.LookedFor && !r.IDsRead {
		r.Op = env.Effects.Issue(p.Key(), recordSubject, fsTimeout, &world.ReadFiles{Path: path,
			FilesMax: 1, BytesMax: recordBytesMax})
		return
	}
	r.WritingIDs = p.IDs
	r.Op = env.Effects.Issue(p.Key(), recordSubject, fsTimeout, &world.WriteFile{
		Path: path, Data: p.IDs.File(), Mode: recordPermission})
}

// handleIDsRead notes whether the file has the range already. If it cannot be read it is written.
func (p *Pod) handleIDsRead(ev world.Event) {
	p.Record.IDsRead = true
	read, ok := ev.Body.(*world.FilesRead)
	if ok && len(read.Files) == 1 && read.Files[0].Err == nil &&
		bytes.Equal(read.Files[0].Data, p.IDs.File()) {
		p.Record.IDs = p.IDs
	}
}

// handleIDsWritten handles the completion of recordIDs. Only a kubelet misses the file.
func (p *Pod) handleIDsWritten(ev world.Event, env *Env) {
	r := &p.Record
	if ev.Err == nil {
		r.IDs, r.IDsNotBefore = r.WritingIDs, time.Time{}
	} else {
		if r.IDsNotBefore.IsZero() {
			env.Effects.Log(world.LevelWarning, "the host IDs of a pod cannot be recorded for a kubelet",
				"pod", p.FullName(), "podUID", p.UID, "err", ev.Err.Message)
		}
		r.IDsNotBefore = ev.Time.Add(idsRetry)
	}
	r.WritingIDs = userns.Range{}
}

const idsRetry = time.Minute

// allocateIDs allocates the range of host IDs that a new sandbox needs, and reports whether the
// sandbox can be created now.
func (p *Pod) allocateIDs(name string, env *Env, w *wakeTimer) bool {
	if !p.hasOwnIDs() {
		p.IDs = userns.Range{}
		return true
	}
	if env.Runtime.AsOf.IsZero() {
		return false // the status request for the runtime's features is in flight
	}
	if !env.AreIDsKnown(p.UID) {
		w.waitUntil(env.Effects.Now().Add(idsPeriod))
		return false
	}
	problem := ""
	allocated := env.AllocatedIDs(p.UID, true)
	switch handler := env.Runtime.Handler(name); {
	case len(env.Runtime.Handlers) == 0:
		problem = "runtime handlers are not set"
	case handler == nil:
		problem = "the handler " + strconv.Quote(name) + " is not known"
	case !handler.UserNamespaces:
		problem = "RuntimeClass handler " + strconv.Quote(name) + " does not support user namespaces"
	case p.IDs.IsEmpty() || !p.IDs.IsFree(allocated):
		if p.IDs = env.Node.IDs.FirstFree(allocated); p.IDs.IsEmpty() {
			problem = "can't allocate user namespace: could not find an empty slot to allocate a " +
				"user namespace"
		}
	}
	if problem == "" {
		return true
	}
	p.IDs = userns.Range{}
	pr := p.noteFailure("", "RunPodSandbox", world.Errorf(world.KindInternal, "RunPodSandbox", "%s",
		problem), env.Effects.Now())
	w.waitUntil(pr.NotBefore)
	p.recordFailureEvent(pr, env)
	return false
}
