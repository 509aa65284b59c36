package pod

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/core/allocation"
	"seedlet.dev/core/budget"
	"seedlet.dev/core/criconfig"
	"seedlet.dev/core/manifest"
	"seedlet.dev/world"
)

// Action is the next step of the plan for one container of the spec.
type Action string

// The actions.
const (
	Nothing Action = "Nothing" // the container runs as it should
	Wait    Action = "Wait"    // another operation, or a back-off, has to end first
	Create  Action = "Create"
	Start   Action = "Start"
	Remove  Action = "Remove" // the created container does not match the spec and never starts
	Ended   Action = "Ended"  // the container has exited and is not restarted
)

// nextAction decides the next step for a container of the spec in the current sandbox, which is
// ready: whether the container is created, started, removed or restarted. The returned time is when
// a Wait ends by itself; zero if only an event ends it.
func (p *Pod) nextAction(container *v1.Container, role Role, now time.Time) (Action, time.Time) {
	c := p.LastRun(container.Name)
	until := p.removedRunBackoffEnd(container.Name)
	switch {
	case c != nil && p.isRemoved(c):
		return Ended, time.Time{}
	case role == App && now.Before(until):
		return Wait, until
	case c == nil && role == Ephemeral && p.RemovedRun(container.Name) != nil:
		return Ended, time.Time{} // its only run was removed by hand
	case c == nil:
		return Create, time.Time{}
	case c.Op != 0 && !c.isLive() && !c.Stopping:
		return Wait, time.Time{} // its removal is in flight
	case c.State == Created && (!p.matchesSpec(c) || p.isCreatedOtherwise(c)):
		return Remove, time.Time{}
	case c.State == Created:
		return Start, time.Time{}
	case c.isLive():
		return Nothing, time.Time{} // stopUnexpected has stopped those that do not match the spec
	case !c.HasKnownExit():
		return Wait, time.Time{} // the exit code decides, and its request is in flight
	case role == Ephemeral:
		return Ended, time.Time{}
	case c.SandboxID != p.CurrentSandbox().ID && role != App:
		return Create, time.Time{} // all init containers run again in a new sandbox
	case c.isStoppedAsChanged():
		return Create, time.Time{} // whatever the restart policy
	case !p.IsSuperseded(c) && !p.ShouldRestart(c):
		return Ended, time.Time{}
	case p.matchesSpec(c) && now.Before(c.restartAt()): // a change may have fixed the failure
		return Wait, c.restartAt()
	}
	return Create, time.Time{}
}

// syncContainers issues the next operation that a container needs: init containers and sidecars one
// after the other, then all app containers, each created and started in turn. Ephemeral containers
// do not wait for the others, and sidecars that have started are kept running all the while.
func (p *Pod) syncContainers(env *Env, w *wakeTimer) {
	if p.isBetweenRounds() {
		return
	}
	p.checks.beginPlan()
	spec := &p.Spec.Spec
	for i := range spec.EphemeralContainers {
		container := criconfig.EphemeralContainer(&spec.EphemeralContainers[i])
		if p.syncContainer(container, Ephemeral, env, w) {
			return
		}
	}
	initialized, inits := p.IsInitialized(), p.InitsDone()
	for i := range spec.InitContainers {
		container := &spec.InitContainers[i]
		role, done := InitRole(container), initialized || i < inits
		if done && role == Init {
			continue
		}
		if p.syncContainer(container, role, env, w) || !done || p.isPostStartPending(container.Name) {
			return
		}
	}
	for i := range spec.Containers {
		container := &spec.Containers[i]
		if p.syncContainer(container, App, env, w) || p.isPostStartPending(container.Name) {
			return
		}
	}
}

// isPostStartPending reports whether a container runs and its postStart hook has not completed. The
// containers after it wait for the hook.
func (p *Pod) isPostStartPending(name string) bool {
	c := p.NewestRun(name)
	return c != nil && c.State == Running && c.Stop == nil && !p.currentHealth(c).Running
}

// IsInitialized reports whether the init containers of the current restart round have completed in
// the current sandbox. An app container in that sandbox is proof enough, so that no init container
// runs again when its record was removed.
func (p *Pod) IsInitialized() bool {
	sandbox := p.CurrentSandbox()
	if sandbox == nil {
		return false
	}
	for i := range p.Spec.Spec.Containers {
		c := p.NewestRun(p.Spec.Spec.Containers[i].Name)
		if c != nil && c.SandboxID == sandbox.ID && !p.IsSuperseded(c) {
			return true
		}
	}
	return p.InitsDone() == len(p.Spec.Spec.InitContainers)
}

// InitsDone returns how many init containers are done in the current sandbox, so that the one after
// them may start: those before the last one that has a run, and that one itself if it has
// completed, or as a sidecar has started. It takes one pass: a pod may have many init containers.
func (p *Pod) InitsDone() int {
	sandbox, inits := p.CurrentSandbox(), p.Spec.Spec.InitContainers
	if sandbox == nil {
		return 0
	}
	for i := len(inits) - 1; i >= 0; i-- {
		c := p.NewestRun(inits[i].Name)
		if c == nil || c.SandboxID != sandbox.ID || p.IsSuperseded(c) {
			continue
		}
		if InitRole(&inits[i]) == Init && c.HasCompletedInit() ||
			InitRole(&inits[i]) == Sidecar && p.currentHealth(c).Started {
			return i + 1
		}
		return i
	}
	return 0
}

// needsSandbox reports whether some app container has to run, and therefore needs a sandbox.
func (p *Pod) needsSandbox() bool {
	for i := range p.Spec.Spec.Containers {
		c := p.LastRun(p.Spec.Spec.Containers[i].Name)
		if c == nil || c.State == Created || c.HasKnownExit() && p.needsAnotherRun(c) {
			return true
		}
	}
	return false
}

// syncContainer issues the operation that a container needs, and reports whether the containers
// after it have to wait. They do not wait for a container that has failed and backs off.
func (p *Pod) syncContainer(container *v1.Container, role Role, env *Env, w *wakeTimer) bool {
	if p.isBackingOff(container.Name, w) {
		return false
	}
	action, at := p.nextAction(container, role, env.Effects.Now())
	switch action {
	case Wait:
		w.waitUntil(at)
	case Create:
		if p.createContainer(container, env) {
			return true
		}
		p.isBackingOff(container.Name, w) // wake up for a failure that createContainer has found
	case Start:
		c := p.NewestRun(container.Name)
		c.StartIssuedAt = env.Effects.Now()
		p.Op = env.Effects.Issue(p.Key(), c.ID, env.Node.RuntimeTimeout,
			&runtimeapi.StartContainerRequest{ContainerId: c.ID})
		return true
	case Remove:
		p.removeContainer(p.NewestRun(container.Name), env, w)
	}
	return false
}

// createContainer takes the next step towards a new container: its directories and files, its
// images, its mounts, the container itself. Mounts come after the images: a sub-path may refer to
// variables, and a container that waits for its images expands none. createContainer reports
// whether it has issued an operation; other containers do not wait while this one waits for an
// image.
func (p *Pod) createContainer(container *v1.Container, env *Env) bool {
	if p.lacksDroppedObject(container, env) || !p.hasKnownEnvironment(container, env) {
		return false
	}
	if p.readEnvFiles(container, env) {
		return true
	}
	cri := p.criPod(env)
	switch {
	case p.recordMisconfiguration(container, cri, env):
		return false
	case !p.DirCreated:
		p.Op = env.Effects.Issue(p.Key(), "", fsTimeout,
			&world.MakeDir{Path: p.dir(env.Node), Mode: dirPermission})
		return true
	case p.listLogs(container.Name, env):
		return true
	case !p.hasLogDir(container.Name):
		p.Op = env.Effects.Issue(p.Key(), container.Name, fsTimeout,
			&world.MakeDir{Path: p.logDir(env.Node) + "/" + container.Name, Mode: 0o755})
		return true
	case p.createMessageFile(container, env):
		return true
	case !p.canPrepareMounts(env):
		return false
	}
	images, found := p.ensureImages(container, env)
	if !found {
		return false
	}
	if p.failsNonRootCheck(container, images.Container.User, env) {
		p.releaseImages(container.Name, env)
		return false
	}
	if issued, ready := p.prepareMounts(container, cri, env); !ready {
		return issued
	}
	p.releaseImages(container.Name, env)
	run := p.newRun(container, env.Node)
	cri.TargetID, _ = p.targetID(container.Name) // recordMisconfiguration reported an error
	config, err := cri.ContainerConfig(container, &run.Run, images)
	if err != nil { // a kept check has missed a change: everything is checked again
		p.checks = containerChecks{}
		p.recordConfigError(container, err, env)
		return false
	}
	p.Creating = &run
	noteImageUses(images, env)
	env.Effects.CountWork(p.checks.byName[container.Name].expanded +
		len(config.Envs)*budget.ExpandedVariable)
	p.Op = env.Effects.Issue(p.Key(), container.Name, env.Node.RuntimeTimeout,
		&runtimeapi.CreateContainerRequest{
			PodSandboxId:  run.SandboxID,
			Config:        config,
			SandboxConfig: p.SandboxConfig(env),
		})
	return true
}

// newRun returns the next run of a container, to be created in the current sandbox.
func (p *Pod) newRun(container *v1.Container, node *Node) Container {
	run := Container{
		Name: container.Name, SandboxID: p.CurrentSandbox().ID, State: Created,
		Run: criconfig.Run{
			Hash: containerHash(container), Grace: p.GracePeriod(),
			Backoff: p.nextBackoff(container.Name, node.BackoffMax), Ports: container.Ports,
			SidecarOrder: p.sidecarOrder(container.Name), Round: p.Round.Number,
		},
	}
	amounts := allocation.AmountsOf(p.Spec, container)
	run.Resources, run.Actuation.Last = &amounts, &amounts
	if container.Lifecycle != nil {
		run.PreStop = container.Lifecycle.PreStop
	}
	run.Attempt, run.Restarts = p.nextRunNumbers(container.Name)
	return run
}

// restartAt returns when a container that has exited may be restarted.
func (c *Container) restartAt() time.Time { return c.endTime().Add(c.RestartBackoff()) }

// The kubelet's numbers for restarts.
const (
	backoffInitial = 10 * time.Second
	backoffReset   = 10 * time.Minute // a run longer than this resets the back-off
)

// RestartBackoff returns how long a restart waits after the container has exited.
func (c *Container) RestartBackoff() time.Duration {
	if c.ranLongerThan(backoffReset) {
		return 0
	}
	return c.Backoff
}

// backoffAfter returns the back-off that the run after c is created with: none for the first run,
// so that the first restart is immediate, then 10 s, doubling up to the maximum.
func backoffAfter(c *Container, maximum time.Duration) time.Duration {
	switch {
	case c == nil:
		return 0
	case c.RestartBackoff() == 0:
		return min(backoffInitial, maximum)
	}
	return min(2*c.RestartBackoff(), maximum)
}

func (p *Pod) hasLogDir(name string) bool {
	return slices.Contains(p.LogDirs, name)
}

func containerHash(container *v1.Container) string { return manifest.ContainerHash(container) }
