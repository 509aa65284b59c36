package plan

import (
	"fmt"
	"time"
)

// TakeOver is the time before the agent's first life, in which a kubelet has run the node: its
// leftovers are what that life begins with. Pods and objects that are created at 0 exist from its
// beginning. The kubelet ends at Start.
type TakeOver struct {
	Ran  Duration `json:"ran"`            // how long the kubelet has run
	Down Duration `json:"down,omitempty"` // from its end until the agent starts
	// Reboot has the machine lose its power when the kubelet ends: the agent is the first to run on it
	// again, after Down.
	Reboot bool `json:"reboot,omitempty"`
	// Deletions are deletions of pods that the kubelet has started to carry out.
	Deletions []EarlyDeletion `json:"deletions,omitempty"`
}

// EarlyDeletion deletes a pod of the API server before the kubelet ends.
type EarlyDeletion struct {
	Pod    string   `json:"pod"`
	Before Duration `json:"before"` // the end of the kubelet
}

// TakeOverRange is how a kubelet may have run the node.
type TakeOverRange struct {
	Ran       Span  `json:"ran"`
	Down      Span  `json:"down,omitempty"`
	Deletions Count `json:"deletions,omitempty"`
	Before    Span  `json:"before,omitempty"`  // as in EarlyDeletion
	Reboots   Share `json:"reboots,omitempty"` // of the machine, between kubelet and agent
	Systemd   Share `json:"systemd,omitempty"` // as the cgroup driver of kubelet and agent
}

// addTakeOver generates the time of the kubelet.
func (g *generator) addTakeOver() {
	s := g.scenario.Spec.TakeOver
	if s == nil {
		return
	}
	r := g.stream("take-over")
	t := &TakeOver{Ran: Duration(s.Ran.draw(r)), Down: Duration(s.Down.draw(r))}
	g.plan.Spec.TakeOver = t
	t.Reboot = s.Reboots.drawBool(g.stream("take-over reboot"))
	if s.Systemd.drawBool(g.stream("take-over cgroups")) {
		g.plan.Spec.Node.SystemdCgroups = true
	}
	exists := map[string]bool{}
	for i := range g.plan.Spec.Happenings {
		h := &g.plan.Spec.Happenings[i]
		if h.At == 0 && h.When == nil && h.Act != nil && h.Act.Verb == VerbCreate {
			exists[h.Act.Pod] = true
		}
	}
	g.compress(t)
	for range g.occurrences("early deletions", s.Deletions, false) {
		if len(g.untouchedPods) == 0 {
			return
		}
		p := g.untouchedPods[0]
		before := min(Duration(s.Before.draw(r)), t.Ran)
		if g.untouchedPods = g.untouchedPods[1:]; exists[p.Name] {
			t.Deletions = append(t.Deletions, EarlyDeletion{p.Name, before})
		}
	}
}

// compressedTo is how long after the agent's start everything happens, in such plans.
const compressedTo = Duration(8 * time.Second)

// compress makes everything happen early, in half of the seeds: while neither kubelet nor agent
// runs, and in the first seconds of the agent.
func (g *generator) compress(t *TakeOver) {
	spec := &g.plan.Spec
	if g.stream("hurry").IntN(2) == 0 {
		return
	}
	within, all := int64((t.Down+compressedTo)/Duration(time.Millisecond)),
		int64(spec.Duration/Duration(time.Millisecond))
	for i := range spec.Happenings {
		if h := &spec.Happenings[i]; h.At > 0 {
			ms := int64(h.At/Duration(time.Millisecond)) * within / all
			h.At = Duration(max(ms, 1)) * Duration(time.Millisecond)
		}
	}
}

func (s *Spec) validateTakeOver() error {
	t := s.TakeOver
	if t == nil {
		return nil
	}
	switch {
	case !s.Node.API:
		return fmt.Errorf("spec.takeOver: want spec.node.api, as a kubelet has an API server")
	case t.Ran < Duration(time.Second):
		return fmt.Errorf("spec.takeOver.ran: want at least 1s, have %s", t.Ran)
	case t.Down > s.Duration:
		return fmt.Errorf("spec.takeOver.down: %s is after spec.duration, %s", t.Down, s.Duration)
	}
	for i, d := range t.Deletions {
		switch p := s.PodNamed(d.Pod); {
		case p == nil || !p.API:
			return fmt.Errorf("spec.takeOver.deletions[%d].pod: no pod of the API server is called %q",
				i, d.Pod)
		case d.Before > t.Ran:
			return fmt.Errorf("spec.takeOver.deletions[%d].before: %s is before the kubelet, %s", i,
				d.Before, t.Ran)
		}
	}
	return nil
}

// Beginning returns when the run begins: before Start, if a kubelet has run the node.
func (s *Spec) Beginning() time.Time {
	if s.TakeOver == nil {
		return Start
	}
	return Start.Add(-time.Duration(s.TakeOver.Ran))
}
