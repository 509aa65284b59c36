package oracle

import (
	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/truth"
)

// ephemeral fires when an ephemeral container runs more than once, which oneRun does not see if the
// runs do not overlap.
type ephemeral struct{}

func (*ephemeral) entry() Entry {
	return Entry{"ephemeral", "An ephemeral container runs once, whatever becomes of it, and " +
		"whoever restarts."}
}

func (*ephemeral) fact(w *world, f *truth.Fact) *finding {
	c := w.containers[f.ContainerID]
	if f.Kind != truth.ContainerStarted || c == nil || !c.pod.isEphemeral(c.name) {
		return nil
	}
	if last := c.pod.runsOf(c.name).last; last != nil && last != c && last.ran() {
		return says("%s is started, but ran already as #%d", c, last.attempt)
	}
	return nil
}

// isEphemeral says whether a container is an ephemeral one of the pod.
func (p *pod) isEphemeral(name string) bool {
	if len(p.specs) == 0 {
		return false
	}
	newest := p.specs[len(p.specs)-1]
	for i := range newest.Spec.EphemeralContainers {
		if newest.Spec.EphemeralContainers[i].Name == name {
			return true
		}
	}
	return false
}

// lacksEphemeral is an ephemeral container that has never run in a pod that runs.
func (p *pod) lacksEphemeral() string {
	for i := range p.spec.Spec.EphemeralContainers {
		name := p.spec.Spec.EphemeralContainers[i].Name
		if h := p.history[name]; h == nil || h.attempts < 0 {
			return "ephemeral container " + name + " has never run"
		}
	}
	return ""
}

// misshownEphemeral is what is wrong with what is shown of the ephemeral containers of a pod.
func (w *world) misshownEphemeral(p *pod, shown *v1.Pod) string {
	for i := range p.spec.Spec.EphemeralContainers {
		name := p.spec.Spec.EphemeralContainers[i].Name
		c := p.newest(name)
		if what := w.misshownRun(name, c, false, shown,
			shown.Status.EphemeralContainerStatuses); what != "" {
			return what
		}
	}
	return ""
}
