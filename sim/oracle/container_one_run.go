package oracle

import (
	"seedlet.dev/sim/truth"
)

// oneRun fires when two runs of one container overlap (upstream #120941, #121349, #123087).
type oneRun struct{}

func (*oneRun) describe() Entry {
	return Entry{"one-run", "Of each container of a pod at most one process runs at a time."}
}

func (*oneRun) checkFact(m *model, f *truth.Fact) *finding {
	if f.Kind != truth.ContainerStarted {
		return nil
	}
	p := m.pods[f.PodUID]
	if p == nil {
		return nil
	}
	other := p.liveRun(f.Container)
	if other == nil || other.id == f.ContainerID {
		return nil
	}
	return findingf("%s was started (%.12s, #%d) while %s still runs",
		f.Container, f.ContainerID, f.Attempt, other)
}
