// Package shrink reduces a failing plan to a small one that fails in the same way.
//
// Contract: the result fails with the violation of the same oracle as the given plan, which is not
// changed. Shrinking is a function of the plan and the number of tries. Start reading at Minimize.
package shrink

import (
	"slices"
	"time"

	"seedlet.dev/sim"
	"seedlet.dev/sim/plan"
)

// Minimize searches for a smaller plan that fails by the same oracle. It removes entries of the
// plan's lists and of the behaviour of containers, then shortens times, and runs at most the given
// number of plans. Progress, if not nil, is called for every run. A plan that does not fail is
// returned as it is.
func Minimize(p *plan.Plan, tries int, progress func(tried, entries int)) (
	*plan.Plan, *sim.Verdict, error) {
	verdict, err := sim.Run(p, sim.Options{})
	if err != nil || verdict.Failure == nil {
		return p, verdict, err
	}
	s := &shrinker{best: p.Clone(), verdict: verdict, triesLeft: tries, progress: progress}
	for before := -1; before != s.best.EntryCount() && s.triesLeft > 0; {
		before = s.best.EntryCount()
		removeEntries(s, func(p *plan.Spec) *[]plan.Happening { return &p.Happenings })
		removeEntries(s, func(p *plan.Spec) *[]plan.Image { return &p.Images })
		removeEntries(s, func(p *plan.Spec) *[]plan.Object { return &p.Objects })
		s.removeUnusedPods()
		s.removeBehaviourEntries()
	}
	s.shortenTimes()
	return s.best, s.verdict, nil
}

// shrinker holds the smallest failing plan found so far.
type shrinker struct {
	best      *plan.Plan
	verdict   *sim.Verdict
	triesLeft int
	progress  func(tried, entries int)
	tried     int
}

// removeEntries is delta debugging on one list: it removes chunks of entries, first large ones,
// then single ones (Zeller and Hildebrandt, "Simplifying and Isolating Failure-Inducing Input").
func removeEntries[T any](s *shrinker, list func(*plan.Spec) *[]T) {
	for n := len(*list(&s.best.Spec)); n >= 1; n /= 2 {
		for i := 0; i+n <= len(*list(&s.best.Spec)); {
			smaller := s.best.Clone()
			entries := list(&smaller.Spec)
			*entries = slices.Delete(slices.Clone(*entries), i, i+n)
			if !s.try(smaller) {
				i += n
			}
		}
	}
}

// removeBehaviourEntries removes handler responses and file writes of containers.
func (s *shrinker) removeBehaviourEntries() {
	for i := range s.best.Spec.Pods {
		for k := range s.best.Spec.Pods[i].Behaviours {
			behaviour := func(p *plan.Spec) *plan.Behaviour {
				p.Pods = slices.Clone(p.Pods) // a clone of a plan shares the entries of its lists
				pod := &p.Pods[i]
				pod.Behaviours = slices.Clone(pod.Behaviours)
				return &pod.Behaviours[k]
			}
			removeEntries(s, func(p *plan.Spec) *[]plan.HandlerResponse {
				return &behaviour(p).Responses
			})
			removeEntries(s, func(p *plan.Spec) *[]plan.FileWrite { return &behaviour(p).Writes })
		}
	}
}

// removeUnusedPods removes the pods that no happening refers to.
func (s *shrinker) removeUnusedPods() {
	smaller := s.best.Clone()
	used := map[string]bool{}
	for i := range smaller.Spec.Happenings {
		h := &smaller.Spec.Happenings[i]
		deed, _ := h.Deed()
		used[deed.PodEntry()] = true
		if h.When != nil {
			used[h.When.Pod] = true
		}
	}
	smaller.Spec.Pods = slices.DeleteFunc(slices.Clone(smaller.Spec.Pods), func(p plan.Pod) bool {
		return !used[p.Name]
	})
	if len(smaller.Spec.Pods) < len(s.best.Spec.Pods) {
		s.try(smaller)
	}
}

// shortenTimes halves the fault windows, and ends the plan soon after its last entry.
func (s *shrinker) shortenTimes() {
	for i := range s.best.Spec.Happenings {
		for s.best.Spec.Happenings[i].Fault != nil {
			smaller := s.best.Clone()
			smaller.Spec.Happenings = slices.Clone(smaller.Spec.Happenings)
			w := *smaller.Spec.Happenings[i].Fault
			w.For = plan.Duration(time.Duration(w.For / 2).Round(time.Millisecond))
			smaller.Spec.Happenings[i].Fault = &w
			if time.Duration(w.For) < 100*time.Millisecond || !s.try(smaller) {
				break
			}
		}
	}
	last := time.Second
	for _, t := range s.best.Times() {
		last = max(last, time.Duration(t))
	}
	if last = last.Round(time.Second) + time.Second; last < time.Duration(s.best.Spec.Duration) {
		smaller := s.best.Clone()
		smaller.Spec.Duration = plan.Duration(last)
		s.try(smaller)
	}
}

// try runs a smaller plan. If that fails by the same oracle it becomes the best one, and try
// returns true.
func (s *shrinker) try(p *plan.Plan) bool {
	if s.triesLeft == 0 || p.Validate() != nil {
		return false
	}
	s.triesLeft--
	s.tried++
	if s.progress != nil {
		s.progress(s.tried, s.best.EntryCount())
	}
	verdict, err := sim.Run(p, sim.Options{})
	if err != nil || verdict.Failure == nil ||
		verdict.Failure.Oracle != s.verdict.Failure.Oracle {
		return false
	}
	s.best, s.verdict = p, verdict
	return true
}
