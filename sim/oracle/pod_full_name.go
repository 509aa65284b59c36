package oracle

import (
	"seedlet.dev/sim/truth"
)

// onePerFullName fires when two pods of one full name run at once (upstream #97722, #112814).
type onePerFullName struct{}

func (*onePerFullName) describe() Entry {
	return Entry{"full-name", "Of the pods of one namespace and name at most one runs at a " +
		"time."}
}

func (*onePerFullName) checkFact(m *model, f *truth.Fact) *finding {
	if f.Kind != truth.ContainerStarted {
		return nil
	}
	p := m.pods[f.PodUID]
	if p == nil {
		return nil
	}
	for _, other := range m.podsInOrder {
		if other == p || other.liveContainers == 0 {
			continue
		}
		for _, c := range other.containers {
			if c.state == running && c.podFullName == f.PodNamespace+"/"+f.PodName {
				return findingf("container %s (%.12s) of pod %s was started "+
					"while %s still runs", f.Container, f.ContainerID, p, c)
			}
		}
	}
	return nil
}
