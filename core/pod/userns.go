package pod

import (
	"strconv"

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
