package plan

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
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
	Deletions []EarlyAct `json:"deletions,omitempty"`
	// Debugs add an ephemeral container to pods.
	Debugs []EarlyAct `json:"debugs,omitempty"`
	// StaticManagers has the kubelet leave the state files of managers with static policies, which
	// the node no longer has.
	StaticManagers bool `json:"staticManagers,omitempty"`
}

// EarlyAct is an act on a pod of the API server before the kubelet ends.
type EarlyAct struct {
	Pod    string   `json:"pod"`
	Before Duration `json:"before"` // the end of the kubelet
}

// TakeOverRange is how a kubelet may have run the node.
type TakeOverRange struct {
	Ran       Span  `json:"ran"`
	Down      Span  `json:"down,omitempty"`
	Deletions Count `json:"deletions,omitempty"`
	Before    Span  `json:"before,omitempty"` // of deletions, as in EarlyAct
	Debugs    Count `json:"debugs,omitempty"`
	Reboots   Share `json:"reboots,omitempty"` // of the machine, between kubelet and agent
	Systemd   Share `json:"systemd,omitempty"` // as the cgroup driver of kubelet and agent
	// StaticManagers is as in TakeOver.
	StaticManagers Share `json:"staticManagers,omitempty"`
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
		if h.At == 0 && h.When == nil && h.Act != nil && h.Act.Verb == VerbCreate && h.Act.Pod != "" {
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
			t.Deletions = append(t.Deletions, EarlyAct{p.Name, before})
		}
	}
	t.StaticManagers = s.StaticManagers.drawBool(g.stream("take-over managers"))
	g.addEarlyDebugs(t, s, exists)
}

// addEarlyDebugs adds ephemeral containers to pods that exist from the beginning.
func (g *generator) addEarlyDebugs(t *TakeOver, s *TakeOverRange, exists map[string]bool) {
	pods := slices.Sorted(maps.Keys(exists))
	r := g.stream("take-over debugs")
	for range g.occurrences("early debugs", s.Debugs, false) {
		if i := r.IntN(max(1, len(pods))); i < len(pods) {
			before := Duration(r.Int64N(int64(t.Ran)))
			t.Debugs = append(t.Debugs, EarlyAct{pods[i], before})
			pods = slices.Delete(pods, i, i+1)
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
	err := s.validateEarlyActs("deletions", t.Deletions)
	return cmp.Or(err, s.validateEarlyActs("debugs", t.Debugs))
}

func (s *Spec) validateEarlyActs(field string, acts []EarlyAct) error {
	for i, a := range acts {
		switch p := s.PodNamed(a.Pod); {
		case p == nil || !p.API:
			return fmt.Errorf("spec.takeOver.%s[%d].pod: no pod of the API server is called %q", field, i,
				a.Pod)
		case a.Before > s.TakeOver.Ran:
			return fmt.Errorf("spec.takeOver.%s[%d].before: %s is before the kubelet, %s", field, i,
				a.Before, s.TakeOver.Ran)
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
