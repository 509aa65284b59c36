package marks

import (
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/core/manifest"
	"seedlet.dev/core/mirror"
	"seedlet.dev/sim/plan"
	"seedlet.dev/sim/truth"
	"seedlet.dev/sim/wire"
	"seedlet.dev/world"
)

// Port is a simulated port.
type Port interface {
	InFlight() []*wire.Call
}

// Watcher watches one run. The zero Watcher with its ports watches a run in which nothing has
// happened yet. It is for use by one goroutine.
type Watcher struct {
	ports   []Port
	reached Set

	pods       map[string]*pod // by UID
	containers map[string]*container
	named      map[string][]*pod // by namespace and name, in order of appearance

	current moment     // the moment that is looked at
	fact    truth.Fact // of that moment; kept here because the conditions take its address

	agentDown           bool
	agentStartedAt      time.Time
	runtimeDownUntil    time.Time
	apiUnreachableUntil time.Time
	agentPausedUntil    time.Time

	shutdown shutdown
	groups   []int32 // of a shutdown: from which priority on each is

	underPressure bool // the Node has a condition that forbids resizes of pods with requests
}

// pod is what the marks need to know of a pod.
type pod struct {
	uid        string
	spec       *v1.Pod // the newest one; nil: it was never desired
	desired    bool
	kept       bool // by a finalizer, after its deletion
	evicted    bool
	preempted  bool // an Event says so
	resize     resizeStage
	reported   bool // a status at the API server says that the evicted pod has failed
	containers []*container
	sandboxes  int
}

// container is what the marks need to know of a container.
type container struct {
	pod      *pod
	attempt  uint32
	running  bool
	stopping bool // TERM was sent
	// Of the newest spec of the pod: what kind of container it is, and the requests of its hooks.
	sidecar, init      bool
	preStop, postStart string
	preStops           int // preStop hooks in it that have not ended
	postStarts         int
}

// NewWatcher returns the watcher of a run.
func NewWatcher() *Watcher {
	return &Watcher{pods: map[string]*pod{}, containers: map[string]*container{},
		named: map[string][]*pod{}, shutdown: noShutdown}
}

// Connect sets the ports of the run, before it begins.
func (w *Watcher) Connect(ports ...Port) { w.ports = ports }

// Reached returns the marks that the run has reached so far.
func (w *Watcher) Reached() Set { return w.reached }

// moment is what the conditions of places are about.
type moment struct {
	now       time.Time
	fact      *truth.Fact // nil: the moment is not a fact
	pod       *pod        // nil: it is about none
	container *container  // nil: it is about none
}

// check reaches the places of a trigger whose condition holds.
func (w *Watcher) check(on trigger, m *moment) {
	for _, id := range placesOn[on] {
		if !w.reached.Has(id) && places[id].holds(w, m) {
			w.reached.Add(id)
		}
	}
}

// Fact observes a fact of the simulated world.
func (w *Watcher) Fact(f truth.Fact) {
	w.fact = f
	m := &w.current
	*m = moment{now: f.Time, fact: &w.fact, pod: w.pods[f.PodUID],
		container: w.containers[f.ContainerID]}
	if m.pod == nil && f.PodUID != "" {
		m.pod = w.podOf(f.PodUID, f.PodNamespace+"/"+f.PodName)
	}
	if f.Kind == truth.ContainerCreated {
		m.container = newContainer(m.pod, m.fact)
		w.containers[f.ContainerID] = m.container
		m.pod.containers = append(m.pod.containers, m.container)
	}
	if f.Write != nil {
		w.noteWrite(m)
	}
	w.check(trigger(f.Kind), m)
	w.noteShutdown(m)
	w.noteResize(m)
	m.noteEviction()
	switch {
	case f.Kind == truth.SandboxCreated:
		m.pod.sandboxes++
	case f.Kind == truth.SandboxRemoved:
		m.pod.sandboxes--
	case f.Kind == truth.SandboxStopped && f.Cause == truth.CauseKilled:
		w.reachInFlight(sandboxKilled, f.PodUID)
	case m.container != nil:
		w.noteContainer(m.container, m.fact)
	}
}

// noteContainer updates a container with a fact about it.
func (w *Watcher) noteContainer(c *container, f *truth.Fact) {
	by := 1
	switch f.Kind {
	case truth.ContainerStarted:
		c.running = true
	case truth.StopRequested:
		c.stopping = true
	case truth.ContainerExited:
		c.running = false
		if f.Cause == truth.CauseKilled {
			w.reachInFlight(containerKilled, f.PodUID)
		}
	case truth.ContainerRemoved:
		delete(w.containers, f.ContainerID)
		c.pod.containers = slices.DeleteFunc(c.pod.containers, func(o *container) bool {
			return o == c
		})
	case truth.HandlerEnded:
		by = -1
		fallthrough
	case truth.HandlerRequested:
		if c.isPreStop(f.Request) {
			c.preStops += by
		} else if c.isPostStart(f.Request) {
			c.postStarts += by
		}
	}
}

func (c *container) isPreStop(request string) bool {
	return c.preStop != "" && strings.HasSuffix(request, c.preStop)
}

func (c *container) isPostStart(request string) bool {
	return c.postStart != "" && strings.HasSuffix(request, c.postStart)
}

// newContainer returns the container that a fact creates.
func newContainer(p *pod, f *truth.Fact) *container {
	c := &container{pod: p, attempt: f.Attempt}
	if p.spec == nil {
		return c
	}
	for i := range p.spec.Spec.InitContainers {
		if s := &p.spec.Spec.InitContainers[i]; s.Name == f.Container {
			c.sidecar = s.RestartPolicy != nil && *s.RestartPolicy == v1.ContainerRestartPolicyAlways
			c.init = !c.sidecar
			c.noteHooks(s)
		}
	}
	for i := range p.spec.Spec.Containers {
		if s := &p.spec.Spec.Containers[i]; s.Name == f.Container {
			c.noteHooks(s)
		}
	}
	return c
}

func (c *container) noteHooks(spec *v1.Container) {
	if hooks := spec.Lifecycle; hooks != nil {
		c.preStop, c.postStart = hookRequest(hooks.PreStop), hookRequest(hooks.PostStart)
	}
}

// hookRequest returns how the requests of a hook end, as facts have them; empty for a hook that no
// fact shows.
func hookRequest(h *v1.LifecycleHandler) string {
	switch {
	case h == nil:
	case h.Exec != nil:
		return "exec " + strings.Join(h.Exec.Command, " ")
	case h.HTTPGet != nil:
		return "/" + strings.TrimPrefix(h.HTTPGet.Path, "/")
	}
	return ""
}

func (w *Watcher) podOf(uid, fullName string) *pod {
	p := w.pods[uid]
	if p == nil {
		p = &pod{uid: uid}
		w.pods[uid] = p
		w.named[fullName] = append(w.named[fullName], p)
	}
	return p
}

// noteWrite sets the pod of a moment that is a change of a pod at the API server. A mirror is that
// of its static pod.
func (w *Watcher) noteWrite(m *moment) {
	object := m.fact.Write.After.Pod
	if object == nil {
		object = m.fact.Write.Before.Pod
	}
	if object == nil {
		return
	}
	uid := string(object.UID)
	if mirror.IsMirror(object) {
		uid = mirror.StaticUID(object)
	}
	if m.pod = w.pods[uid]; m.pod != nil {
		m.pod.kept = object.DeletionTimestamp != nil && len(object.Finalizers) > 0
	}
}

// PodDesired observes that a pod is desired, as oracle.Set.PodDesired does.
func (w *Watcher) PodDesired(now time.Time, spec *v1.Pod) {
	p := w.podOf(string(spec.UID), spec.Namespace+"/"+spec.Name)
	p.spec = spec
	w.check(podDesired, &moment{now: now, pod: p})
	p.desired = true
}

// PodNoLongerDesired observes that a pod is no longer desired.
func (w *Watcher) PodNoLongerDesired(now time.Time, uid string) {
	p := w.pods[uid]
	if p == nil {
		return
	}
	w.check(podNoLongerDesired, &moment{now: now, pod: p})
	p.desired = false
}

// AgentStarted observes the start of an incarnation of the agent.
func (w *Watcher) AgentStarted(now time.Time) {
	w.check(agentStarted, &moment{now: now})
	w.agentDown, w.agentStartedAt = false, now
}

// AgentKilled observes the end of an incarnation of the agent.
func (w *Watcher) AgentKilled() { w.agentDown, w.agentPausedUntil = true, time.Time{} }

// Happens observes a deed of the plan, just before it is carried out.
func (w *Watcher) Happens(now time.Time, deed plan.Deed) {
	m := &moment{now: now}
	switch d := deed.(type) {
	case *plan.AgentKill:
		if !w.agentDown {
			w.check(agentIsKilled, m)
			w.reachInFlight(agentKilled, "")
		}
	case *plan.Reboot:
		w.check(machineReboots, m)
		w.reachInFlight(machineRebooted, "")
	case *plan.RuntimeRestart:
		w.check(runtimeRestarts, m)
		w.reachInFlight(runtimeRestarted, "")
		w.runtimeDownUntil = now.Add(time.Duration(d.Down))
	case *plan.FaultWindow:
		w.windowOpens(m, d)
	case *plan.BusLoss:
		w.check(busIsLost, m)
	case *plan.Act:
		if d.Verb == plan.VerbDate {
			w.check(dateChanges, m)
		}
	}
}

// windowOpens observes the faults of the agent and of a whole port.
func (w *Watcher) windowOpens(m *moment, d *plan.FaultWindow) {
	switch d.Class {
	case plan.FaultAPIDown, plan.FaultAPIPartition:
		w.check(apiBecomesUnreachable, m)
		w.reachInFlight(apiUnreachable, "")
		w.apiUnreachableUntil = m.now.Add(time.Duration(d.For))
	case plan.FaultNetworkNotReady:
		w.check(networkFails, m)
	case plan.FaultAgentStalls:
		if until := m.now.Add(time.Duration(d.For)); !w.agentDown && until.After(w.agentPausedUntil) {
			w.check(agentIsPaused, m)
			w.agentPausedUntil = until
		}
	case plan.FaultWatchGap:
		w.check(watchesBreak, m)
		w.reachInFlight(watchesBroken, "")
	}
}

// isInFlight reports whether a call about a pod is in flight for which a condition, if any, holds.
func (w *Watcher) isInFlight(name string, p *pod, is func(*wire.Call) bool) bool {
	return w.anyInFlight(func(c *wire.Call) bool {
		return c.Name == name && (p == nil || c.Effect.Pod == p.uid) && (is == nil || is(c))
	})
}

func (w *Watcher) anyInFlight(is func(*wire.Call) bool) bool {
	for _, port := range w.ports {
		if slices.ContainsFunc(port.InFlight(), is) {
			return true
		}
	}
	return false
}

// ofContainer returns whether a call is about the container of a fact.
func (m *moment) ofContainer(c *wire.Call) bool {
	switch request := c.Effect.Body.(type) {
	case *runtimeapi.StartContainerRequest:
		return request.ContainerId == m.fact.ContainerID
	case *runtimeapi.StopContainerRequest:
		return request.ContainerId == m.fact.ContainerID
	case *runtimeapi.ExecSyncRequest:
		return request.ContainerId == m.fact.ContainerID
	}
	return false
}

// isImageOf returns whether a call pulls an image of a pod.
func (p *pod) isImageOf(c *wire.Call) bool {
	pull, isPull := c.Effect.Body.(*runtimeapi.PullImageRequest)
	uses := func(s v1.Container) bool { return isPull && s.Image == pull.Image.GetImage() }
	return p.spec != nil && (slices.ContainsFunc(p.spec.Spec.Containers, uses) ||
		slices.ContainsFunc(p.spec.Spec.InitContainers, uses))
}

// any reports whether a container of a pod is as described.
func (p *pod) any(is func(*container) bool) bool {
	return p != nil && slices.ContainsFunc(p.containers, is)
}

// anyOther reports whether another pod of the name of a pod is as described.
func (w *Watcher) anyOther(p *pod, is func(*pod) bool) bool {
	if p.spec == nil {
		return false
	}
	return slices.ContainsFunc(w.named[p.spec.Namespace+"/"+p.spec.Name], func(o *pod) bool {
		return o != p && is(o)
	})
}

// anyPod reports whether any pod is as described.
func (w *Watcher) anyPod(is func(*pod) bool) bool {
	for _, p := range w.pods { //ordered: whether there is one
		if is(p) {
			return true
		}
	}
	return false
}

func isRunning(c *container) bool     { return c.running }
func isStopping(c *container) bool    { return c.running && c.stopping }
func inPreStop(c *container) bool     { return c.preStops > 0 }
func inPostStart(c *container) bool   { return c.postStarts > 0 }
func isRunningInit(c *container) bool { return c.running && c.init }

// isEnding reports whether a pod that is no longer desired still has something on the node.
func (p *pod) isEnding() bool { return !p.desired && p.sandboxes > 0 }

func (p *pod) isStatic() bool {
	return p.spec != nil && p.spec.Annotations[manifest.ConfigSourceAnnotation] != ""
}

// isStatusPatch returns whether a call patches the status of a pod.
func isStatusPatch(c *wire.Call) bool {
	patch, isPatch := c.Effect.Body.(*world.PatchObject)
	return isPatch && patch.Resource == world.ResourcePods && patch.Status
}
