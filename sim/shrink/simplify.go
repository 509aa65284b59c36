package shrink

import (
	"slices"
	"strings"
	"time"

	"seedlet.dev/sim"
	"seedlet.dev/sim/plan"
	"seedlet.dev/sim/truth"
	"seedlet.dev/world"
)

// nameAnchors replaces anchors that count all effects by the same ones of one call and pod. The
// count of all effects changes with every entry that is removed, so that such a plan would hardly
// shrink.
func (s *shrinker) nameAnchors() {
	for i := range s.best.Spec.Happenings {
		h := &s.best.Spec.Happenings[i]
		if h.When == nil || h.When.Effect != plan.AnyEffect && h.When.Effect != plan.AnyChange {
			continue
		}
		for _, anchor := range effectOf(s.best, h) {
			anchor.After = h.When.After
			if s.tryHappenings(func(all []plan.Happening) { all[i].When = &anchor }) {
				break
			}
		}
	}
}

// effectOf runs a plan, and returns the effect after which a happening has happened, as an anchor:
// first of its pod, then of any; none if it has not happened.
func effectOf(p *plan.Plan, sought *plan.Happening) []plan.Anchor {
	type counted struct{ call, pod string }
	counts, names := map[counted]int{}, map[string]string{}
	var anchor plan.Anchor
	uid, nthOfPod, found := "", 0, false
	_, err := sim.Run(p, sim.Options{
		WatchEffect: func(eff world.Effect) {
			call := world.CallName(eff.Body)
			counts[counted{call, ""}]++
			if eff.Pod != "" {
				counts[counted{call, eff.Pod}]++
			}
			if !found {
				anchor, uid = plan.Anchor{Effect: call, Nth: counts[counted{call, ""}]}, eff.Pod
			}
		},
		WatchFact: func(f truth.Fact) {
			if f.PodUID != "" && f.PodName != "" {
				names[f.PodUID] = strings.TrimSuffix(f.PodName, "-"+plan.NodeName)
			}
		},
		WatchHappening: func(_ time.Time, h *plan.Happening) {
			if h == sought && !found {
				found, nthOfPod = true, counts[counted{anchor.Effect, uid}]
			}
		},
	})
	if err != nil || !found {
		return nil
	}
	entry := slices.IndexFunc(p.Spec.Pods, func(pod plan.Pod) bool {
		return uid != "" && plan.ManifestName(pod.Manifest) == names[uid]
	})
	if entry < 0 {
		return []plan.Anchor{anchor}
	}
	ofPod := plan.Anchor{Effect: anchor.Effect, Pod: p.Spec.Pods[entry].Name,
		Nth: nthOfPod}
	return []plan.Anchor{ofPod, anchor}
}

// simplify makes happenings and the order of calls simpler: shorter windows and outages, faults
// that are certain and of fewer calls, whole writes.
func (s *shrinker) simplify() {
	if s.best.Spec.Order != plan.OrderUniform {
		smaller := s.best.Clone()
		smaller.Spec.Order = plan.OrderUniform
		s.try(smaller)
	}
	for i := range s.best.Spec.Happenings {
		h := &s.best.Spec.Happenings[i]
		switch {
		case h.Fault != nil:
			s.simplifyFault(i)
		case h.Manifest != nil && h.Manifest.Torn > 0:
			whole := *h.Manifest
			whole.Torn = 0
			s.tryHappenings(func(all []plan.Happening) { all[i].Manifest = &whole })
		case h.KillAgent != nil:
			s.halve(h.KillAgent.Down, func(h *plan.Happening, d plan.Duration) {
				h.KillAgent = &plan.AgentKill{Down: d}
			}, i)
		case h.RestartRuntime != nil:
			s.halve(h.RestartRuntime.Down, func(h *plan.Happening, d plan.Duration) {
				h.RestartRuntime = &plan.RuntimeRestart{Down: d}
			}, i)
		case h.Reboot != nil:
			s.halve(h.Reboot.Down, func(h *plan.Happening, d plan.Duration) {
				h.Reboot = &plan.Reboot{Down: d}
			}, i)
		}
	}
}

// simplifyFault makes a fault window simpler.
func (s *shrinker) simplifyFault(i int) {
	with := func(change func(*plan.FaultWindow)) bool {
		w := *s.best.Spec.Happenings[i].Fault
		change(&w)
		return s.tryHappenings(func(all []plan.Happening) { all[i].Fault = &w })
	}
	with(func(w *plan.FaultWindow) { w.Probability = 1 })
	for n := 0; n < len(s.best.Spec.Happenings[i].Fault.Calls) && len(
		s.best.Spec.Happenings[i].Fault.Calls) > 1; {
		if !with(func(w *plan.FaultWindow) {
			w.Calls = slices.Delete(slices.Clone(w.Calls), n, n+1)
		}) {
			n++
		}
	}
	s.halve(s.best.Spec.Happenings[i].Fault.For, func(h *plan.Happening, d plan.Duration) {
		w := *h.Fault
		w.For = d
		h.Fault = &w
	}, i)
}

// halve halves a length of time of a happening as often as the plan still fails.
func (s *shrinker) halve(length plan.Duration, set func(*plan.Happening, plan.Duration), i int) {
	for {
		length = plan.Duration(time.Duration(length / 2).Round(time.Millisecond))
		if length < shortest || !s.tryHappenings(func(all []plan.Happening) { set(&all[i], length) }) {
			return
		}
	}
}

// bringForward halves the time between a happening and the one before it, for it and all later
// ones, as often as the plan still fails. Then it ends the plan soon after its last happening.
func (s *shrinker) bringForward() {
	for i := range s.best.Spec.Happenings {
		for {
			at := s.best.Spec.Happenings[i].At
			var before plan.Duration
			for k := range s.best.Spec.Happenings {
				if other := s.best.Spec.Happenings[k].At; other < at {
					before = max(before, other)
				}
			}
			by := plan.Duration(time.Duration((at - before) / 2).Round(time.Millisecond))
			if by < shortest || !s.tryHappenings(func(all []plan.Happening) {
				for k := range all {
					if all[k].At >= at {
						all[k].At -= by
					}
				}
			}) {
				break
			}
		}
	}
	last := time.Second
	for _, t := range s.best.Times() {
		last = max(last, time.Duration(t))
	}
	last = min(last, s.verdict.Failure.Virtual) // what has an anchor may come at any time
	if last = last.Round(time.Second) + time.Second; last < time.Duration(s.best.Spec.Duration) {
		smaller := s.best.Clone()
		smaller.Spec.Duration = plan.Duration(last)
		s.try(smaller)
	}
}
