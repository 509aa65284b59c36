// Package shrink reduces a failing plan to a small one that fails in the same way.
//
// Contract: the result fails with the violation of the same oracle, about the same pod if the
// message names one, as the given plan, which is not changed. Shrinking is a function of the plan
// and the number of tries. It can be stopped at any time, and returns the best plan so far. Start
// reading at Minimize.
package shrink

import (
	"context"
	"regexp"
	"slices"
	"time"

	"seedlet.dev/sim"
	"seedlet.dev/sim/plan"
)

// Minimize searches for a smaller plan that fails by the same oracle. It removes happenings, the
// entries of other lists, containers and fields of manifests, and fields of the node's
// configuration. It brings times forward, and makes what is left simpler. It runs at most the given
// number of plans, and none after the context has ended. Progress, if not nil, is called for every
// run. A plan that does not fail is returned as it is.
func Minimize(ctx context.Context, p *plan.Plan, tries int, progress func(tried, entries int)) (
	*plan.Plan, *sim.Verdict, error) {
	verdict, err := sim.Run(p, sim.Options{})
	if err != nil || verdict.Failure == nil {
		return p, verdict, err
	}
	s := &shrinker{ctx: ctx, best: p.Clone(), verdict: verdict, triesLeft: tries, progress: progress,
		pod: podOf(verdict.Failure.Message)}
	s.nameAnchors()
	for before := -1; before != s.best.EntryCount() && s.triesLeft > 0; {
		before = s.best.EntryCount()
		removeEntries(s, func(p *plan.Spec) *[]plan.Happening { return &p.Happenings })
		removeEntries(s, func(p *plan.Spec) *[]plan.Image { return &p.Images })
		removeEntries(s, func(p *plan.Spec) *[]plan.Object { return &p.Objects })
		s.removeUnusedPods()
		s.removeBehaviourEntries()
	}
	s.simplifyDocuments()
	s.simplify()
	s.bringForward()
	return s.best, s.verdict, nil
}

// shrinker holds the smallest failing plan found so far.
type shrinker struct {
	ctx       context.Context
	best      *plan.Plan
	verdict   *sim.Verdict
	pod       string // that the failure is about; empty for none
	triesLeft int
	progress  func(tried, entries int)
	tried     int
}

// podOf returns the pod that the message of a failure names first; empty if it names none.
func podOf(message string) string { return podName.FindString(message) }

var podName = regexp.MustCompile(`\bpods? [a-z0-9.-]+/[a-z0-9.-]+`)

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

// removeBehaviourEntries removes handler responses, file writes and later processes of containers.
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
			removeEntries(s, func(p *plan.Spec) *[]plan.ProcessRun { return &behaviour(p).Processes })
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

// try runs a smaller plan. If that fails in the same way it becomes the best one, and try returns
// true.
func (s *shrinker) try(p *plan.Plan) bool {
	if s.triesLeft == 0 || s.ctx.Err() != nil || p.Validate() != nil {
		return false
	}
	s.triesLeft--
	s.tried++
	if s.progress != nil {
		s.progress(s.tried, s.best.EntryCount())
	}
	verdict, err := sim.Run(p, sim.Options{})
	if err != nil || verdict.Failure == nil ||
		verdict.Failure.Oracle != s.verdict.Failure.Oracle ||
		podOf(verdict.Failure.Message) != s.pod {
		return false
	}
	s.best, s.verdict = p, verdict
	return true
}

// tryHappenings tries the best plan with a change of its happenings.
func (s *shrinker) tryHappenings(change func([]plan.Happening)) bool {
	smaller := s.best.Clone()
	smaller.Spec.Happenings = slices.Clone(smaller.Spec.Happenings)
	change(smaller.Spec.Happenings)
	return s.try(smaller)
}

// shortest is the length of time below which nothing is shortened.
const shortest = plan.Duration(100 * time.Millisecond)
