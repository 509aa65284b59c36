package pod

import (
	"strconv"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/core/userns"
	"seedlet.dev/world"
)

// The ids of a pod that has a user namespace of its own. The range is chosen before the sandbox is
// run, and is written on it: there it outlives the agent. No two pods have ids in common as long
// as something of both may run.

// mapsIDs says whether the pod is to have ids of its own.
func (p *Pod) mapsIDs() bool {
	users := p.Spec.Spec.HostUsers
	return users != nil && !*users
}

// idMapped has the files of mounts appear with the ids of the pod, if it has its own.
func (p *Pod) idMapped(mounts []*runtimeapi.Mount) []*runtimeapi.Mount {
	if !p.IDs.None() {
		for _, m := range mounts {
			m.UidMappings, m.GidMappings = p.IDs.Mappings(), p.IDs.Mappings()
		}
	}
	return mounts
}

// IDsHeld are the ranges that nobody else may be given.
func (p *Pod) IDsHeld() []userns.Range {
	var held []userns.Range
	if !p.IDs.None() {
		held = append(held, p.IDs)
	}
	for i := range p.Sandboxes {
		if s := &p.Sandboxes[i]; !s.down() && !s.IDs.None() {
			held = append(held, s.IDs)
		}
	}
	return held
}

// idsKnown says whether it can be told which ids a sandbox has. Another agent's sandbox tells when
// it is inspected.
func (p *Pod) idsKnown(s *Sandbox) bool {
	return !p.mapsIDs() || !s.IDs.None() || s.Inspected
}

// idsFit says whether a sandbox has the ids that the pod is to have. The range that a sandbox has
// becomes the pod's unless another pod has it: of two that claim one range, which only an agent
// that was killed can have caused, the one goes on that has something running.
func (p *Pod) idsFit(s *Sandbox, env *Env) bool {
	if !p.mapsIDs() {
		return s.IDs.None()
	}
	if !s.IDs.None() && p.IDs != s.IDs && s.IDs.Free(env.TakenIDs(p.UID, !p.live())) {
		p.IDs = s.IDs
	}
	return !s.IDs.None() && p.IDs == s.IDs
}

// takeIDs sees that the pod has the ids that a new sandbox needs, and reports whether it can be
// made now.
func (p *Pod) takeIDs(name string, env *Env, w *waits) bool {
	if !p.mapsIDs() {
		p.IDs = userns.Range{}
		return true
	}
	if env.Runtime.AsOf.IsZero() {
		return false // what it can do is being asked
	}
	why := ""
	taken := env.TakenIDs(p.UID, true)
	switch handler := env.Runtime.Handler(name); {
	case len(env.Runtime.Handlers) == 0:
		why = "runtime handlers are not set"
	case handler == nil:
		why = "the handler " + strconv.Quote(name) + " is not known"
	case !handler.UserNamespaces:
		why = "RuntimeClass handler " + strconv.Quote(name) + " does not support user namespaces"
	case p.IDs.None() || !p.IDs.Free(taken):
		if p.IDs = env.Node.IDs.Pick(taken); p.IDs.None() {
			why = "can't allocate user namespace: could not find an empty slot to allocate a user namespace"
		}
	}
	if why == "" {
		return true
	}
	p.IDs = userns.Range{}
	pr := p.failed("", "RunPodSandbox", world.Errorf(world.KindInternal, "RunPodSandbox", "%s",
		why), env.Out.Now())
	w.pending(pr.NotBefore)
	p.tellFailure(pr, env)
	return false
}
