package pod

import (
	"strconv"
	"time"

	"seedlet.dev/core/userns"
	"seedlet.dev/world"
)

// The host IDs of a pod that has a user namespace of its own (KEP-127). The range is allocated
// before the sandbox is created, and recorded in the pod's directory, from where a kubelet and the
// next agent take it. It is an annotation of the sandbox as well, which says what runs. The ranges
// of two pods never overlap while containers of both may run, nor do those of two files.

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
	for _, r := range []userns.Range{p.Record.IDs, p.Record.WritingIDs} {
		if !r.IsEmpty() && r != p.IDs {
			ranges = append(ranges, r)
		}
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

// MayHaveUnknownIDs reports whether the pod may have a range that is not known: its file, which may
// be of an earlier agent, is not read yet. A kubelet writes the file before the sandbox, and
// removes it after the pod has ended. So a pod that only the runtime has waits for its file as
// well, unless the range of its sandbox is known.
func (p *Pod) MayHaveUnknownIDs() bool {
	r := &p.Record
	if r.IDsRead || p.NoLongerDesired && p.Stage == Terminated { // its directory is removed
		return false
	}
	if p.Spec != nil {
		return p.hasOwnIDs() && (r.LookedFor || !r.Loaded)
	}
	s := p.CurrentSandbox()
	return s != nil && s.Ready && s.IDs.IsEmpty() && !s.Inspected
}

const (
	// idsPeriod is how often a pod looks whether the ranges of all others are known.
	idsPeriod = time.Second
	// idsReadFailuresMax is how many failed reads of a file, over half a minute, end the wait of
	// other pods for it.
	idsReadFailuresMax = 6
	idsRetry           = time.Minute // of a write or removal for which nothing waits
)

func (p *Pod) idsPath(env *Env) string { return p.dir(env.Node) + "/" + userns.FileName }

// loadIDs reads the file of a pod that may be older than this agent.
func (p *Pod) loadIDs(env *Env, w *wakeTimer) {
	if r := &p.Record; p.MayHaveUnknownIDs() && r.Op == 0 && !w.waitUntil(r.IDsNotBefore) {
		r.Op = env.Effects.Issue(p.Key(), idsSubject, fsTimeout, &world.ReadFiles{
			Path: p.idsPath(env), FilesMax: 1, BytesMax: recordBytesMax})
	}
}

// recordIDs writes the range of the pod into its directory, as a kubelet does: one that takes the
// node over gives the pod the same, and gives it to no other pod. It reports whether the file has
// the range.
func (p *Pod) recordIDs(env *Env, w *wakeTimer) bool {
	r := &p.Record
	if p.IDs.IsEmpty() || p.IDs == r.IDs {
		return true
	}
	if r.Op != 0 || p.MayHaveUnknownIDs() || env.CleanupInProgress || w.waitUntil(r.IDsNotBefore) {
		return false
	}
	if !p.hasDir() {
		r.Op = env.Effects.Issue(p.Key(), idsSubject, fsTimeout,
			&world.MakeDir{Path: p.dir(env.Node), Mode: dirPermission})
		return false
	}
	r.WritingIDs = p.IDs
	r.Op = env.Effects.Issue(p.Key(), idsSubject, fsTimeout, &world.WriteFile{
		Path: p.idsPath(env), Data: p.IDs.File(), Mode: recordPermission})
	return false
}

// removeIDs removes the file of a pod that has ended, as a kubelet does. No other pod gets the
// range before.
func (p *Pod) removeIDs(env *Env, w *wakeTimer) {
	r := &p.Record
	if r.Op != 0 || r.IDs.IsEmpty() && r.WritingIDs.IsEmpty() || w.waitUntil(r.IDsNotBefore) {
		return
	}
	r.Op = env.Effects.Issue(p.Key(), idsSubject, fsTimeout,
		&world.RemoveTree{Path: p.idsPath(env)})
}

// forgetIDs notes that the file does not exist.
func (r *Record) forgetIDs() { r.IDs, r.WritingIDs = userns.Range{}, userns.Range{} }

// handleIDsCompletion handles the completion of an operation on the file, or on the directory for
// it.
func (p *Pod) handleIDsCompletion(call string, ev world.Event, env *Env) {
	r := &p.Record
	r.Op = 0
	failure := ev.Err
	switch {
	case call == "ReadFiles":
		r.IDs, failure = idsFromFile(ev)
		r.IDsRead = failure == nil
	case failure != nil:
	case call == "MakeDir":
		p.DirCreated, r.DirMissing = true, false
	case call == "WriteFile":
		r.IDs, r.WritingIDs = r.WritingIDs, userns.Range{}
	case call == "RemoveTree":
		r.forgetIDs()
	}
	if failure == nil {
		r.IDsFailures, r.IDsNotBefore = 0, time.Time{}
		return
	}
	r.IDsFailures++
	if r.IDsFailures == 1 {
		env.Effects.Log(world.LevelWarning, "the host IDs of a pod cannot be read, recorded or removed",
			"pod", p.FullName(), "podUID", p.UID, "call", call, "err", failure.Message)
	}
	p.noteIDsFailure(call, failure, ev.Time, env)
}

// idsFromFile returns the range that a completed read has found; an empty one if no file exists.
func idsFromFile(ev world.Event) (userns.Range, *world.Error) {
	failure := ev.Err
	var data []byte
	if body, ok := ev.Body.(*world.FilesRead); ok && failure == nil && len(body.Files) == 1 {
		data, failure = body.Files[0].Data, body.Files[0].Err
	}
	if failure != nil {
		if failure.Has(world.KindNotFound) {
			failure = nil
		}
		return userns.Range{}, failure
	}
	ids, err := userns.ParseFile(data)
	if err != nil {
		return userns.Range{}, world.Errorf(world.KindInvalid, "ReadFiles", "%s", err)
	}
	return ids, nil
}

// noteIDsFailure decides what waits for the file. Other pods wait for a read until it has failed
// too often. A new sandbox waits for the write, as with a kubelet. For a write beside a sandbox,
// and for a removal, nothing waits.
func (p *Pod) noteIDsFailure(call string, failure *world.Error, now time.Time, env *Env) {
	r := &p.Record
	if call == "MakeDir" || call == "WriteFile" && failure.Has(world.KindNotFound) {
		p.DirCreated, r.DirMissing = false, true
	}
	r.IDsNotBefore = now.Add(idsRetry)
	switch s := p.CurrentSandbox(); {
	case call == "ReadFiles":
		r.IDsNotBefore = now.Add(failureBackoff(r.IDsFailures))
		if r.IDsFailures < idsReadFailuresMax {
			return
		}
		r.IDsRead, r.IDsFailures, r.IDsNotBefore = true, 0, time.Time{}
		env.Effects.Log(world.LevelError, "the host IDs of a pod cannot be read: other pods no longer "+
			"wait for them, and may get the same", "pod", p.FullName(), "podUID", p.UID,
			"err", failure.Message)
	case call != "RemoveTree" && p.Stage == Syncing && (s == nil || !s.Ready):
		pr := p.noteFailure("", "RunPodSandbox", world.Errorf(world.KindInternal, call,
			"create user namespace: %s", failure.Message), now)
		p.recordFailureEvent(pr, env)
		r.IDsNotBefore = pr.NotBefore
	}
}

// allocateIDs allocates and records the range of host IDs that a new sandbox needs, and reports
// whether the sandbox can be created now.
func (p *Pod) allocateIDs(name string, env *Env, w *wakeTimer) bool {
	if !p.hasOwnIDs() {
		p.IDs = userns.Range{}
		return true
	}
	if env.Runtime.AsOf.IsZero() {
		return false // the status request for the runtime's features is in flight
	}
	if p.MayHaveUnknownIDs() {
		return false
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
		p.IDs = p.Record.IDs
		if env.Node.IDs.Has(p.IDs) && p.IDs.IsFree(allocated) {
			break // the pod had it before, maybe with a kubelet
		}
		if p.IDs = env.Node.IDs.FirstFree(allocated); p.IDs.IsEmpty() {
			problem = "can't allocate user namespace: could not find an empty slot to allocate a " +
				"user namespace"
		}
	}
	if problem == "" {
		return p.recordIDs(env, w)
	}
	p.IDs = userns.Range{}
	pr := p.noteFailure("", "RunPodSandbox", world.Errorf(world.KindInternal, "RunPodSandbox", "%s",
		problem), env.Effects.Now())
	w.waitUntil(pr.NotBefore)
	p.recordFailureEvent(pr, env)
	return false
}
