package oracle

import (
	"fmt"
	"slices"

	"seedlet.dev/sim/truth"
)

// initOrder fires when a container starts before its time (upstream #120247). Of a pod whose init
// containers were changed, any version of them will do.
type initOrder struct{}

func (*initOrder) entry() Entry {
	return Entry{"init-order", "A container starts only when every init container before it " +
		"has completed, and every sidecar has been started and has passed its startup probe, " +
		"in the same sandbox, since all containers were restarted there last."}
}

func (*initOrder) fact(w *world, f *truth.Fact) *finding {
	if f.Kind != truth.ContainerStarted {
		return nil
	}
	p, s := w.pods[f.PodUID], w.sandboxes[f.SandboxID]
	if p == nil || s == nil || p.isEphemeral(f.Container) {
		return nil
	}
	missing, round := "", 0
	if c := w.containers[f.ContainerID]; c != nil {
		round = c.round
	}
	for _, inits := range p.inits {
		if missing = p.firstMissing(inits, f.Container, s, round); missing == "" {
			return nil
		}
	}
	if missing == "" {
		return nil // nobody has ever said what its init containers are
	}
	return &finding{message: fmt.Sprintf("container %s (%.12s) of pod %s was started, but init "+
		"container %s is not done in sandbox %.12s", f.Container, f.ContainerID, p,
		missing, s.id)}
}

// firstMissing is the first init container that has not completed but has to before a given one, in
// that one's round.
func (p *pod) firstMissing(inits []string, before string, s *sandbox, round int) string {
	for _, init := range inits {
		if init == before {
			return ""
		}
		done := s.ended
		if p.sidecar(init) > 0 {
			done = s.began
			if p.waitsForStartup(init) {
				done = s.passed
			}
		}
		if round > s.round || !slices.Contains(done, init) {
			return init
		}
	}
	return ""
}

// waitsForStartup says whether what comes after a sidecar waits for its startup probe, by every
// spec that the pod had.
func (p *pod) waitsForStartup(name string) bool {
	for _, spec := range p.specs {
		c := containerOf(spec, name)
		if c == nil || c.StartupProbe == nil {
			return false
		}
		for _, a := range asksOf(c) {
			if a.purpose == forStartup && a.shared {
				return false
			}
		}
	}
	return len(p.specs) > 0
}
