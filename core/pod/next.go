package pod

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/core/manifest"
	"seedlet.dev/world"
)

// Action is what should happen to a container now.
type Action string

// The actions.
const (
	Nothing Action = "Nothing" // it is as it should be
	Wait    Action = "Wait"    // something else has to happen first
	Create  Action = "Create"
	Start   Action = "Start"
	Remove  Action = "Remove" // it can never start any more
	Ended   Action = "Ended"  // it has ended and stays ended
)

// next says what should happen to a container of the spec, if anything, in the current sandbox,
// which is ready. The time is when a Wait ends by itself; zero if it does not.
func (p *Pod) next(want *v1.Container, role Role, now time.Time) (Action, time.Time) {
	c := p.newest(want.Name)
	until := p.backingOff(want.Name)
	switch {
	case role == App && now.Before(until):
		return Wait, until
	case c == nil:
		return Create, time.Time{}
	case c.Op != 0 && !c.live() && !c.Stopping:
		return Wait, time.Time{} // it is being removed
	case c.State == Created && !p.matches(c):
		return Remove, time.Time{}
	case c.State == Created:
		return Start, time.Time{}
	case c.live():
		return Nothing, time.Time{} // what does not belong has been stopped before
	case !c.ended():
		return Wait, time.Time{} // how it ended decides, and is being asked
	case role == Ephemeral:
		return Ended, time.Time{}
	case c.SandboxID != p.current().ID && role != App:
		return Create, time.Time{} // a new sandbox is initialised from the start
	case !p.matches(c):
		return Create, time.Time{} // what has changed runs whatever the policy says
	case !p.superseded(c) && !p.restarts(c):
		return Ended, time.Time{}
	case now.Before(c.restartAt()):
		return Wait, c.restartAt()
	}
	return Create, time.Time{}
}

// syncContainers begins the next thing that a container needs: init containers and sidecars one
// after the other, then all app containers, each created and started in turn. Sidecars are kept
// running all the while.
func (p *Pod) syncContainers(env *Env, w *waits) {
	if p.betweenRounds() {
		return
	}
	spec := &p.Spec.Spec
	for i := range spec.EphemeralContainers {
		want := ephemeral(&spec.EphemeralContainers[i])
		if p.act(want, Ephemeral, env, w) {
			return
		}
	}
	initialized := p.initialized()
	for i := range spec.InitContainers {
		want := &spec.InitContainers[i]
		role, done := initRole(want), initialized || p.initDone(i)
		if done && role == Init {
			continue
		}
		if p.act(want, role, env, w) || !done || p.starting(want.Name) {
			return
		}
	}
	for i := range spec.Containers {
		want := &spec.Containers[i]
		if p.act(want, App, env, w) || p.starting(want.Name) {
			return
		}
	}
}

// starting says whether a container's postStart hook is under way: those after it wait for it.
func (p *Pod) starting(name string) bool {
	c := p.newest(name)
	return c != nil && c.State == Running && c.Stop == nil && !p.is(c).Running
}

// initialized says whether the current sandbox is past its init containers, in this round. An app
// container in it is proof enough, so that nothing runs again when the record of an init container
// has gone.
func (p *Pod) initialized() bool {
	sandbox := p.current()
	if sandbox == nil {
		return false
	}
	for i := range p.Spec.Spec.Containers {
		c := p.newest(p.Spec.Spec.Containers[i].Name)
		if c != nil && c.SandboxID == sandbox.ID && !p.superseded(c) {
			return true
		}
	}
	for i := range p.Spec.Spec.InitContainers {
		if !p.initDone(i) {
			return false
		}
	}
	return true
}

// initDone says whether what comes after init container i may go on, in the current sandbox: it
// has completed, or, if it is a sidecar, has started. One that comes after it is proof as well.
func (p *Pod) initDone(i int) bool {
	sandbox := p.current()
	inits := p.Spec.Spec.InitContainers
	for k := i; k < len(inits); k++ {
		c := p.newest(inits[k].Name)
		if c == nil || sandbox == nil || c.SandboxID != sandbox.ID || p.superseded(c) {
			continue
		}
		if k > i || initRole(&inits[k]) == Init && c.ended() && c.ExitCode == 0 ||
			initRole(&inits[k]) == Sidecar && p.is(c).Started {
			return true
		}
	}
	return false
}

// wantsSandbox says whether a container has to run for which there is no sandbox.
func (p *Pod) wantsSandbox() bool {
	for i := range p.Spec.Spec.Containers {
		c := p.newest(p.Spec.Spec.Containers[i].Name)
		if c == nil || c.State == Created || c.ended() && p.runsAgain(c) {
			return true
		}
	}
	return false
}

// act begins what a container needs, and reports whether the containers after it have to wait.
// They do not wait for one that has failed and is to be tried again later.
func (p *Pod) act(want *v1.Container, role Role, env *Env, w *waits) bool {
	if p.holdOff(want.Name, w) {
		return false
	}
	action, at := p.next(want, role, env.Out.Now())
	switch action {
	case Wait:
		w.pending(at)
	case Create:
		if p.create(want, env) {
			return true
		}
		p.holdOff(want.Name, w) // for what was found to be wrong with it
	case Start:
		c := p.newest(want.Name)
		c.Began = env.Out.Now()
		p.Op = env.Out.Ask(p.Key(), c.ID, env.Node.RuntimeTimeout,
			&runtimeapi.StartContainerRequest{ContainerId: c.ID})
		return true
	case Remove:
		p.remove(p.newest(want.Name), env, w)
	}
	return false
}

// create takes the next step on the way to a new container: its directories, its images, itself.
// It reports whether an operation has begun; waiting for an image holds up nobody else.
func (p *Pod) create(want *v1.Container, env *Env) bool {
	switch {
	case !p.envReady(want, env) || p.misconfigured(want, env):
		return false
	case !p.Dir:
		p.Op = env.Out.Ask(p.Key(), "", fsTimeout,
			&world.MakeDir{Path: p.dir(env.Node), Mode: dirPermission})
		return true
	case !p.hasLogDir(want.Name):
		p.Op = env.Out.Ask(p.Key(), want.Name, fsTimeout,
			&world.MakeDir{Path: p.logDir(env.Node) + "/" + want.Name, Mode: 0o755})
		return true
	case p.makeMessageFile(want, env):
		return true
	}
	if begun, ready := p.prepareMounts(want, env); !ready {
		return begun
	}
	images := p.images(want, env)
	if images == nil || p.rootByImage(want, images, env) {
		return false
	}
	next := p.run(want, env.Node)
	p.Making = &next
	p.Op = env.Out.Ask(p.Key(), want.Name, env.Node.RuntimeTimeout,
		&runtimeapi.CreateContainerRequest{
			PodSandboxId:  next.SandboxID,
			Config:        p.containerConfig(want, images, &next, env),
			SandboxConfig: p.sandboxConfig(env.Node, p.current().Attempt),
		})
	return true
}

// run is the next run of a container, as it is going to be made in the current sandbox.
func (p *Pod) run(want *v1.Container, node *Node) Container {
	next := Container{
		Name: want.Name, SandboxID: p.current().ID, State: Created, Hash: hashOf(want),
		Grace: p.grace(), Backoff: p.nextBackoff(want.Name, node.BackoffMax),
		Sidecar: p.sidecarNumber(want.Name), Ports: want.Ports, Round: p.Round.Number,
	}
	if want.Lifecycle != nil {
		next.PreStop = want.Lifecycle.PreStop
	}
	next.Attempt, next.Restarts = p.counts(want.Name)
	return next
}

// restartAt is when a container that has ended may run again.
func (c *Container) restartAt() time.Time { return c.end().Add(c.wait()) }

// The kubelet's numbers for restarts.
const (
	backoffFirst = 10 * time.Second
	backoffReset = 10 * time.Minute // a run longer than this starts the back-off anew
)

// wait is how long to wait after a container has ended before it is restarted.
func (c *Container) wait() time.Duration {
	if c.ranLonger(backoffReset) {
		return 0
	}
	return c.Backoff
}

// backoffAfter is the back-off that the run after c is created with: nothing for the first run,
// so that the first restart is immediate, then 10 s, doubling up to the maximum.
func backoffAfter(c *Container, maximum time.Duration) time.Duration {
	switch {
	case c == nil:
		return 0
	case c.wait() == 0:
		return min(backoffFirst, maximum)
	}
	return min(2*c.wait(), maximum)
}

func (p *Pod) hasLogDir(name string) bool {
	return slices.Contains(p.LogDirs, name)
}

// want is the container of the spec with the given name; nil if there is none.
func (p *Pod) want(name string) *v1.Container {
	if p.Spec == nil {
		return nil
	}
	return FindContainer(p.Spec, name)
}

// FindContainer is the container of a pod with the given name, of any role; nil if there is none.
func FindContainer(spec *v1.Pod, name string) *v1.Container {
	for i := range spec.Spec.InitContainers {
		if c := &spec.Spec.InitContainers[i]; c.Name == name {
			return c
		}
	}
	for i := range spec.Spec.Containers {
		if c := &spec.Spec.Containers[i]; c.Name == name {
			return c
		}
	}
	for i := range spec.Spec.EphemeralContainers {
		if c := ephemeral(&spec.Spec.EphemeralContainers[i]); c.Name == name {
			return c
		}
	}
	return nil
}

// ephemeral is an ephemeral container as a container: it has all of the fields.
func ephemeral(c *v1.EphemeralContainer) *v1.Container {
	return (*v1.Container)(&c.EphemeralContainerCommon)
}

func hashOf(want *v1.Container) string { return manifest.ContainerHash(want) }
