package oracle

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/truth"
)

// deadline fires when a pod is called past its active deadline before it is, or goes on after it.
// The time begins when the API says that the pod has.
type deadline struct{}

func (*deadline) entry() Entry {
	return Entry{"active-deadline", "A pod is ended for its active deadline neither before it " +
		"has passed since the start that is shown, nor does anything start long after it."}
}

const reasonDeadline = "DeadlineExceeded"

// deadlineSlack is how long after its deadline a pod may take to notice, but for its containers'
// grace periods.
const deadlineSlack = 30 * time.Second

func (*deadline) fact(w *world, f *truth.Fact) *finding {
	p := w.pods[f.PodUID]
	if f.Kind != truth.ContainerStarted || p == nil || !p.surelyLate(f.Time) {
		return nil
	}
	if w.dead || f.Time.Sub(w.started) < deadlineSlack ||
		w.struck("StartContainer", f.Time.Add(-deadlineSlack), f.Time) {
		return nil
	}
	return &finding{message: fmt.Sprintf("container %s of pod %s was started %v after the pod's "+
		"active deadline", f.Container, p, f.Time.Sub(p.began.last.Add(p.deadline())))}
}

func (*deadline) answer(w *world, now time.Time, pods []*v1.Pod) *finding {
	for _, shown := range pods {
		p := w.pods[string(shown.UID)]
		if shown.Status.Reason != reasonDeadline || p == nil || p.spec == nil || p.respecified ||
			p.loose() {
			continue
		}
		if p.deadline() == 0 {
			return &finding{message: fmt.Sprintf("pod %s is shown as past its active deadline, "+
				"but has none", p)}
		}
		if at := shown.Status.StartTime; at != nil && now.Before(at.Add(p.deadline())) {
			return &finding{message: fmt.Sprintf("pod %s is shown as past its active deadline "+
				"of %v, but is shown to have begun only %v ago", p, p.deadline(), now.Sub(at.Time))}
		}
	}
	return nil
}

// span is the earliest and the latest time at which something was shown to have happened.
type span struct{ first, last time.Time }

// begin remembers when a pod is shown to have begun. A pod that only a file knows may be said to
// have begun anew by an agent that has.
func (p *pod) begin(shown *v1.Pod) {
	at := shown.Status.StartTime
	if at == nil || p.spec == nil {
		return
	}
	if p.began.first.IsZero() || at.Time.Before(p.began.first) {
		p.began.first = at.Time
	}
	p.began.last = later(p.began.last, at.Time)
}

// deadline is the active deadline of the newest spec; zero if it has none.
func (p *pod) deadline() time.Duration {
	if p.spec == nil || p.spec.Spec.ActiveDeadlineSeconds == nil {
		return 0
	}
	return time.Duration(*p.spec.Spec.ActiveDeadlineSeconds) * time.Second
}

// maybeLate says whether a pod may be past its active deadline.
func (p *pod) maybeLate(now time.Time) bool {
	began := p.wishedFirst
	if !p.began.first.IsZero() {
		began = p.began.first
	}
	return p.deadline() > 0 && !now.Before(began.Add(p.deadline()-time.Second))
}

// surelyLate says whether a pod is so long past it that nothing of it may run any more.
func (p *pod) surelyLate(now time.Time) bool {
	if p.deadline() == 0 || p.began.last.IsZero() {
		return false
	}
	last := later(p.began.last, p.wishedAt)
	return now.Sub(last) > p.deadline()+p.graceMost+deadlineSlack
}
