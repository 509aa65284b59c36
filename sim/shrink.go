package sim

import (
	"slices"
	"time"
)

// Shrink looks for a smaller plan that fails in the same way: by the same oracle. It takes
// entries out, then brings times forward, then takes what containers do out, and tries at most
// the given number of plans. Progress, if not nil, is told of every try.
func Shrink(plan *Plan, tries int, progress func(tried, entries int)) (*Plan, *Verdict, error) {
	verdict, err := Run(plan, Options{})
	if err != nil || verdict.Failure == nil {
		return plan, verdict, err
	}
	s := &shrinker{best: plan.Clone(), verdict: verdict, left: tries, progress: progress}
	for before := -1; before != s.best.Entries() && s.left > 0; {
		before = s.best.Entries()
		takeOut(s, func(p *PlanSpec) *[]AgentKill { return &p.AgentKills })
		takeOut(s, func(p *PlanSpec) *[]RuntimeEnd { return &p.RuntimeEnds })
		takeOut(s, func(p *PlanSpec) *[]Reboot { return &p.Reboots })
		takeOut(s, func(p *PlanSpec) *[]Kill { return &p.Kills })
		takeOut(s, func(p *PlanSpec) *[]SandboxKill { return &p.Sandboxes })
		takeOut(s, func(p *PlanSpec) *[]ClockStep { return &p.Clock })
		takeOut(s, func(p *PlanSpec) *[]Lost { return &p.Lost })
		takeOut(s, func(p *PlanSpec) *[]Removal { return &p.Removals })
		takeOut(s, func(p *PlanSpec) *[]Window { return &p.Faults })
		takeOut(s, func(p *PlanSpec) *[]PlanImage { return &p.Images })
		takeOut(s, func(p *PlanSpec) *[]Change { return &p.Manifests })
		takeOut(s, func(p *PlanSpec) *[]Act { return &p.Acts })
		takeOut(s, func(p *PlanSpec) *[]Request { return &p.Requests })
		takeOut(s, func(p *PlanSpec) *[]PlanObject { return &p.Objects })
		s.dropUnusedPods()
		s.takeOutDeeds()
	}
	s.shorten()
	return s.best, s.verdict, nil
}

type shrinker struct {
	best     *Plan
	verdict  *Verdict
	left     int
	progress func(tried, entries int)
	tried    int
}

// takeOut is delta debugging: it takes out chunks of entries, first large ones, then single ones
// (Zeller and Hildebrandt, "Simplifying and Isolating Failure-Inducing Input").
func takeOut[T any](s *shrinker, list func(*PlanSpec) *[]T) {
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

// takeOutDeeds takes out what containers answer to probes and hooks, and what they write.
func (s *shrinker) takeOutDeeds() {
	for i := range s.best.Spec.Pods {
		for k := range s.best.Spec.Pods[i].Behaviours {
			takeOut(s, func(p *PlanSpec) *[]Answer {
				p.Pods = slices.Clone(p.Pods) // the copy that is tried shares the rest
				pod := &p.Pods[i]
				pod.Behaviours = slices.Clone(pod.Behaviours)
				return &pod.Behaviours[k].Answers
			})
			takeOut(s, func(p *PlanSpec) *[]FileWrite {
				p.Pods = slices.Clone(p.Pods)
				pod := &p.Pods[i]
				pod.Behaviours = slices.Clone(pod.Behaviours)
				return &pod.Behaviours[k].Writes
			})
		}
	}
}

// dropUnusedPods takes out the pods that no manifest names any more.
func (s *shrinker) dropUnusedPods() {
	smaller := s.best.Clone()
	smaller.Spec.Pods = slices.DeleteFunc(slices.Clone(smaller.Spec.Pods), func(p PlanPod) bool {
		return !slices.ContainsFunc(smaller.Spec.Manifests, func(c Change) bool {
			return c.Pod == p.Name
		}) && !slices.ContainsFunc(smaller.Spec.Acts, func(a Act) bool { return a.Pod == p.Name }) &&
			!slices.ContainsFunc(smaller.Spec.Requests, func(q Request) bool { return q.Pod == p.Name })
	})
	if len(smaller.Spec.Pods) < len(s.best.Spec.Pods) {
		s.try(smaller)
	}
}

// shorten halves the windows of faults, and ends the plan soon after the last thing in it.
func (s *shrinker) shorten() {
	for i := range s.best.Spec.Faults {
		for {
			smaller := s.best.Clone()
			smaller.Spec.Faults = slices.Clone(smaller.Spec.Faults)
			half := time.Duration(smaller.Spec.Faults[i].For / 2).Round(time.Millisecond)
			smaller.Spec.Faults[i].For = Duration(half)
			if half < 100*time.Millisecond || !s.try(smaller) {
				break
			}
		}
	}
	last := time.Second
	for _, t := range s.best.times() {
		last = max(last, time.Duration(t))
	}
	if last = last.Round(time.Second) + time.Second; last < time.Duration(s.best.Spec.Duration) {
		smaller := s.best.Clone()
		smaller.Spec.Duration = Duration(last)
		s.try(smaller)
	}
}

// times are when things happen, and when windows end.
func (p *Plan) times() []Duration {
	var all []Duration
	for _, c := range p.Spec.Manifests {
		all = append(all, c.At+c.Torn)
	}
	for _, w := range p.Spec.Faults {
		all = append(all, w.At+w.For)
	}
	for _, k := range p.Spec.AgentKills {
		all = append(all, k.At)
		if k.AfterEffects > 0 {
			all = append(all, p.Spec.Duration) // it is not known when that is
		}
	}
	for _, e := range p.Spec.RuntimeEnds {
		all = append(all, e.At+e.Down)
	}
	for _, e := range p.Spec.Reboots {
		all = append(all, e.At+e.Down)
	}
	for _, k := range p.Spec.Kills {
		all = append(all, k.At)
	}
	for _, k := range p.Spec.Sandboxes {
		all = append(all, k.At)
	}
	for _, q := range p.Spec.Requests {
		all = append(all, q.At)
	}
	return append(append(all, p.Spec.oddTimes()...), p.Spec.actTimes()...)
}

// Clone copies a plan so that entries can be taken out of the copy.
func (p *Plan) Clone() *Plan {
	c := *p
	return &c
}

// Entries is how many things the plan has happen.
func (p *Plan) Entries() int {
	s := &p.Spec
	return len(s.Pods) + len(s.Manifests) + len(s.Images) + len(s.Faults) + len(s.AgentKills) +
		len(s.RuntimeEnds) + len(s.Reboots) + len(s.Kills) + len(s.Sandboxes) +
		len(s.Clock) + len(s.Lost) + len(s.Removals) + len(s.Objects) + len(s.Acts) +
		len(s.Requests)
}

// try runs a smaller plan, and keeps it if it fails in the same way.
func (s *shrinker) try(p *Plan) bool {
	if s.left == 0 || p.Validate() != nil {
		return false
	}
	s.left--
	s.tried++
	if s.progress != nil {
		s.progress(s.tried, s.best.Entries())
	}
	verdict, err := Run(p, Options{})
	if err != nil || verdict.Failure == nil ||
		verdict.Failure.Oracle != s.verdict.Failure.Oracle {
		return false
	}
	s.best, s.verdict = p, verdict
	return true
}
