package sim

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/sim/truth"
)

// ClockStep sets the runtime's clock forward or back, against the agent's. The clock is right
// again when the world heals; what has been dated stays as it is.
type ClockStep struct {
	At Duration `json:"at"`
	By Shift    `json:"by"`
}

// Lost has the runtime lose track of a container for a while, if it runs then: it is of an
// unknown state. Without an end it is lost until somebody stops it.
type Lost struct {
	At        Duration `json:"at"`
	For       Duration `json:"for,omitempty"`
	Pod       string   `json:"pod"` // the name of an entry of pods
	Container string   `json:"container"`
}

// Removal is that somebody removes a sandbox of a pod by hand, with all that is in it.
type Removal struct {
	At  Duration `json:"at"`
	Pod string   `json:"pod"`
	// Making waits for the next sandbox of the pod, and removes it before the agent has heard of
	// it. Else it is the newest one that there is then, if any.
	Making bool `json:"making,omitempty"`
}

// OddRange is how often something happens that is odd.
type OddRange struct {
	Clock    Count   `json:"clock,omitempty"`    // steps of the runtime's clock
	ClockBy  []Shift `json:"clockBy,omitempty"`  // drawn from
	Lost     Count   `json:"lost,omitempty"`     // containers of unknown state
	LostFor  Span    `json:"lostFor,omitempty"`  // of half of them, the others until they are stopped
	Removals Count   `json:"removals,omitempty"` // of sandboxes by hand
	Always   bool    `json:"always,omitempty"`
}

// Shift is a length of time with a sign, written as in "-1h" or "+5m".
type Shift time.Duration

// MarshalJSON writes the text form.
func (s Shift) MarshalJSON() ([]byte, error) {
	sign := "+"
	if s < 0 {
		sign = ""
	}
	return json.Marshal(sign + time.Duration(s).String())
}

// UnmarshalJSON reads the text form.
func (s *Shift) UnmarshalJSON(data []byte) error {
	d, err := time.ParseDuration(text(data))
	if err != nil || d.Abs() > durationMax {
		return fmt.Errorf("want a duration with a sign as +5m or -1h, of at most %s, have %s",
			durationMax, data)
	}
	*s = Shift(d)
	return nil
}

// odd draws what is odd.
func (d *drawing) odd() {
	s, spec := &d.scenario.Spec.Odd, &d.plan.Spec
	r := d.stream("clock")
	for range d.times("clock", s.Clock, s.Always) {
		if len(s.ClockBy) > 0 {
			spec.Clock = append(spec.Clock,
				ClockStep{At: d.moment(r), By: s.ClockBy[r.IntN(len(s.ClockBy))]})
		}
	}
	r = d.stream("lost")
	for range d.times("lost", s.Lost, s.Always) {
		pod := spec.Pods[r.IntN(len(spec.Pods))]
		names := containersOf(pod.Manifest)
		lost := Lost{At: d.moment(r), For: Duration(s.LostFor.draw(r)), Pod: pod.Name,
			Container: names[r.IntN(len(names))]}
		if r.IntN(2) == 0 {
			lost.For = 0
		}
		spec.Lost = append(spec.Lost, lost)
	}
	r = d.stream("removals")
	for range d.times("removals by hand", s.Removals, s.Always) {
		spec.Removals = append(spec.Removals, Removal{At: d.moment(r),
			Pod: spec.Pods[r.IntN(len(spec.Pods))].Name, Making: r.IntN(2) == 0})
	}
}

// validateOdd checks what is odd.
func (s *PlanSpec) validateOdd() error {
	for i, l := range s.Lost {
		victim := s.pod(l.Pod)
		if victim == nil || !slices.Contains(containersOf(victim.Manifest), l.Container) {
			return fmt.Errorf("spec.lost[%d]: no pod %q has a container %q", i, l.Pod, l.Container)
		}
	}
	for i, r := range s.Removals {
		if s.pod(r.Pod) == nil {
			return fmt.Errorf("spec.sandboxRemovals[%d].pod: no pod is called %q", i, r.Pod)
		}
	}
	return nil
}

// oddTimes are when something odd happens or ends.
func (s *PlanSpec) oddTimes() []Duration {
	var all []Duration
	for _, c := range s.Clock {
		all = append(all, c.At)
	}
	for _, l := range s.Lost {
		all = append(all, l.At+l.For)
	}
	for _, r := range s.Removals {
		all = append(all, r.At)
	}
	return all
}

// skew is how wrong the runtime's clock is at a time.
func (s *PlanSpec) skew(at time.Time) time.Duration {
	var skew time.Duration
	for _, c := range s.Clock {
		if d := at.Sub(Start); d >= time.Duration(c.At) && d < time.Duration(s.Duration) {
			skew += time.Duration(c.By)
		}
	}
	return skew
}

// odd is what is odd in a run now.
type odd struct {
	finds   []func()
	removes []*Removal // that wait for a sandbox
}

// scheduleOdd puts what is odd on the agenda.
func (r *run) scheduleOdd() {
	for _, c := range r.plan.Clock {
		r.at(c.At, func() { r.runtime.SetClock(r.plan.skew(r.agenda.Now())) })
	}
	for _, l := range r.plan.Lost {
		r.at(l.At, func() { r.lose(l) })
	}
	for i := range r.plan.Removals {
		removal := &r.plan.Removals[i]
		r.at(removal.At, func() { r.removeByHand(removal) })
	}
}

// lose has the container of a pod lost that runs.
func (r *run) lose(l Lost) {
	for _, c := range r.runtime.Containers() {
		if c.State != runtimeapi.ContainerState_CONTAINER_RUNNING || c.Name != l.Container ||
			manifestName(c.PodName) != l.Pod {
			continue
		}
		if find, lost := r.runtime.Lose(c.PodUID, c.Name); lost && l.For > 0 {
			r.odd.finds = append(r.odd.finds, find)
			r.at(l.At+l.For, find)
		}
		return
	}
}

// removeByHand removes the newest sandbox of a pod, or waits for the next one.
func (r *run) removeByHand(removal *Removal) {
	if removal.Making {
		r.odd.removes = append(r.odd.removes, removal)
		return
	}
	newest, at := "", time.Time{}
	for _, s := range r.runtime.Sandboxes() {
		if manifestName(s.PodName) == removal.Pod && s.CreatedAt.After(at) {
			newest, at = s.ID, s.CreatedAt
		}
	}
	r.runtime.RemoveByHand(newest)
}

// noteSandbox has a sandbox removed that somebody has waited for.
func (r *run) noteSandbox(f truth.Fact) {
	if f.Kind != truth.SandboxReady {
		return
	}
	for i, removal := range r.odd.removes {
		if removal.Pod == manifestName(f.PodName) {
			r.odd.removes = slices.Delete(r.odd.removes, i, i+1)
			sandbox := f.SandboxID
			r.agenda.After(0, func() { r.runtime.RemoveByHand(sandbox) })
			return
		}
	}
}

// healOdd ends what is odd.
func (r *run) healOdd() {
	r.runtime.SetClock(0)
	for _, find := range r.odd.finds {
		find()
	}
	r.odd = odd{}
}
