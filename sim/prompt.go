package sim

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"seedlet.dev/sim/truth"
)

// prompt is when each pod came and when its first container ran, by its name in the manifest.
type prompt struct {
	wanted, started map[string]time.Time
}

func newPrompt() prompt {
	return prompt{map[string]time.Time{}, map[string]time.Time{}}
}

func (p *prompt) want(pod string, now time.Time) { note(p.wanted, pod, now) }

// unwant takes that a pod's manifest went: one that has not started by then need not any more.
func (p *prompt) unwant(pod string) {
	if _, ran := p.started[pod]; !ran {
		delete(p.wanted, pod)
	}
}

// fact implements a subscriber of the truth.
func (p *prompt) fact(f truth.Fact) {
	if f.Kind == truth.ContainerStarted {
		note(p.started, manifestName(f.PodName), f.Time)
	}
}

func note(times map[string]time.Time, pod string, now time.Time) {
	if _, known := times[pod]; !known {
		times[pod] = now
	}
}

// late is what is wrong with the pods whose names begin so, if one was not prompt.
func (p *prompt) late(prefix string, within time.Duration) string {
	for _, pod := range slices.Sorted(maps.Keys(p.wanted)) {
		came := p.wanted[pod]
		began, ran := p.started[pod]
		if strings.HasPrefix(pod, prefix) && (!ran || began.Sub(came) > within) {
			return fmt.Sprintf("pod %s did not start within %v of its manifest, although nothing "+
				"that it needs went wrong", pod, within)
		}
	}
	return ""
}
