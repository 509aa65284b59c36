package plan

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
)

// TakeOver is the time before the agent's first life, in which a kubelet has run the node: its
// leftovers are what that life begins with. Pods and objects that are created at 0 exist from its
// beginning. The kubelet ends at Start.
type TakeOver struct {
	KubeletLife `json:",inline"`
	// Reboot has the machine lose its power when the kubelet ends: the agent is the first to run on it
	// again, after Down.
	Reboot bool `json:"reboot,omitempty"`
	// StaticManagers has the kubelet leave the state files of managers with static policies, which
	// the node no longer has.
	StaticManagers bool `json:"staticManagers,omitempty"`
	// Rounds are times in which a kubelet has the node back, after the faults have healed. An agent
	// follows each.
	Rounds []Round `json:"rounds,omitempty"`
}

// KubeletLife is a time in which a kubelet runs the node.
type KubeletLife struct {
	Ran  Duration `json:"ran"`            // how long the kubelet has run
	Down Duration `json:"down,omitempty"` // from its end until the agent starts
	// Deletions are deletions of pods that the kubelet has started to carry out.
	Deletions []EarlyAct `json:"deletions,omitempty"`
	// Debugs add an ephemeral container to pods.
	Debugs []EarlyAct `json:"debugs,omitempty"`
	// Creations create pods that are deleted before, as soon as their names are free.
	Creations []EarlyAct `json:"creations,omitempty"`
	// Resizes change the requests and limits of pods.
	Resizes []EarlyResize `json:"resizes,omitempty"`
	// Replaced are objects that are deleted, and created again at once.
	Replaced []EarlyReplacement `json:"replaced,omitempty"`
}

// EarlyReplacement is the replacement of an object before the kubelet ends.
type EarlyReplacement struct {
	Object string   `json:"object"`
	Before Duration `json:"before"`
}

// EarlyResize is a resize of a pod of the API server before the kubelet ends.
type EarlyResize struct {
	EarlyAct `json:",inline"`
	Patch    map[string]any `json:"patch"` // as in Act
}

// Round is a time in which a kubelet has the node back.
type Round struct {
	After       Duration `json:"after,omitempty"` // how long the agent has run before, since the heal
	KubeletLife `json:",inline"`
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
	Resizes   Count `json:"resizes,omitempty"`
	Secrets   Share `json:"secrets,omitempty"` // for images, that are replaced
	Reboots   Share `json:"reboots,omitempty"` // of the machine, between kubelet and agent
	Systemd   Share `json:"systemd,omitempty"` // as the cgroup driver of kubelet and agent
	// StaticManagers is as in TakeOver.
	StaticManagers Share `json:"staticManagers,omitempty"`
	Rounds         Count `json:"rounds,omitempty"`
	After          Span  `json:"after,omitempty"`    // of rounds, as in Round
	RoundRan       Span  `json:"roundRan,omitempty"` // of rounds
}

// addTakeOver generates the time of the kubelet.
func (g *generator) addTakeOver() {
	s := g.scenario.Spec.TakeOver
	if s == nil {
		return
	}
	r := g.stream("take-over")
	t := &TakeOver{KubeletLife: KubeletLife{Ran: Duration(s.Ran.draw(r)),
		Down: Duration(s.Down.draw(r))}}
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
	pods := slices.Sorted(maps.Keys(exists))
	g.addEarlyDebugs(t, s, slices.Clone(pods))
	g.addRounds(t, s, pods)
	lives := []*KubeletLife{&t.KubeletLife}
	for i := range t.Rounds {
		lives = append(lives, &t.Rounds[i].KubeletLife)
	}
	resizes, secrets := g.stream("take-over resizes"), g.stream("take-over secrets")
	for _, k := range lives {
		g.addEarlyResizes(k, s, pods, resizes)
		g.replaceSecrets(k, s, secrets)
	}
}

// replaceSecrets replaces the secrets for images: they have another UID then, and are as good.
func (g *generator) replaceSecrets(k *KubeletLife, s *TakeOverRange, r *rand.Rand) {
	for _, o := range g.plan.Spec.Objects {
		if o.Manifest["type"] == string(v1.SecretTypeDockerConfigJson) && s.Secrets.drawBool(r) {
			k.Replaced = append(k.Replaced, EarlyReplacement{o.Name, Duration(r.Int64N(int64(k.Ran)))})
		}
	}
}

// resizeSteps is about how long a kubelet takes for a resize, whose steps take some milliseconds.
const resizeSteps = Duration(250 * time.Millisecond)

// addEarlyResizes adds resizes of pods, in half of the cases so late that the kubelet ends within.
func (g *generator) addEarlyResizes(k *KubeletLife, s *TakeOverRange, pods []string, r *rand.Rand) {
	targets := slices.DeleteFunc(g.resizeTargets(), func(t resizeTarget) bool {
		return !slices.Contains(pods, t.pod)
	})
	for range s.Resizes.draw(r) {
		if len(targets) == 0 {
			return
		}
		i, within := r.IntN(len(targets)), k.Ran
		if r.IntN(2) == 0 {
			within = min(within, resizeSteps)
		}
		k.Resizes = append(k.Resizes, EarlyResize{
			EarlyAct{targets[i].pod, Duration(r.Int64N(int64(within)))}, resizePatch(&targets[i], r)})
	}
}

// addRounds adds times in which a kubelet has the node back: pods are deleted in them and come
// again, and get ephemeral containers.
func (g *generator) addRounds(t *TakeOver, s *TakeOverRange, pods []string) {
	r := g.stream("take-over rounds")
	for range g.occurrences("take-over rounds", s.Rounds, false) {
		round := Round{After: Duration(s.After.draw(r))}
		round.Ran, round.Down = Duration(s.RoundRan.draw(r)), Duration(s.Down.draw(r))
		r.Shuffle(len(pods), func(i, j int) { pods[i], pods[j] = pods[j], pods[i] })
		for i, name := range pods {
			before := Duration(r.Int64N(int64(round.Ran)))
			switch again := r.IntN(2) == 0; {
			case i == 0 && again:
				round.Deletions = append(round.Deletions, EarlyAct{name, before})
				round.Creations = append(round.Creations, EarlyAct{name, before / 2})
			case i == 0 || i == 1 && again:
				before = min(before, Duration(s.Before.draw(r)))
				round.Deletions = append(round.Deletions, EarlyAct{name, before})
			case i == 2 && again:
				round.Debugs = append(round.Debugs, EarlyAct{name, before})
			}
		}
		t.Rounds = append(t.Rounds, round)
	}
}

// addEarlyDebugs adds ephemeral containers to pods.
func (g *generator) addEarlyDebugs(t *TakeOver, s *TakeOverRange, pods []string) {
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
	case t.Down > s.Duration:
		return fmt.Errorf("spec.takeOver.down: %s is after spec.duration, %s", t.Down, s.Duration)
	}
	err := s.validateKubelet("spec.takeOver", &t.KubeletLife)
	for i := range t.Rounds {
		err = cmp.Or(err, s.validateKubelet(fmt.Sprintf("spec.takeOver.rounds[%d]", i),
			&t.Rounds[i].KubeletLife))
	}
	return err
}

func (s *Spec) validateKubelet(at string, k *KubeletLife) error {
	if k.Ran < Duration(time.Second) {
		return fmt.Errorf("%s.ran: want at least 1s, have %s", at, k.Ran)
	}
	return cmp.Or(s.validateEarlyActs(at+".deletions", k.Ran, k.Deletions),
		s.validateEarlyActs(at+".debugs", k.Ran, k.Debugs),
		s.validateEarlyActs(at+".creations", k.Ran, k.Creations),
		s.validateEarlyActs(at+".resizes", k.Ran, k.resized()), s.validateReplaced(at, k))
}

func (s *Spec) validateReplaced(at string, k *KubeletLife) error {
	for i, o := range k.Replaced {
		if s.ObjectNamed(o.Object) == nil || o.Before > k.Ran {
			return fmt.Errorf("%s.replaced[%d]: want an object, and a time of the kubelet, have %q and %s",
				at, i, o.Object, o.Before)
		}
	}
	return nil
}

// resized returns the pods that are resized.
func (k *KubeletLife) resized() (acts []EarlyAct) {
	for _, r := range k.Resizes {
		acts = append(acts, r.EarlyAct)
	}
	return acts
}

func (s *Spec) validateEarlyActs(at string, ran Duration, acts []EarlyAct) error {
	for i, a := range acts {
		switch p := s.PodNamed(a.Pod); {
		case p == nil || !p.API:
			return fmt.Errorf("%s[%d].pod: no pod of the API server is called %q", at, i, a.Pod)
		case a.Before > ran:
			return fmt.Errorf("%s[%d].before: %s is before the kubelet, %s", at, i, a.Before, ran)
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
