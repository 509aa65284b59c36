package oracle

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/truth"
)

// container is the true state of one run of a container.
type container struct {
	id, name string
	pod      *pod
	sandbox  *sandbox // nil if it was gone when the container was created
	attempt  uint32
	round    int // the restart round that the agent wrote on it
	state    state

	// The agent's annotations.
	hash             string
	restartCount     int32         // -1: none
	annotatedGrace   time.Duration // -1: none
	annotatedBackoff time.Duration // the back-off after this run, by the agent

	startedAt       time.Time // zero: its process never ran
	byKubelet       bool      // it was started by a kubelet
	exitedAt        time.Time
	stopRequestedAt time.Time // the first request to stop it
	ranAtChange     bool      // it ran when its spec changed, for all that the agent had listed
	exitCode        int32
	exitCause       string
	minBackoff      time.Duration // the least back-off after this run, if the run does not reset it
	wasServedReady  bool          // a response had it as ready

	reportedRunningAt time.Time // when the API server had it as running first
	reportedEndAt     time.Time // the same of its exit

	logPath, linkName  string      // the path of its log, and the name of the link to it
	linkTarget         string      // the target of that link, when links were last listed
	fallbackToLog      bool        // a part of its log is its termination message if it wrote none
	terminationMessage string      // the content of its termination message file
	logTail            string      // the last lines that it wrote into its log
	logLost            bool        // its log was renamed, and no new one was opened
	hadPowerLoss       bool        // what it had written to files may be lost
	logFullSince       time.Time   // since when its log was seen to be too large
	servedReadiness    probeResult // as the latest response has it; resultUnknown: no response yet

	limits      truth.Limits   // of its cgroup
	limitsHad   []truth.Limits // so far, the newest last
	memoryUsage int64          // in bytes, once it has started
	layerBytes  int64          // in its writable layer

	spec             *v1.Container // the spec that it was created from; nil: not known for sure
	podFullName      string        // the namespace and name of the pod that it was created for
	handlers         []*handler    // its probes and hooks
	createdAt        time.Time
	killStartedAt    time.Time // the first sign of its termination
	wasLost          bool      // the runtime once lost track of it, for which the agent may stop it
	listedAt         time.Time // the latest list that the agent had before the exit
	stopGraceSeconds int64     // of the first StopContainer
}

type state int

const (
	created state = iota
	running
	exited
)

// Annotations that the agent writes on containers.
const (
	annotationHash     = "io.kubernetes.container.hash"
	annotationRestarts = "io.kubernetes.container.restartCount"
	annotationGrace    = "io.kubernetes.pod.terminationGracePeriod"
	annotationBackoff  = "seedlet.dev/restart-backoff"
	annotationPolicy   = "io.kubernetes.container.terminationMessagePolicy"
)

const defaultGrace = 30 * time.Second

// newContainer returns the container that a fact creates.
func (m *model) newContainer(f *truth.Fact) *container {
	p := m.podOfFact(f)
	c := &container{
		id: f.ContainerID, name: f.Container, pod: p, sandbox: m.sandboxes[f.SandboxID],
		attempt: f.Attempt, hash: f.Annotations[annotationHash],
		restartCount: annotatedRestartCount(f), annotatedGrace: -1,
	}
	if n, err := strconv.ParseInt(f.Annotations[annotationGrace], 10, 32); err == nil {
		c.annotatedGrace = time.Duration(n) * time.Second
	}
	if d, err := time.ParseDuration(f.Annotations[annotationBackoff]); err == nil {
		c.annotatedBackoff = min(d, m.opts.BackoffMax)
	}
	c.round, _ = strconv.Atoi(f.Annotations[annotationRound])
	c.logPath, c.linkName = m.logPath(c), logLinkName(c)
	c.fallbackToLog = f.Annotations[annotationPolicy] == "FallbackToLogsOnError"
	if last := p.historyOf(c.name).last; last == nil || !p.mayHaveRestarted(last, f.Limits) {
		c.minBackoff = nextBackoff(last, c.hash, m.opts.BackoffMax)
	}
	if m.kubeletRuns {
		c.minBackoff = 0 // a kubelet has it in memory alone
	}
	c.createdAt, c.podFullName = f.Time, f.PodNamespace+"/"+f.PodName
	if c.spec = p.specOf(c.name, c.hash); c.spec != nil {
		c.handlers = handlersOf(c.spec)
	}
	return c
}

func (c *container) applyStart(now time.Time) {
	if c.state != created {
		return
	}
	c.state, c.startedAt, c.byKubelet = running, now, c.pod.model.kubeletRuns
	c.pod.liveContainers++
	c.pod.lastStartedAt, c.pod.endedBeforeRemoval = now, false
	if c.pod.firstStartedAt.IsZero() {
		c.pod.firstStartedAt = now
	}
	if s := c.sandbox; s != nil && c.round > s.round {
		s.round, s.started, s.passedStartup, s.completed = c.round, nil, nil, nil
	}
	if s := c.sandbox; s != nil && !slices.Contains(s.started, c.name) {
		s.started = append(s.started, c.name)
	}
	h := c.pod.historyOf(c.name)
	h.maxAttempt = max(h.maxAttempt, int64(c.attempt))
}

func (c *container) applyExit(f *truth.Fact) {
	if c.state == running {
		c.pod.liveContainers--
	}
	wasTerminal := c.pod.spec != nil && c.pod.hasExitedForGood()
	c.state, c.exitedAt, c.exitCode, c.exitCause = exited, f.Time, f.ExitCode, f.Cause
	c.terminationMessage, c.logTail = f.Message, f.LogTail
	c.listedAt = c.pod.model.containersListedAt
	c.pod.advanceRound(c, wasTerminal)
	h := c.pod.historyOf(c.name)
	h.last = c
	if c.hasRun() { // a failed start may go unnoticed until the record is removed
		h.maxAttempt = max(h.maxAttempt, int64(c.attempt))
	}
	if s := c.sandbox; s != nil && c.hasRun() && c.exitCode == 0 && c.round == s.round &&
		!slices.Contains(s.completed, c.name) {
		s.completed = append(s.completed, c.name)
	}
}

// hasRun reports whether the container's process ever ran.
func (c *container) hasRun() bool { return !c.startedAt.IsZero() }

// minGrace returns the shortest time that the container must have between the request to stop it
// and KILL.
func (c *container) minGrace() time.Duration {
	least := time.Duration(-1)
	if c.pod.timesDesired > 0 {
		least = c.pod.minGrace
	}
	if c.annotatedGrace >= 0 && (least < 0 || c.annotatedGrace < least) {
		least = c.annotatedGrace
	}
	if least < 0 {
		least = defaultGrace
	}
	if c.pod.timesDesired == 0 || c.isOfLostName() {
		least = min(least, orphanGrace)
	}
	if c.pod.sidecarPosition(c.name) > 0 {
		return min(least, minSidecarGrace)
	}
	return least
}

// isOfLostName reports whether a container is of a pod with another name that had its UID, and that
// no source has listed since the agent started: it has an orphan's time.
func (c *container) isOfLostName() bool {
	p := c.pod
	return p.spec != nil && c.podFullName != p.spec.Namespace+"/"+p.spec.Name &&
		p.model.agentStartedAt.After(p.removedAt)
}

// maxGrace returns the longest time that the container may have between the request to stop it
// and KILL.
func (c *container) maxGrace() time.Duration { return max(c.pod.maxGrace, c.annotatedGrace) }

// maxGraceOf returns the longest grace period of a pod and its probes.
func maxGraceOf(spec *v1.Pod) time.Duration {
	most := defaultGrace
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

// minSidecarGrace is the grace period of a sidecar when app containers have used up the pod's.
const minSidecarGrace = 2 * time.Second

func (c *container) String() string {
	return fmt.Sprintf("container %s #%d (%.12s) of pod %s", c.name, c.attempt, c.id, c.pod)
}

// annotatedRestartCount returns the restart count that the agent wrote on a container; -1 if
// none.
func annotatedRestartCount(f *truth.Fact) int32 {
	n, err := strconv.ParseInt(f.Annotations[annotationRestarts], 10, 32)
	if err != nil {
		return -1
	}
	return int32(n)
}
