package oracle

import (
	"reflect"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/manifest"
)

// pod is what is true about the pod of one UID.
type pod struct {
	powerLost bool // while there was something of it

	uid   string
	full  *fullName
	world *world

	spec        *v1.Pod          // as the newest manifest wants it; nil: not wanted now
	wishes      int              // how often it was wanted
	removals    int              // how often its manifest went
	wishedAt    time.Time        // the last time
	removedAt   time.Time        // the last time
	respecified bool             // it was wanted with different specs
	loosest     v1.RestartPolicy // of all policies it had; empty: it was never wanted
	graceLeast  time.Duration    // of all it had
	inits       [][]string       // the different lists of init containers it had
	sidecars    map[string]int   // places of the sidecars it has, or had last

	sandboxes  []*sandbox   // that exist, in order of creation
	containers []*container // likewise
	live       int          // containers of which a process runs
	dirs       []string     // of its directories, those that exist
	history    map[string]*history
	changed    time.Time // when something happened to it in the runtime
	terminal   v1.PodPhase
	rejected   bool        // with good reason
	preempted  bool        // as the API server was told
	overAt     time.Time   // when it was first told that it is over
	called     v1.PodPhase // in which somebody else has told that it is over, before the agent

	startedFirst time.Time // when the first container of it ran; zero: none has
	shortAt      time.Time // when there was last no room for it, if it is critical
	claimed      claim
	claimedBy    *v1.Pod // whose claim that is

	specs    []*v1.Pod  // every different one it had
	static   bool       // its first one was of a file
	round    int        // the newest that an exit must have begun
	mayRound int        // the newest that one may have
	roundBy  *container // whose exit must have begun it
	ending   time.Time  // when it was first seen to be ended, if it is not wanted
	began    span       // when it is shown to have begun
	// When it was wanted for the first time since it was not.
	wishedFirst time.Time
	graceMost   time.Duration // of all it and its probes had

	byHand    bool // somebody has removed what it had by hand
	uncounted bool // and no agent knows what had been there

	fillings []filling // of its volumes that have a limit
	overflow string    // what a volume in memory has too much

	confirmed bool   // since the healing an answer has shown what is true
	complaint string // what the last answer that should have been right had wrong
	shown     bool   // the last answer showed it
}

// history is what is to be remembered of the runs of a container when their records are gone.
type history struct {
	last     *container // that has exited
	attempts int64      // the highest of a run that was at least tried; -1: none
	restarts int32      // the highest count that an answer has shown
}

// runsOf is the history of a container.
func (p *pod) runsOf(name string) *history {
	h := p.history[name]
	if h == nil {
		h = &history{attempts: -1}
		p.history[name] = h
	}
	return h
}

// loose says that the manifest was gone at some time. Whether the agent has noticed cannot be
// known: the history may go on, or may have begun anew.
func (p *pod) loose() bool { return p.removals > 0 }

func (p *pod) want(now time.Time, spec *v1.Pod) {
	if p.spec == nil && p.wishes > 0 {
		p.terminal, p.began, p.round, p.roundBy = "", span{}, 0, nil
		if len(p.containers) == 0 {
			clear(p.history) // what somebody has removed by hand, too
		}
	}
	if p.spec == nil {
		p.wishedFirst, p.startedFirst = now, time.Time{}
	}
	p.ending = time.Time{}
	p.specify(spec)
	p.graceMost = max(p.graceMost, graceMostOf(spec))
	if len(p.specs) == 1 && p.wishes == 0 && p.critical() {
		p.world.critical = append(p.world.critical, p)
	}
	newest := p.spec
	p.spec, p.wishedAt = spec, now
	p.wishes++
	if newest != nil && !reflect.DeepEqual(newest.Spec, spec.Spec) {
		p.respecified = true
		p.terminal = "" // the newest manifest ends up running (upstream #107733)
	}
	p.loosest = looser(p.loosest, spec.Spec.RestartPolicy)
	grace := graceDefault
	if s := spec.Spec.TerminationGracePeriodSeconds; s != nil {
		grace = time.Duration(*s) * time.Second
	}
	if p.wishes == 1 || grace < p.graceLeast {
		p.graceLeast = grace
	}
	p.sidecars = sidecarsOf(spec)
	var inits []string
	for i := range spec.Spec.InitContainers {
		inits = append(inits, spec.Spec.InitContainers[i].Name)
	}
	for _, known := range p.inits {
		if slices.Equal(known, inits) {
			return
		}
	}
	p.inits = append(p.inits, inits)
}

func (p *pod) unwant(now time.Time) {
	p.spec, p.removedAt, p.ending = nil, now, time.Time{}
	p.removals++
}

// looser is the policy that allows more restarts; an empty one allows none.
func looser(a, b v1.RestartPolicy) v1.RestartPolicy {
	order := []v1.RestartPolicy{"", v1.RestartPolicyNever, v1.RestartPolicyOnFailure}
	rank := func(p v1.RestartPolicy) int {
		if i := slices.Index(order, p); i >= 0 {
			return i
		}
		return len(order)
	}
	if rank(a) >= rank(b) {
		return a
	}
	return b
}

// isInit says whether a container is, or was, an init container of the pod.
func (p *pod) isInit(name string) bool {
	for _, inits := range p.inits {
		if slices.Contains(inits, name) {
			return true
		}
	}
	return false
}

// newestSandbox is nil if there is none.
func (p *pod) newestSandbox() *sandbox {
	var newest *sandbox
	for _, s := range p.sandboxes {
		if newest == nil || s.attempt >= newest.attempt {
			newest = s
		}
	}
	return newest
}

// newest is the newest run of a container that has a record; nil if there is none. What was made
// late in a former sandbox, and never ran, can never run and does not count.
func (p *pod) newest(name string) *container {
	var newest *container
	current := p.newestSandbox()
	for _, c := range p.containers {
		stray := c.state == created && (c.sandbox == nil || c.sandbox != current)
		if c.name == name && !stray && (newest == nil || c.attempt >= newest.attempt) {
			newest = c
		}
	}
	return newest
}

// liveRun is a run of a container whose process runs; nil if there is none.
func (p *pod) liveRun(name string) *container {
	for _, c := range p.containers {
		if c.name == name && c.state == running {
			return c
		}
	}
	return nil
}

// current says whether a container was made as the newest manifest has it.
func (p *pod) current(c *container) bool {
	want := containerOf(p.spec, c.name)
	return want != nil && (c.hash == "" || c.hash == manifest.ContainerHash(want))
}

func (p *pod) dropSandbox(s *sandbox) {
	p.sandboxes = slices.DeleteFunc(p.sandboxes, func(o *sandbox) bool { return o == s })
}

// dropContainer forgets a record. With it goes the history of a pod that may begin anew.
func (p *pod) dropContainer(c *container) {
	p.containers = slices.DeleteFunc(p.containers, func(o *container) bool { return o == c })
	if c.state == running {
		p.live--
	}
	if h := p.history[c.name]; h != nil && p.loose() && h.last == c {
		delete(p.history, c.name)
	}
}

// removeByHand takes that somebody has removed a sandbox and what was in it. An agent that has not
// seen it will never know of it, and count anew; that the pod was called over is no less so.
func (p *pod) removeByHand() {
	p.byHand, p.round = true, 0
	if w := p.world; w.dead || !w.containersTold.After(w.started) {
		p.uncounted = true
	}
}

func (p *pod) dropDir(dir string) {
	p.dirs = slices.DeleteFunc(p.dirs, func(d string) bool { return d == dir })
}

func (p *pod) String() string {
	if p.full == nil {
		return "uid " + p.uid
	}
	return p.full.text + " (uid " + p.uid + ")"
}
