package whatif

import (
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/plan"
	"seedlet.dev/sim/truth"
	"seedlet.dev/world"
)

// podOutcome is what became of one pod in one run. Times are counted from the start of the run.
type podOutcome struct {
	firstReady time.Duration // zero: never
	wasReady   bool          // when the event came
	lost       bool          // was not Ready for a while after the event
	again      time.Duration // from the event until it was Ready again, if it is
	isReady    bool          // at the end
	succeeded  bool          // its phase at the end
	ended      bool          // a process ended because of the event
	killed     bool          // one of them, or a preStop hook, before it had ended by itself
	restarts   int           // of its containers after the event
	evicted    int           // in which turn the node evicted it, from 1; zero: it did not
}

// watcher judges a run by the facts of the simulated world: which processes ran and how they ended,
// and what the API server had of the pods.
type watcher struct {
	in    *Input
	event time.Time // when it came; zero: not yet
	pods  map[string]*watchedPod

	evictions int
}

// watchedPod is one pod.
type watchedPod struct {
	podOutcome
	w         *watcher
	spec      *v1.PodSpec
	status    *v1.PodStatus // at the API server; nil: not there
	processes map[string]*process
	stoppedAt map[string]time.Time // when the agent began to stop a container, by its name
	ready     bool
}

// process is a process of a container, by the container's ID.
type process struct {
	runs         bool
	stopAt       time.Time // when SIGTERM was sent first; zero: not yet
	hooksRunning map[uint64]bool
}

func newWatcher(in *Input) *watcher {
	w := &watcher{in: in, pods: map[string]*watchedPod{}}
	for _, load := range in.Workloads {
		for i := range load.Pods {
			w.pods[load.Namespace+"/"+load.Pods[i].Name] = &watchedPod{w: w,
				spec: load.Pods[i].spec, processes: map[string]*process{},
				stoppedAt: map[string]time.Time{}}
		}
	}
	return w
}

// happening notices the event: the first happening after the start.
func (w *watcher) happening(at time.Time, h *plan.Happening) {
	if h.At == 0 || !w.event.IsZero() {
		return
	}
	w.event = at
	for _, p := range w.pods { //ordered: each pod by itself
		p.wasReady = p.ready
	}
}

func (w *watcher) fact(f truth.Fact) {
	if f.Write != nil && f.Write.Resource == world.ResourcePods {
		if p := w.pods[f.Write.Namespace+"/"+f.Write.Name]; p != nil {
			p.written(&f)
		}
		return
	}
	p := w.pods[f.PodNamespace+"/"+f.PodName]
	if p != nil && f.Kind == truth.EventRecorded && f.Reason == "Killing" {
		p.stoppedAt[f.Container] = f.Time
	}
	if p != nil && f.Kind == truth.EventRecorded && f.Reason == "Evicted" && p.evicted == 0 {
		w.evictions++
		p.evicted = w.evictions
	}
	if p == nil || f.ContainerID == "" {
		return
	}
	p.observe(&f)
	p.updateReady(f.Time)
}

// written takes a change of the pod at the API server.
func (p *watchedPod) written(f *truth.Fact) {
	p.status = nil
	if after := f.Write.After.Pod; after != nil {
		p.status = &after.Status
		p.succeeded = after.Status.Phase == v1.PodSucceeded
	}
	p.updateReady(f.Time)
}

// observe takes a fact about a container.
func (p *watchedPod) observe(f *truth.Fact) {
	c := p.processes[f.ContainerID]
	if c == nil {
		c = &process{hooksRunning: map[uint64]bool{}}
		p.processes[f.ContainerID] = c
	}
	afterEvent := !p.w.event.IsZero()
	switch f.Kind {
	case truth.ContainerStarted:
		c.runs = true
		if afterEvent && p.restartsCount(f.Container) {
			p.restarts++
		}
	case truth.HandlerRequested:
		if hook := p.preStopHook(f.Container); hook != "" && strings.Contains(f.Request, hook) {
			c.hooksRunning[f.RequestNumber] = true
		}
	case truth.HandlerEnded:
		delete(c.hooksRunning, f.RequestNumber)
	case truth.StopRequested:
		if c.runs && afterEvent && c.stopAt.IsZero() {
			c.stopAt = f.Time
			p.ended = true
			p.killed = p.killed || len(c.hooksRunning) > 0 || p.sleepWasCut(f)
		}
	case truth.KillRequested:
		if afterEvent {
			p.ended, p.killed = true, true
		}
	case truth.ContainerExited:
		wasRunning := c.runs
		c.runs = false
		if wasRunning && afterEvent && f.Cause != truth.CauseSelf && f.Cause != truth.CauseStop {
			p.ended, p.killed = true, true
		}
	}
}

// restartsCount reports whether a start of the container after the event is a restart: every
// container but those that run once at the start of the pod.
func (p *watchedPod) restartsCount(name string) bool {
	return slices.ContainsFunc(containersOf(p.spec), func(c podContainer) bool {
		return c.Name == name && !c.runsOnce
	})
}

// preStopHook returns the text of a container's hook in facts; empty: it has none that they show.
func (p *watchedPod) preStopHook(name string) string {
	for _, c := range containersOf(p.spec) {
		if c.Name != name || c.Lifecycle == nil || c.Lifecycle.PreStop == nil {
			continue
		}
		if h := c.Lifecycle.PreStop; h.Exec != nil || h.HTTPGet != nil {
			return requestOf(&c, h.Exec, h.HTTPGet, nil, nil)
		}
	}
	return ""
}

// sleepWasCut reports whether SIGTERM came before the container's preStop sleep can have ended. No
// fact shows a sleep: it begins with the stop of the container.
func (p *watchedPod) sleepWasCut(f *truth.Fact) bool {
	for _, c := range containersOf(p.spec) {
		if c.Name == f.Container && c.Lifecycle != nil && c.Lifecycle.PreStop != nil &&
			c.Lifecycle.PreStop.Sleep != nil && !p.stoppedAt[c.Name].IsZero() {
			sleep := time.Duration(c.Lifecycle.PreStop.Sleep.Seconds) * time.Second
			return f.Time.Sub(p.stoppedAt[c.Name]) < sleep
		}
	}
	return false
}

// updateReady notices when the pod becomes Ready and when it no longer is. A pod is Ready while
// the API server says so of processes that really run: after a reboot its status is an old one.
func (p *watchedPod) updateReady(now time.Time) {
	ready := p.isReallyReady()
	if ready == p.ready {
		return
	}
	p.ready = ready
	if ready && p.firstReady == 0 {
		p.firstReady = now.Sub(plan.Start)
	}
	if p.w.event.IsZero() {
		return
	}
	switch {
	case !ready:
		p.lost = true
	case p.lost && p.again == 0:
		p.again = now.Sub(p.w.event)
	}
}

func (p *watchedPod) isReallyReady() bool {
	if p.status == nil {
		return false
	}
	isTrue := slices.ContainsFunc(p.status.Conditions, func(c v1.PodCondition) bool {
		return c.Type == v1.PodReady && c.Status == v1.ConditionTrue
	})
	if !isTrue {
		return false
	}
	for i := range p.status.ContainerStatuses {
		_, id, _ := strings.Cut(p.status.ContainerStatuses[i].ContainerID, "://")
		if c := p.processes[id]; c == nil || !c.runs {
			return false
		}
	}
	return len(p.status.ContainerStatuses) == len(p.spec.Containers)
}

// finish returns what became of the pods, by workload and pod.
func (w *watcher) finish() [][]podOutcome {
	var all [][]podOutcome
	for _, load := range w.in.Workloads {
		var pods []podOutcome
		for i := range load.Pods {
			p := w.pods[load.Namespace+"/"+load.Pods[i].Name]
			p.isReady = p.ready
			pods = append(pods, p.podOutcome)
		}
		all = append(all, pods)
	}
	return all
}
