package sim

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// heal ends everything that goes wrong.
func (r *run) heal() {
	r.healed = true
	r.disk.SetFull(false)
	r.disk.GoOnAll()
	r.runtime.SetNetworkReady(true)
	r.runtime.SetReady(true)
	r.healOdd()
	r.healServer()
	if r.life == nil {
		r.boot()
	}
	r.panel.Healed(r.agenda.Now())
}

// settle waits until everything is as it should be, and stays so for a while.
func (r *run) settle(bound time.Time) {
	var good time.Time // since when nothing is wrong
	for !r.over() {
		now := r.agenda.Now()
		wrong := false
		for range r.panel.Unsettled(now) {
			wrong = true
			break
		}
		switch {
		case wrong:
			good = time.Time{}
		case good.IsZero():
			good = now
		case now.Sub(good) >= quietFor:
			return
		}
		if now.After(bound) {
			if wrong {
				all := slices.Compact(slices.Sorted(r.panel.Unsettled(now)))
				r.fail(progress, "not as it should be: "+strings.Join(first(all, 4), "; "))
			}
			return
		}
		r.agenda.At(now.Add(time.Second), func() {})
		r.runUntil(now.Add(time.Second))
	}
}

func first(lines []string, n int) []string {
	if len(lines) <= n {
		return lines
	}
	return append(lines[:n:n], fmt.Sprintf("and %d more", len(lines)-n))
}

// expect checks what the scenario demands besides, by what the API has shown last.
func (r *run) expect() {
	for _, e := range r.plan.Expect {
		if e.StartsWithin > 0 {
			if late := r.prompt.late(e.Pods, time.Duration(e.StartsWithin)); late != "" {
				r.fail("expect", late)
			}
		}
		for _, pod := range r.shown {
			if !strings.HasPrefix(pod.Name, e.Pods) || pod.DeletionTimestamp != nil {
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
