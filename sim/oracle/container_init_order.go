package oracle

import (
	"slices"

	"seedlet.dev/sim/truth"
)

// initOrder fires when a container starts before its turn (upstream #120247). If the pod's init
// containers changed, any version of them may hold.
type initOrder struct{}

func (*initOrder) describe() Entry {
	return Entry{"init-order", "A container starts only after every init container before it " +
		"has completed, and every sidecar before it has started and passed its startup probe, " +
		"in the same sandbox and restart round."}
}

func (*initOrder) checkFact(m *model, f *truth.Fact) *finding {
	if f.Kind != truth.ContainerStarted {
		return nil
	}
	p, s := m.pods[f.PodUID], m.sandboxes[f.SandboxID]
	if p == nil || s == nil || p.isEphemeral(f.Container) {
		return nil
	}
	missing, round := "", 0
	if c := m.containers[f.ContainerID]; c != nil {
		round = c.round
	}
	for _, inits := range p.initLists {
		if missing = p.firstIncompleteInit(inits, f.Container, s, round); missing == "" {
			return nil
		}
	}
	if missing == "" {
		return nil // no spec of the pod is known
	}
	return findingf("container %s (%.12s) of pod %s was started, but init "+
		"container %s is not done in sandbox %.12s", f.Container, f.ContainerID, p,
		missing, s.id)
}

// firstIncompleteInit returns the first init container that must be done before a given
// container, in its restart round, and is not.
func (p *pod) firstIncompleteInit(inits []string, before string, s *sandbox, round int) string {
	for _, init := range inits {
		if init == before {
			return ""
		}
		done := s.completed
		if p.sidecarPosition(init) > 0 {
			done = s.started
			if p.needsStartupProbe(init) {
				done = s.passedStartup
			}
		}
		if round > s.round || !slices.Contains(done, init) {
			return init
		}
	}
	return ""
}

// needsStartupProbe reports whether the containers after a sidecar wait for its startup probe, by
// every spec of the pod.
func (p *pod) needsStartupProbe(name string) bool {
	for _, spec := range p.specs {
		c := containerOf(spec, name)
		if c == nil || c.StartupProbe == nil {
			return false
		}
		for _, h := range handlersOf(c) {
			if h.kind == startupProbe && h.isAmbiguous {
				return false
			}
		}
	}
	return len(p.specs) > 0
}
