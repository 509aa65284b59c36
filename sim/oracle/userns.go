package oracle

import (
	"fmt"

	"seedlet.dev/sim/truth"
)

// usernsOf fires when two pods that have ids to themselves have some in common, or when a pod that
// is to have its own has the host's (KEP-127).
type usernsOf struct{}

func (*usernsOf) entry() Entry {
	return Entry{"userns", "Every pod with hostUsers false runs with ids that are neither the " +
		"host's nor those of another pod that runs."}
}

// hostIDs are those of the host itself.
const hostIDs = 1 << 16

func (*usernsOf) fact(w *world, f *truth.Fact) *finding {
	if f.Kind != truth.ContainerStarted {
		return nil
	}
	p, s := w.pods[f.PodUID], w.sandboxes[f.SandboxID]
	if p == nil || s == nil {
		return nil
	}
	if s.ids.Length == 0 {
		if !p.wantsIDs() {
			return nil
		}
		return &finding{message: fmt.Sprintf("container %s of pod %s was started with the host's "+
			"ids, but hostUsers is false", f.Container, p)}
	}
	if s.ids.First < hostIDs {
		return &finding{message: fmt.Sprintf("pod %s has been given ids of the host: %+v", p, s.ids)}
	}
	for _, other := range w.order {
		if other == p {
			continue
		}
		for _, c := range other.containers {
			if c.state == running && c.sandbox != nil && share(c.sandbox.ids, s.ids) {
				return &finding{message: fmt.Sprintf("container %s of pod %s was started with ids "+
					"%+v, but %s runs with %+v", f.Container, p, s.ids, c, c.sandbox.ids)}
			}
		}
	}
	return nil
}

// wantsIDs says whether every spec that a pod ever had wants it to have ids of its own.
func (p *pod) wantsIDs() bool {
	for _, spec := range p.specs {
		if users := spec.Spec.HostUsers; users == nil || *users {
			return false
		}
	}
	return len(p.specs) > 0
}

// share says whether two ranges have an id in common.
func share(a, b truth.IDs) bool {
	return uint64(a.First) < uint64(b.First)+uint64(b.Length) &&
		uint64(b.First) < uint64(a.First)+uint64(a.Length)
}
