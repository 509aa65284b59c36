package oracle

import (
	"fmt"

	"seedlet.dev/sim/truth"
)

// fullNames fires when two pods of one full name run at once (upstream #97722, #112814).
type fullNames struct{}

func (*fullNames) entry() Entry {
	return Entry{"full-name", "Of the pods of one namespace and name at most one runs at a time."}
}

func (*fullNames) fact(w *world, f *truth.Fact) *finding {
	if f.Kind != truth.ContainerStarted {
		return nil
	}
	p := w.pods[f.PodUID]
	if p == nil {
		return nil
	}
	for _, other := range w.order {
		if other == p || other.live == 0 {
			continue
		}
		for _, c := range other.containers {
			if c.state == running && c.full == f.PodNamespace+"/"+f.PodName {
				return &finding{message: fmt.Sprintf("container %s (%.12s) of pod %s was started "+
					"while %s still runs", f.Container, f.ContainerID, p, c)}
			}
		}
	}
	return nil
}
