package sim

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"seedlet.dev/sim/plan"
)

// progressOracle is the name under which a run fails whose pods do not settle.
const progressOracle = "progress"

// heal ends all faults and anomalies, and starts the agent if it is down.
func (r *run) heal() {
	r.healed = true
	r.disk.SetFull(false)
	r.disk.ResumeAll()
	r.runtime.SetNetworkReady(true)
	r.runtime.SetReady(true)
	r.drivers.Heal()
	r.initiator.Heal()
	r.healAnomalies()
	r.healClocks()
	r.manifests.fixPage()
	r.healAPIServer()
	r.offUntil = time.Time{}
	if r.current == nil {
		r.bootAgent()
	}
	r.oracles.Healed(r.agenda.Now())
	if i := r.current; r.isStalled() {
		i.stalledUntil = time.Time{}
		r.resumeAgent(i)
	}
}

// unsettledMax is how long pods may be unsettled at the bound if they were settled before: a
// container that keeps exiting changes its pod now and then, which takes a moment to be reported.
const unsettledMax = time.Minute

// removeForever has the pods go that can never be made. That has to leave no trace, and nothing has
// to be made for it. It reports whether there are any.
func (r *run) removeForever() bool {
	found := false
	for i := range r.plan.Pods {
		p := &r.plan.Pods[i]
		if !r.plan.IsForever(p.Name) {
			continue
		}
		found = true
		if p.API {
			r.performAct(&plan.Act{Verb: plan.VerbDelete, Pod: p.Name})
			continue
		}
		name := plan.ManifestName(p.Manifest)
		for _, src := range r.manifests.sources() {
			if withoutNodeSuffix(r.manifests.current[src].Name) == name {
				r.manifests.apply(&plan.ManifestChange{File: src.file, URL: src.url})
			}
		}
	}
	return found
}

// settle runs until all pods have been settled for the quiet period, after the last late effect of
// a call before the heal has landed. Later calls have none: nothing delays them. The run fails if
// they are not settled at the bound, nor were shortly before.
func (r *run) settle(bound time.Time) {
	quiet := cmp.Or(time.Duration(r.plan.Quiet), plan.QuietDefault)
	healedAt, landed := r.agenda.Now(), r.injector.LandsBy()
	var settledSince, lastSettled time.Time
	for !r.isDone() {
		now := r.agenda.Now()
		settled := true
		for range r.oracles.Unsettled(now) {
			settled = false
			break
		}
		if settled {
			lastSettled = now
		}
		switch {
		case !settled:
			settledSince = time.Time{}
		case settledSince.IsZero():
			settledSince = now
		case now.Sub(settledSince) >= quiet && now.Sub(landed) >= plan.QuietDefault:
			r.settledAfter = settledSince.Sub(healedAt)
			return
		}
		if now.After(bound) && (settled || now.Sub(lastSettled) > unsettledMax) {
			if !settled {
				all := slices.Compact(slices.Sorted(r.oracles.Unsettled(now)))
				r.fail(progressOracle,
					"not settled: "+strings.Join(firstLines(all, 4), "; "))
			} else {
				r.settledAfter = settledSince.Sub(healedAt)
			}
			return
		}
		r.agenda.At(now.Add(time.Second), func() {})
		r.runUntil(now.Add(time.Second))
	}
}

func firstLines(lines []string, n int) []string {
	if len(lines) <= n {
		return lines
	}
	return append(lines[:n:n], fmt.Sprintf("and %d more", len(lines)-n))
}

// checkExpectations checks the expectations of the scenario against the pods that the agent's HTTP
// API has served last.
func (r *run) checkExpectations() {
	for _, e := range r.plan.Expectations {
		if e.StartsWithin > 0 {
			problem := r.startTimes.lateStart(e.PodPrefix, time.Duration(e.StartsWithin))
			if problem != "" {
				r.fail("expect", problem)
			}
		}
		for _, pod := range r.servedPods {
			if !strings.HasPrefix(pod.Name, e.PodPrefix) || pod.DeletionTimestamp != nil {
				continue
			}
			if e.Phase != "" && string(pod.Status.Phase) != e.Phase {
				r.fail("expect", fmt.Sprintf("pod %s is %s, the scenario expects %s",
					pod.Name, pod.Status.Phase, e.Phase))
			}
			restarts := 0
			for _, c := range pod.Status.ContainerStatuses {
				restarts += int(c.RestartCount)
			}
			if restarts < e.RestartsAtLeast {
				r.fail("expect", fmt.Sprintf("pod %s was restarted %d times, the scenario "+
					"expects at least %d", pod.Name, restarts, e.RestartsAtLeast))
			}
		}
	}
}
