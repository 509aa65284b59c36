package pod

import (
	"slices"
	"time"

	"seedlet.dev/core/cgroup"
	"seedlet.dev/core/hostfile"
	"seedlet.dev/core/image"
	"seedlet.dev/core/object"
	"seedlet.dev/core/op"
	"seedlet.dev/core/runtime"
	"seedlet.dev/core/timer"
	"seedlet.dev/core/userns"
	"seedlet.dev/world"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Node is what a pod's plan needs to know of the node it is on. It is the same for all pods.
type Node struct {
	Name           string        `json:"name"`
	PodsDir        string        `json:"podsDir"`
	LogsDir        string        `json:"logsDir"`
	LinksDir       string        `json:"linksDir"`
	RuntimeTimeout time.Duration `json:"runtimeTimeout"` // of one request to the runtime
	BackoffMax     time.Duration `json:"backoffMax"`     // between restarts of a container
	CPUs           int           `json:"cpus"`
	IPs            []string      `json:"ips,omitempty"` // the one to show first
	Seed           uint64        `json:"seed"`          // of what is drawn for containers
	MemoryBytes    int64         `json:"memoryBytes"`
	DNS            DNS           `json:"dns"`
	Resolv         hostfile.File `json:"resolv"` // the node's own resolv.conf
	Hosts          hostfile.File `json:"hosts"`  // the node's own /etc/hosts
	// RecursiveReadOnly says that the runtime can make mounts read-only all the way down.
	RecursiveReadOnly bool `json:"recursiveReadOnly"`
	// RestartsAll says that an exit may restart all containers of a pod, by a rule (KEP-5532).
	RestartsAll bool `json:"restartsAll"`

	Cgroups cgroup.Layout `json:"cgroups"`
	IDs     userns.Layout `json:"ids"` // of pods that do not have the host's
}

// Env is what a plan is a function of, besides the pod.
type Env struct {
	Node      *Node
	Out       *op.Out
	Images    *image.Store
	Objects   *object.Store // what is watched at the API server; nil if there is none
	Runtime   *runtime.Runtime
	Touch     func(timer.Key) // another component has something to plan
	NameTaken bool            // another pod of the same full name still runs
	// NotReady is why nothing can be made now, NetworkNotReady why no sandbox that has a network
	// of its own; empty if it can. What runs stays, and what is to end ends.
	NotReady, NetworkNotReady string
	DirTaken                  bool // housekeeping is removing a directory or cgroup of this UID
	// TakenIDs are the ranges of ids that pods but the one of a UID have. Those that only a
	// sandbox has can be left out.
	TakenIDs func(uid string, sandboxes bool) []userns.Range
}

const (
	fsTimeout     = 2 * time.Minute
	deadKept      = 1 // runs of a container that are kept besides the newest
	stageStepsMax = 4 // a plan may go through all stages, and back once
)

// Plan begins what should be done about the pod now, and says when it wants to be called again
// even if nothing happens; the zero time means never. It can be called at any time, any number
// of times: what is in flight is a fact and is not begun twice.
func (p *Pod) Plan(env *Env) time.Time {
	w := waits{now: env.Out.Now()}
	p.watch(env)
	p.recallRound()
	for range stageStepsMax {
		before := p.Stage
		switch p.Stage {
		case Syncing:
			p.sync(env, &w)
		case Terminating:
			p.terminate(env, &w)
		case Terminated:
			p.finish(env, &w)
		}
		if p.Stage == before {
			break
		}
		env.Out.Log(world.LevelDebug, "pod stage", "pod", p.FullName(), "uid", p.UID,
			"stage", string(p.Stage), "reason", p.Kill.Reason)
	}
	p.watch(env) // no more, if it has ended
	p.remind(env, &w)
	p.note(env)
	return w.until
}

// waits collects what a plan waits for.
type waits struct {
	now   time.Time
	until time.Time
}

// pending reports whether a time is still to come, and remembers it as one to wake up at.
func (w *waits) pending(at time.Time) bool {
	if !w.now.Before(at) {
		return false
	}
	w.until = timer.Soonest(w.until, at)
	return true
}

// settled reports whether the pod may act on what it knows: everything it knows was asked for
// after its last operation ended, and nothing that makes things is in flight.
func (p *Pod) settled() bool { return p.Observed && p.Stale.IsZero() && p.Op == 0 }

// sync makes what the spec demands run.
func (p *Pod) sync(env *Env, w *waits) {
	if !p.Observed || p.Spec == nil || !p.recall(env, w) {
		return
	}
	p.inspect(env, w)
	p.takeRound(env)
	p.tend(env, w)
	if !p.settled() || p.holdOff("", w) {
		return
	}
	if p.completed() {
		p.end(Kill{Reason: "Completed", Phase: p.outcome(), Grace: p.grace()}, env.Out.Now())
		return
	}
	if p.overdue(w) && !p.awaitInspections() { // it may have come to its end before
		p.event(env, "", normal, reasonDeadline, messageDeadline)
		p.end(Kill{Reason: reasonDeadline, Message: messageDeadline, Phase: v1.PodFailed,
			Grace: p.grace()}, env.Out.Now())
		return
	}
	sandbox := p.current()
	if sandbox != nil && sandbox.Ready && !p.idsKnown(sandbox) {
		return
	}
	if sandbox == nil || !sandbox.Ready || !p.idsFit(sandbox, env) {
		p.renewSandbox(env, w)
		return
	}
	if p.stopForeign(sandbox, env, w) {
		return
	}
	p.removeStrays(env, w)
	p.releaseUnwanted(env)
	if p.setCgroup(p.cgroupPath(sandbox, &env.Node.Cgroups), sandbox.Attempt, env) || p.evict(env) {
		return
	}
	if p.syncVolumes(env, w) && !p.holdRuntime(env, false) {
		p.syncContainers(env, w)
	}
	p.trim(env, w)
}

// tend looks after the containers that run. It waits for nothing else: a container is asked how it
// is while another one is being made.
func (p *Pod) tend(env *Env, w *waits) {
	p.postStarts(env, w)
	p.probes(env, w)
	p.stopAiling(env, w)
	p.keep(env, w)
	p.endRounds(env, w)
}

const (
	reasonDeadline  = "DeadlineExceeded"
	messageDeadline = "Pod was active on the node longer than the specified deadline"
)

// overdue says whether the pod has been active for longer than it may be.
func (p *Pod) overdue(w *waits) bool {
	limit := p.Spec.Spec.ActiveDeadlineSeconds
	return limit != nil && !w.pending(p.Seen.Add(seconds(*limit)))
}

// removeStrays removes containers that were never started and never will be.
func (p *Pod) removeStrays(env *Env, w *waits) {
	for i := range p.Containers {
		if c := &p.Containers[i]; p.stray(c) {
			p.remove(c, env, w)
		}
	}
}

// renewSandbox makes a sandbox when there is none that is ready. What is left in the old ones is
// stopped first, and their network is torn down, so that two never run side by side. Whether
// anything is to run at all depends on how everything has ended.
func (p *Pod) renewSandbox(env *Env, w *waits) {
	if p.stopAll(env, w) || p.awaitInspections() || p.stopSandboxes(env, w) || !p.wantsSandbox() {
		return
	}
	p.holdName(env)
	if env.NameTaken || env.DirTaken || !p.nameable(env) || p.holdRuntime(env, true) {
		return
	}
	var attempt uint32
	if last := p.current(); last != nil {
		attempt = last.Attempt + 1
	}
	handler, ok := p.handler(env)
	if !ok || !p.takeIDs(handler, env, w) ||
		p.setCgroup(p.cgroupPath(nil, &env.Node.Cgroups), attempt, env) {
		return
	}
	p.tellSandbox(env)
	p.Attempt = attempt
	p.LogDirs, p.Dir = nil, false // whoever removed the sandbox may have removed them as well
	p.MessageFiles = nil
	p.Storage.renew()
	p.Op = env.Out.Ask(p.Key(), "", env.Node.RuntimeTimeout, &runtimeapi.RunPodSandboxRequest{
		Config: p.sandboxConfig(env.Node, attempt), RuntimeHandler: handler,
	})
	p.renewTokens(env, w) // they take a while as well
}

// holdName remembers, and tells once, that the pod waits for another one of its name to end.
func (p *Pod) holdName(env *Env) {
	if env.NameTaken && !p.NameWait {
		env.Out.Log(world.LevelWarning, "another pod of the same name is there: waiting for its "+
			"end", "pod", p.FullName(), "uid", p.UID)
	}
	p.NameWait = env.NameTaken
}

// holdRuntime reports whether the pod has to wait for the runtime, and remembers why. The network
// only matters for a new sandbox.
func (p *Pod) holdRuntime(env *Env, sandbox bool) bool {
	was := p.RuntimeWait
	p.RuntimeWait = env.NotReady
	if p.RuntimeWait == "" && sandbox && !p.Spec.Spec.HostNetwork {
		p.RuntimeWait = env.NetworkNotReady
		if p.RuntimeWait != "" && p.RuntimeWait != was {
			p.event(env, "", warning, "NetworkNotReady", "%s", p.RuntimeWait)
		}
	}
	return p.RuntimeWait != ""
}

// stopForeign stops running containers that do not belong: those of an older sandbox, those the
// spec does not name, those made from another spec, and those the runtime has lost track of. It
// reports whether there are any.
func (p *Pod) stopForeign(sandbox *Sandbox, env *Env, w *waits) bool {
	found := false
	for i := range p.Containers {
		c := &p.Containers[i]
		belongs := c.State == Running && c.SandboxID == sandbox.ID && p.matches(c)
		if !c.live() || belongs {
			continue
		}
		found = true
		reason := ""
		switch {
		case c.State == Unknown:
			reason = stopLost
		case p.want(c.Name) != nil && !p.matches(c):
			reason = stopChanged
		}
		p.stop(c, p.grace(), reason, env, w)
	}
	return found
}

// matches says whether a container was made from what the spec says now.
func (p *Pod) matches(c *Container) bool {
	want := p.want(c.Name)
	return want != nil && (c.Hash == "" || c.Hash == hashOf(want))
}

// terminate stops everything and then says so. A container that is being made meanwhile is
// waited for, and stopped as soon as it is known.
func (p *Pod) terminate(env *Env, w *waits) {
	if !p.Observed {
		return
	}
	p.releaseImages(env)
	p.inspect(env, w)
	p.refreshVolumes(env, w)
	p.keep(env, w)
	if p.stopAll(env, w) || !p.settled() || !p.Gone && p.awaitInspections() {
		return // how a container of a pod that nobody wants has ended decides nothing
	}
	if p.stopSandboxes(env, w) || !p.EndKept() && p.Record.Failures == 0 {
		return // others wait for its room even if the disk is full
	}
	p.Stage, p.IDs = Terminated, userns.Range{}
}

// finish removes what is left of a pod that nobody wants: containers, then directories and cgroups,
// then sandboxes. The sandbox goes last, because its record is what tells an agent that was killed
// halfway that there is something left to remove. What the runtime does not remove although it does
// not run is tried on and on, but holds up nobody.
func (p *Pod) finish(env *Env, w *waits) {
	if p.live() || !p.sandboxesDown() {
		p.Stage = Terminating // an operation of unknown outcome has taken effect after all
		p.Storage.Release, p.Cleared = 0, false
		return
	}
	p.inspect(env, w)
	if !p.Gone {
		p.keep(env, w)
		if p.settled() && !p.holdOff("", w) && !p.releaseVolumes(env) {
			p.trim(env, w)
			p.removeCgroups(env)
		}
		return
	}
	if !p.settled() || p.Record.Op != 0 || p.holdOff("", w) {
		return
	}
	for i := range p.Containers {
		p.remove(&p.Containers[i], env, w)
	}
	if p.removing() || p.releaseVolumes(env) || p.removeDirs(env) || p.removeCgroups(env) {
		return
	}
	if len(p.Containers) == 0 {
		for i := range p.Sandboxes {
			p.removeSandbox(&p.Sandboxes[i], env, w)
		}
	}
	p.Cleared = p.Cleared || p.recordsKept()
	p.Forgotten = len(p.Sandboxes) == 0 && len(p.Containers) == 0
}

// removalTries is how often the runtime is asked to remove something, for half a minute, before
// nobody waits for that any more. Some never does: it has lost what its own record is about.
const removalTries = 6

// removing says whether there are containers of which it can be hoped that they are removed soon.
func (p *Pod) removing() bool {
	return slices.ContainsFunc(p.Containers, func(c Container) bool {
		return c.Failures < removalTries
	})
}

// recordsKept says whether the runtime has refused for long to remove what it has of the pod.
func (p *Pod) recordsKept() bool {
	return slices.ContainsFunc(p.Containers, func(c Container) bool {
		return c.Failures >= removalTries
	}) || slices.ContainsFunc(p.Sandboxes, func(s Sandbox) bool {
		return s.Failures >= removalTries
	})
}

// removeDirs removes the pod's directories, and reports whether there is still something to do.
func (p *Pod) removeDirs(env *Env) bool {
	switch {
	case !p.LogsGone:
		p.Op = env.Out.Ask(p.Key(), "logs", fsTimeout,
			&world.RemoveTree{Path: p.logDir(env.Node)})
	case !p.DirGone:
		p.Op = env.Out.Ask(p.Key(), "pod", fsTimeout, &world.RemoveTree{Path: p.dir(env.Node)})
	default:
		return false
	}
	return true
}

// stopSandboxes stops every sandbox that is not down yet, and reports whether there is one.
func (p *Pod) stopSandboxes(env *Env, w *waits) bool {
	for i := range p.Sandboxes {
		p.stopSandbox(&p.Sandboxes[i], env, w)
	}
	return !p.sandboxesDown()
}

func (p *Pod) stopSandbox(s *Sandbox, env *Env, w *waits) {
	if s.down() || s.Op != 0 || w.pending(s.NotBefore) {
		return
	}
	s.Op = env.Out.Ask(p.Key(), s.ID, env.Node.RuntimeTimeout,
		&runtimeapi.StopPodSandboxRequest{PodSandboxId: s.ID})
}

func (p *Pod) sandboxesDown() bool {
	for i := range p.Sandboxes {
		if !p.Sandboxes[i].down() {
			return false
		}
	}
	return true
}

// remove removes a container that does not run.
func (p *Pod) remove(c *Container, env *Env, w *waits) {
	if c.live() {
		panic("pod: removal of a container that may run: " + c.ID)
	}
	if c.Op != 0 && c.Stopping {
		env.Out.Forget(c.Op) // it has exited: what the stop has to say does not matter
		c.Op = 0
	}
	if c.Op != 0 || w.pending(c.NotBefore) || p.clear(c, env) {
		return
	}
	c.Stopping = false
	c.Op = env.Out.Ask(p.Key(), c.ID, env.Node.RuntimeTimeout,
		&runtimeapi.RemoveContainerRequest{ContainerId: c.ID})
}

func (p *Pod) removeSandbox(s *Sandbox, env *Env, w *waits) {
	if s.Op != 0 || w.pending(s.NotBefore) {
		return
	}
	s.Op = env.Out.Ask(p.Key(), s.ID, env.Node.RuntimeTimeout,
		&runtimeapi.RemovePodSandboxRequest{PodSandboxId: s.ID})
}

// trim removes records that nobody needs: all runs of a container but the newest and the one
// before it, and sandboxes before the current one that hold no container.
func (p *Pod) trim(env *Env, w *waits) {
	name, newer := "", 0
	for i := len(p.Containers) - 1; i >= 0; i-- {
		c := &p.Containers[i]
		if p.stray(c) {
			continue
		}
		if c.Name == name {
			newer++
		} else {
			name, newer = c.Name, 0
		}
		if newer > deadKept && !c.live() {
			p.remove(c, env, w)
		}
	}
	for i := range len(p.Sandboxes) - 1 {
		switch s := &p.Sandboxes[i]; {
		case p.uses(s):
		case s.down():
			p.removeSandbox(s, env, w)
		default:
			p.stopSandbox(s, env, w)
		}
	}
}

func (p *Pod) uses(s *Sandbox) bool {
	for i := range p.Containers {
		if p.Containers[i].SandboxID == s.ID {
			return true
		}
	}
	return false
}
