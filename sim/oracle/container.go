package oracle

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/truth"
)

// container is what is true about one run of a container.
type container struct {
	id, name string
	pod      *pod
	sandbox  *sandbox // nil if it was gone when the container was made
	attempt  uint32
	round    int // as the agent has it
	state    state

	// What the agent wrote on it.
	hash     string
	restarts int32         // -1: nothing
	grace    time.Duration // -1: nothing
	waits    time.Duration // the back-off after this run, as the agent has it

	startedAt time.Time // zero: its process never ran
	exitedAt  time.Time
	stopAt    time.Time // when it was first asked to end
	code      int32
	cause     string
	backoff   time.Duration // the least that applies after this run, unless it is a long one
	shown     bool          // an answer has shown it as ready

	log, link string    // the path of its log, and the name of the link to it
	linked    string    // what that link leads to, as far as anybody has looked
	fallback  bool      // its log speaks for it if it says nothing itself
	message   string    // what it has said about its end
	logEnd    string    // and what it wrote last into its log
	logLost   bool      // which was renamed, and no new one was opened
	fullSince time.Time // since when its log is too large, as far as anybody has looked
	ready     verdict   // what the newest answer has shown; undecided: none has

	spec      *v1.Container // that it was made from; nil if that cannot be told
	full      string        // the namespace and name of the pod it was made for
	asks      []*ask        // its probes and hooks
	madeAt    time.Time
	killBegan time.Time // the first sign of it
	lost      bool      // the runtime has lost track of it at some time: it is ended for that
	toldAt    time.Time // before it exited: when the agent was last told all that runs
	stopGrace int64     // of the first StopContainer, in seconds
}

type state int

const (
	created state = iota
	running
	exited
)

// What the agent writes on containers.
const (
	annotationHash     = "io.kubernetes.container.hash"
	annotationRestarts = "io.kubernetes.container.restartCount"
	annotationGrace    = "io.kubernetes.pod.terminationGracePeriod"
	annotationBackoff  = "seedlet.dev/restart-backoff"
	annotationPolicy   = "io.kubernetes.container.terminationMessagePolicy"
)

const graceDefault = 30 * time.Second

// newContainer is the container that a fact is about, which is the first one about it.
func (w *world) newContainer(f *truth.Fact) *container {
	p := w.podOf(f)
	c := &container{
		id: f.ContainerID, name: f.Container, pod: p, sandbox: w.sandboxes[f.SandboxID],
		attempt: f.Attempt, hash: f.Annotations[annotationHash], restarts: restartsOf(f), grace: -1,
	}
	if n, err := strconv.ParseInt(f.Annotations[annotationGrace], 10, 32); err == nil {
		c.grace = time.Duration(n) * time.Second
	}
	if d, err := time.ParseDuration(f.Annotations[annotationBackoff]); err == nil {
		c.waits = min(d, w.opts.BackoffMax)
	}
	c.round, _ = strconv.Atoi(f.Annotations[annotationRound])
	c.log, c.link = w.logOf(c), linkOf(c)
	c.fallback = f.Annotations[annotationPolicy] == "FallbackToLogsOnError"
	c.backoff = backoffAfter(p.runsOf(c.name).last, c.hash, w.opts.BackoffMax)
	c.madeAt, c.full = f.Time, f.PodNamespace+"/"+f.PodName
	if c.spec = p.specOf(c.name, c.hash); c.spec != nil {
		c.asks = asksOf(c.spec)
	}
	return c
}

func (c *container) start(now time.Time) {
	if c.state != created {
		return
	}
	c.state, c.startedAt = running, now
	c.pod.live++
	if c.pod.startedFirst.IsZero() {
		c.pod.startedFirst = now
	}
	if s := c.sandbox; s != nil && c.round > s.round {
		s.round, s.began, s.passed, s.ended = c.round, nil, nil, nil
	}
	if s := c.sandbox; s != nil && !slices.Contains(s.began, c.name) {
		s.began = append(s.began, c.name)
	}
	h := c.pod.runsOf(c.name)
	h.attempts = max(h.attempts, int64(c.attempt))
}

func (c *container) exit(f *truth.Fact) {
	if c.state == running {
		c.pod.live--
	}
	over := c.pod.spec != nil && c.pod.ended()
	c.state, c.exitedAt, c.code, c.cause = exited, f.Time, f.ExitCode, f.Cause
	c.message, c.logEnd = f.Message, f.LogEnd
	c.toldAt = c.pod.world.containersTold
	c.pod.beginRound(c, over)
	h := c.pod.runsOf(c.name)
	h.last = c
	if c.ran() { // a start that failed late may go unnoticed before the record is removed
		h.attempts = max(h.attempts, int64(c.attempt))
	}
	if s := c.sandbox; s != nil && c.ran() && c.code == 0 && c.round == s.round &&
		!slices.Contains(s.ended, c.name) {
		s.ended = append(s.ended, c.name)
	}
}

// ran says whether its process ever ran.
func (c *container) ran() bool { return !c.startedAt.IsZero() }

// graceDue is how long it has at least to end after it was asked to.
func (c *container) graceDue() time.Duration {
	due := time.Duration(-1)
	if c.pod.wishes > 0 {
		due = c.pod.graceLeast
	}
	if c.grace >= 0 && (due < 0 || c.grace < due) {
		due = c.grace
	}
	if due < 0 {
		due = graceDefault
	}
	if c.pod.sidecar(c.name) > 0 {
		return min(due, sidecarGraceMin)
	}
	return due
}

// graceMost is the longest that a container may have to end.
func (c *container) graceMost() time.Duration { return max(c.pod.graceMost, c.grace) }

// graceMostOf is the longest grace period of a pod or of its probes.
func graceMostOf(spec *v1.Pod) time.Duration {
	most := graceDefault
	if s := spec.Spec.TerminationGracePeriodSeconds; s != nil {
		most = time.Duration(*s) * time.Second
	}
	for _, list := range [][]v1.Container{spec.Spec.InitContainers, spec.Spec.Containers} {
		for i := range list {
			for _, probe := range []*v1.Probe{list[i].LivenessProbe, list[i].StartupProbe} {
				if probe != nil && probe.TerminationGracePeriodSeconds != nil {
					own := time.Duration(*probe.TerminationGracePeriodSeconds) * time.Second
					most = max(most, own)
				}
			}
		}
	}
	return most
}

// sidecarGraceMin is what a sidecar has at least when the app containers have used the grace
// period up.
const sidecarGraceMin = 2 * time.Second

func (c *container) String() string {
	return fmt.Sprintf("container %s #%d (%.12s) of pod %s", c.name, c.attempt, c.id, c.pod)
}

// restartsOf is the restart count that the agent has written on a container; -1 if none.
func restartsOf(f *truth.Fact) int32 {
	n, err := strconv.ParseInt(f.Annotations[annotationRestarts], 10, 32)
	if err != nil {
		return -1
	}
	return int32(n)
}
