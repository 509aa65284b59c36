// Package oracle judges a simulated run. An oracle is one rule that a node agent must keep; the
// panel is all of them, fed in order of time with what really happened (package truth), with what
// the API answered, and with what somebody wanted and did.
//
// Contract: the judges never see the agent's state, only what it did and said. A violation is
// something that the rules forbid whatever went wrong around the agent: being late is none, a
// fault that the agent could not know of excuses. What has to come right in the end, but may be
// wrong for a while, is told by Unsettled. An oracle tells its first violation and is quiet then.
//
// Each rule has a file of its own; the world that they share is in world.go. Start reading at
// Panel, then grace.go as an example of an oracle, then progress.go.
package oracle

import (
	"iter"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/object"
	"seedlet.dev/sim/truth"
)

// Panel is all oracles of one run, and what they know. It is for one goroutine.
type Panel struct {
	world      *world
	facts      []factTaker
	answers    []answerTaker
	fired      map[string]bool
	latest     truth.Fact // the one that is being judged
	violations []Violation
}

// Options are what the oracles need to know of the node.
type Options struct {
	NodeName         string
	PodsDir, LogsDir string        // where each pod has a directory, and one of logs
	BackoffMax       time.Duration // between restarts of a container; zero: 300 s

	LinksDir    string                          // where each container that runs has a link to its log
	LogBytesMax int64                           // a log that has so many is to be rotated
	LogFilesMax int                             // that are kept of a run of a container
	LogPeriod   time.Duration                   // in which each log is looked at
	Files       func(dir string) iter.Seq[File] // what is on the disk; nil: nobody looks

	Usage func(path string) int64 // what a tree on the disk takes; nil: nobody looks
	// Read is what is in a file, false if there is none. Nil: nobody looks.
	Read func(path string) ([]byte, bool)

	Cgroups Cgroups // of pods

	// Struck says whether a fault may have struck a call of this name, on its way there or back
	// or in the port, that was under way between two times. Nil: none ever does.
	Struck  func(call string, from, to time.Time) bool
	Evented bool // the agent relies on the runtime's events
	// ImageUser is whom an image runs as, by number or name. Nil: all as root.
	ImageUser func(ref string) string

	API bool // the node has an API server
	// Allocatable is what pods may have of the node. Nil: nobody looks.
	Allocatable v1.ResourceList
	// Registers is the Node as the agent makes it if there is none. Nil: of that nothing is known.
	Registers *v1.Node

	// Follows is how the agent learns of changes of ConfigMaps and Secrets.
	Follows object.Strategy

	// Skew is how wrong the runtime's clock was at a time. Nil: it never was.
	Skew func(time.Time) time.Duration
}

// Violation is a rule that was broken.
type Violation struct {
	Oracle, Message string
	Time            time.Time // when it was broken, which may be before it was noticed
}

// Entry is what the documentation says of an oracle.
type Entry struct{ Name, Sentence string }

// oracle is one rule.
type oracle interface {
	entry() Entry
}

// A factTaker judges facts, and keeps none. The world is as it was just before the fact.
type factTaker interface {
	oracle
	fact(w *world, f *truth.Fact) *finding
}

// An answerTaker judges what GET /pods answered.
type answerTaker interface {
	oracle
	answer(w *world, now time.Time, pods []*v1.Pod) *finding
}

// finding is what an oracle has found; nil is nothing.
type finding struct {
	message string
	time    time.Time // zero: now
}

// oracles makes all of them anew, in the order in which they judge.
func oracles() []oracle {
	return []oracle{
		&oneRun{}, &initOrder{}, &policy{}, &backoff{}, &terminal{}, &counts{}, &grace{},
		&fullNames{}, &uids{}, &sidecars{}, &hooks{}, &probes{}, &deadline{}, &undisturbed{},
		&readiness{}, &directories{}, &volumes{}, &content{}, &contentLate{}, &environment{},
		&images{}, &logs{}, &message{}, &health{}, &cgroups{}, &usernsOf{}, &restartAll{},
		&eviction{}, &apiTerminal{}, &apiStopped{}, &apiIdentity{}, &apiRemoved{}, &heartbeat{},
		&events{}, &admission{}, &preemption{}, &ephemeral{}, &requests{}, &progress{},
	}
}

// Catalogue is every oracle, in the order in which they judge.
func Catalogue() []Entry {
	var entries []Entry
	for _, o := range oracles() {
		entries = append(entries, o.entry())
	}
	return entries
}

// NewPanel makes the panel of a run in which nothing has happened yet.
func NewPanel(opts Options) *Panel {
	p := &Panel{world: newWorld(opts), fired: map[string]bool{}}
	for _, o := range oracles() {
		if taker, is := o.(factTaker); is {
			p.facts = append(p.facts, taker)
		}
		if taker, is := o.(answerTaker); is {
			p.answers = append(p.answers, taker)
		}
	}
	return p
}

// Fact takes what really happened, in the runtime or on the disk.
func (p *Panel) Fact(f truth.Fact) {
	p.latest = f
	p.world.press(f.Time)
	for _, o := range p.facts {
		if what := o.fact(p.world, &p.latest); what != nil {
			p.found(o, what, f.Time)
		}
	}
	p.world.take(&p.latest)
}

// Answer takes what GET /pods answered. The pods are not kept.
func (p *Panel) Answer(now time.Time, pods []*v1.Pod) {
	p.world.now = now
	for _, o := range p.answers {
		if what := o.answer(p.world, now, pods); what != nil {
			p.found(o, what, now)
		}
	}
	p.world.answered(now, pods)
}

// found records the first thing that an oracle finds.
func (p *Panel) found(o oracle, what *finding, now time.Time) {
	name := o.entry().Name
	if p.fired[name] {
		return
	}
	p.fired[name] = true
	if what.time.IsZero() {
		what.time = now
	}
	p.violations = append(p.violations, Violation{name, what.message, what.time})
	slices.SortStableFunc(p.violations, func(a, b Violation) int { return a.Time.Compare(b.Time) })
}

// Wanted says that a manifest now wants a pod, as package manifest decodes it: named, with its UID
// and with defaults. A UID that comes again was rewritten, or is back.
func (p *Panel) Wanted(now time.Time, pod *v1.Pod) { p.world.want(now, pod) }

// Unwanted says that the manifest of a pod was removed or replaced.
func (p *Panel) Unwanted(now time.Time, uid string) { p.world.unwant(now, uid) }

// Hastened says that a pod is to end within a grace period that may be shorter than its own.
func (p *Panel) Hastened(uid string, grace time.Duration) {
	if pod := p.world.pods[uid]; pod != nil {
		pod.graceLeast = min(pod.graceLeast, grace)
	}
}

// AgentStarted says that a life of the agent begins; the first one as well.
func (p *Panel) AgentStarted(now time.Time) { p.world.agentStarted(now) }

// AgentKilled says that a life of the agent ends.
func (p *Panel) AgentKilled(now time.Time) { p.world.agentKilled(now) }

// Healed says that from now on nothing goes wrong but what containers do by their scripts.
func (p *Panel) Healed(now time.Time) { p.world.heal(now) }

// Violations are the rules that were broken so far, in order of time, at most one per oracle.
func (p *Panel) Violations() []Violation { return p.violations }
