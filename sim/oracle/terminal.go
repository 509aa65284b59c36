package oracle

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/truth"
)

// terminal fires when a pod that the API calls Succeeded or Failed runs, runs again, or is called
// something else later (upstream #58711, #105358, #104560, #106884, #37447). The phase Unknown
// says nothing. A pod whose manifest was back is another one; which of the two is shown cannot be
// told for a while.
type terminal struct{}

func (*terminal) entry() Entry {
	return Entry{"terminal", "A pod is called Succeeded or Failed only when nothing of it runs, " +
		"and from then on it stays so and starts nothing."}
}

// noticedAfter is how long the agent may take until it acts on a changed manifest: the period in
// which it looks, and the deadline of a reading.
const noticedAfter = 150 * time.Second

func (*terminal) fact(w *world, f *truth.Fact) *finding {
	p := w.pods[f.PodUID]
	if f.Kind != truth.ContainerStarted || p == nil || p.terminal == "" {
		return nil
	}
	return &finding{message: fmt.Sprintf("container %s (%.12s) of pod %s was started, but the "+
		"pod had been shown as %s", f.Container, f.ContainerID, p, p.terminal)}
}

func (*terminal) answer(w *world, now time.Time, pods []*v1.Pod) *finding {
	for _, shown := range pods {
		p := w.pods[string(shown.UID)]
		if p == nil || shown.Status.Phase == v1.PodUnknown || p.called != "" {
			continue // what somebody else has called it, it is called while it ends
		}
		phase := shown.Status.Phase
		if isTerminal(phase) && p.live > 0 {
			return &finding{message: fmt.Sprintf("pod %s is shown as %s, but %s runs", p, phase,
				p.anyLive())}
		}
		if p.terminal != "" && phase != p.terminal && shown.DeletionTimestamp == nil {
			return &finding{message: fmt.Sprintf("pod %s is shown as %s after it was shown as %s",
				p, phase, p.terminal)}
		}
	}
	return nil
}

// claim remembers a terminal phase that counts for ever.
func (p *pod) claim(now time.Time, shown *v1.Pod) {
	switch {
	case !isTerminal(shown.Status.Phase), shown.DeletionTimestamp != nil, p.spec == nil:
	case p.respecified: // what it was called may have been by the spec before
	case p.loose() && now.Sub(p.wishedAt) < noticedAfter:
	default:
		p.terminal = shown.Status.Phase
	}
}

func isTerminal(phase v1.PodPhase) bool {
	return phase == v1.PodSucceeded || phase == v1.PodFailed
}

func (p *pod) anyLive() *container {
	for _, c := range p.containers {
		if c.state == running {
			return c
		}
	}
	return nil
}
