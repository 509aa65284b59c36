package oracle

import (
	"fmt"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/truth"
)

// sidecars fires when a sidecar is asked to end while others need it (KEP-753). Of a pod whose
// manifest has changed or was gone, an old request to end may take effect late, when the pod is
// there again: nothing is said of those.
type sidecars struct{}

func (*sidecars) entry() Entry {
	return Entry{"sidecar-order", "A sidecar is asked to end only when no app container of its " +
		"sandbox runs, and no sidecar that was started after it, unless all are restarted."}
}

func (*sidecars) fact(w *world, f *truth.Fact) *finding {
	c := w.containers[f.ContainerID]
	if f.Kind != truth.StopRequested || c == nil || c.state != running {
		return nil
	}
	p := c.pod
	place := p.sidecar(c.name)
	// That the manifest has gone may not have been noticed when a probe fails.
	probed := p.spec != nil || f.Time.Sub(p.removedAt) < noticedAfter
	if place == 0 || c.lost || c.restarted() || p.respecified ||
		p.removals > 1 || p.removals > 0 && p.spec != nil ||
		probed && w.failed(c, f.Time) {
		return nil
	}
	for _, o := range p.containers {
		if o.state != running || o == c || o.sandbox != c.sandbox {
			continue
		}
		if other := p.sidecar(o.name); other == 0 || other > place {
			return &finding{message: fmt.Sprintf("sidecar %s was asked to end while %s ran",
				c, o.name)}
		}
	}
	return nil
}

// sidecar is the place of a sidecar among the init containers, from one; zero if it is none.
func (p *pod) sidecar(name string) int { return p.sidecars[name] }

// sidecarsOf are the places of a spec's sidecars by name.
func sidecarsOf(spec *v1.Pod) map[string]int {
	places := map[string]int{}
	for i := range spec.Spec.InitContainers {
		c := &spec.Spec.InitContainers[i]
		if c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways {
			places[c.Name] = i + 1
		}
	}
	return places
}
