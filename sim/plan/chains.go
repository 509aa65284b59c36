package plan

import (
	"math/rand/v2"
	"time"
)

// addChains adds several deeds on one pod, one after the other. The next one may come while the
// agent is at the one before.
func (g *generator) addChains(a *ActorRange) {
	g.forEachPod("chains", a.Chains, func(p Pod, at Duration, r *rand.Rand) {
		kept := false
		for n := range 3 + r.IntN(5) {
			act := Act{Verb: VerbDelete, Pod: p.Name}
			switch r.IntN(9) {
			case 0:
			case 1:
				act.Grace = new(int64)
			case 2:
				act.Grace = new(int64(1 + r.IntN(5)))
			case 3, 4:
				act.Verb = VerbCreate // waits until no pod has the name
			case 5:
				act.Verb, act.Patch = VerbPatch, imagePatch(&p, n+2)
			case 6:
				act.Verb, act.Patch = VerbPatch, relabelPatch()
			case 7:
				act.Verb, act.Container = VerbDebug, "debug"
			case 8:
				kept = !kept
				act.Verb, act.Patch = VerbPatch, finalizerPatch(kept)
			}
			g.addAct(at, act)
			at += g.untilNextDeed(a, r)
		}
		if kept {
			g.addAct(at, Act{Verb: VerbPatch, Pod: p.Name, Patch: finalizerPatch(false)})
		}
	})
}

// untilNextDeed draws the time between two deeds of a chain: every other one follows within the
// time of a few requests.
func (g *generator) untilNextDeed(a *ActorRange, r *rand.Rand) Duration {
	if r.IntN(2) == 0 {
		return Duration(r.Int64N(int64(50 * time.Millisecond)))
	}
	return Duration(a.Interval.draw(r))
}

// relabelPatch changes labels and annotations of a pod.
func relabelPatch() map[string]any {
	return map[string]any{"metadata": map[string]any{"labels": map[string]any{"again": "yes"},
		"annotations": map[string]any{"a": "b"}}}
}
