package oracle

import (
	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/truth"
)

// ephemeralContainers fires when an ephemeral container runs more than once. The oracle one-run
// sees only runs that overlap.
type ephemeralContainers struct{}

func (*ephemeralContainers) describe() Entry {
	return Entry{"ephemeral", "An ephemeral container runs once, whatever its exit code, also " +
		"across restarts of the agent."}
}

func (*ephemeralContainers) checkFact(m *model, f *truth.Fact) *finding {
	c := m.containers[f.ContainerID]
	if f.Kind != truth.ContainerStarted || c == nil || !c.pod.isEphemeral(c.name) {
		return nil
	}
	if last := c.pod.historyOf(c.name).last; last != nil && last != c && last.hasRun() {
		return findingf("%s is started, but has run as #%d", c, last.attempt)
	}
	return nil
}

// isEphemeral reports whether a container is an ephemeral container of the pod.
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

// ephemeralProblem returns an ephemeral container that has never run in a running pod.
func (p *pod) ephemeralProblem() string {
	for i := range p.spec.Spec.EphemeralContainers {
		name := p.spec.Spec.EphemeralContainers[i].Name
		if h := p.histories[name]; h == nil || h.maxAttempt < 0 {
			return "ephemeral container " + name + " has never run"
		}
	}
	return ""
}

// ephemeralStatusProblem returns what is wrong with the served statuses of ephemeral containers.
func (m *model) ephemeralStatusProblem(p *pod, served *v1.Pod) string {
	for i := range p.spec.Spec.EphemeralContainers {
		name := p.spec.Spec.EphemeralContainers[i].Name
		c := p.newestRun(name)
		if problem := m.containerStatusProblem(name, c, false, served,
			served.Status.EphemeralContainerStatuses); problem != "" {
			return problem
		}
	}
	return ""
}
