package runtime

import (
	"slices"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/sim/truth"
)

// Container is the true state of one container.
type Container struct {
	ID, SandboxID                 string
	PodUID, PodNamespace, PodName string
	Name                          string // in the pod's spec
	Attempt                       uint32
	State                         runtimeapi.ContainerState
	CreatedAt                     time.Time
	StartedAt                     time.Time // zero: never started
	FinishedAt                    time.Time // zero: not finished
	ExitCode                      int32
	Reason                        string // of the exit, as the runtime reports it
}

// Short names of the container states.
const (
	created = runtimeapi.ContainerState_CONTAINER_CREATED
	running = runtimeapi.ContainerState_CONTAINER_RUNNING
	exited  = runtimeapi.ContainerState_CONTAINER_EXITED
)

type container struct {
	Container
	config       *runtimeapi.ContainerConfig
	imageID      string
	user         string
	mounts       []string // references of mounted images
	logPath      string
	output       output
	updated      *runtimeapi.LinuxContainerResources // nil: those of config
	reservedName string                              // reserved until the container is removed
	skews        clockSkews
	stateUnknown bool // the runtime reports CONTAINER_UNKNOWN

	withoutResources bool // the runtime does not report them, as containerd 1.6

	load               Load             // of its process, as far as its script has set it
	layer              map[string]int64 // the sizes of the files in its writable layer
	starting, removing bool             // a call is in progress on it
	removed            bool             // from the runtime
	script             Script
	termSent, killSent bool
	killDelay          time.Duration
	exitNoticeDelay    time.Duration // from the end of the process until the runtime notices
	onExit             []func()
	pendingRequests    []*pendingRequest // its process has not replied yet

	cachedListItem *runtimeapi.Container               // nil after a change
	cachedStatus   *runtimeapi.ContainerStatusResponse // nil after a change
}

type podContainer struct{ podUID, container string }

// Containers returns the true state of all containers, sorted by ID.
func (r *Runtime) Containers() []Container {
	all := make([]Container, len(r.containerOrder))
	for i, c := range r.containerOrder {
		all[i] = c.Container
	}
	return all
}

func (c *container) canStart() bool { return c.State == created && !c.starting && !c.removing }

// startProcess starts the process of a container.
func (r *Runtime) startProcess(c *container) {
	key := podContainer{c.PodUID, c.Name}
	c.script = r.opts.Behaviour(Instance{
		PodUID: c.PodUID, PodNamespace: c.PodNamespace, PodName: c.PodName,
		Container: c.Name, Attempt: c.Attempt, Starts: r.starts[key],
	})
	r.starts[key]++
	r.enterCgroup(r.sandboxes[c.SandboxID])
	c.State, c.StartedAt, c.starting = running, r.now(), false
	c.skews.started = r.skew
	r.invalidate(c)
	r.openFiles(c)
	r.scheduleWrites(c)
	r.scheduleLoads(c)
	r.recordFact(c, truth.Fact{Kind: truth.ContainerStarted, Bytes: c.memoryUsage()})
	r.emitEvent(c.ID, c.SandboxID, eventStarted)
	if c.script.RunsFor > 0 {
		r.after(c.script.RunsFor, func() { r.exitByItself(c) })
	}
}

func (r *Runtime) exitByItself(c *container) {
	if c.script.OOM {
		r.exit(c, exitCodeKill, truth.CauseOOM)
		return
	}
	r.exit(c, c.script.ExitCode, truth.CauseSelf)
}

// term sends TERM. containerd sends it once to a container, however often it is requested to stop
// the container.
func (r *Runtime) term(c *container) {
	if c.termSent {
		return
	}
	c.termSent = true
	if c.script.IgnoresTerm {
		return
	}
	code := int32(exitCodeTerm)
	if c.script.HandlesTerm {
		code = c.script.StopExitCode
	}
	r.after(c.script.StopDelay, func() { r.exit(c, code, truth.CauseStop) })
}

// kill sends KILL.
func (r *Runtime) kill(c *container, cause string) {
	if c.State != running || c.killSent {
		return
	}
	c.killSent = true
	r.recordFact(c, truth.Fact{Kind: truth.KillRequested, Cause: cause})
	r.after(c.killDelay, func() { r.exit(c, exitCodeKill, cause) })
}

// exit ends the process of a container. Only the first exit has an effect.
func (r *Runtime) exit(c *container, code int32, cause string) {
	if c.State != running {
		return
	}
	// The kernel dates the end and the runtime dates the start, so a short run may end before its
	// start.
	c.State, c.FinishedAt, c.ExitCode = exited, r.now().Add(-c.exitNoticeDelay), code
	c.Reason, c.skews.finished = reasonOf(code, cause), r.skew
	if c.stateUnknown && isRequestedExit(cause) {
		r.recoverContainerState(c)
	}
	r.invalidate(c)
	message, logEnd := r.closeFiles(c, cause == truth.CauseSelf)
	r.recordFact(c, truth.Fact{Kind: truth.ContainerExited, ExitCode: code, Cause: cause,
		Message: message, LogTail: logEnd})
	if !c.stateUnknown {
		r.emitEvent(c.ID, c.SandboxID, eventStopped)
	}
	for len(c.pendingRequests) > 0 {
		c.pendingRequests[0].finish(truth.ReplyNone)
	}
	waiting := c.onExit
	c.onExit = nil
	for _, do := range waiting {
		do()
	}
}

// failStart moves a container to the exited state without a run.
func (r *Runtime) failStart(c *container) {
	c.State, c.FinishedAt, c.ExitCode = exited, r.now(), exitCodeStartError
	c.Reason, c.starting, c.skews.finished = "StartError", false, r.skew
	r.invalidate(c)
	r.recordFact(c, truth.Fact{
		Kind: truth.ContainerExited, ExitCode: exitCodeStartError, Cause: truth.CauseStart,
	})
}

func reasonOf(code int32, cause string) string {
	switch {
	case cause == truth.CauseOOM:
		return "OOMKilled"
	case cause == truth.CauseReboot:
		return "Unknown"
	case code == 0:
		return "Completed"
	default:
		return "Error"
	}
}

// addContainer adds a container to the runtime's lists.
func (r *Runtime) addContainer(c *container) {
	c.State, c.CreatedAt, c.skews.created = created, r.now(), r.skew
	r.containers[c.ID] = c
	at, _ := slices.BinarySearchFunc(r.containerOrder, c, compareContainers)
	r.containerOrder = slices.Insert(r.containerOrder, at, c)
	r.containerList = nil
	env := map[string]string{}
	for _, v := range c.config.Envs {
		env[v.Key] = string(v.Value)
	}
	r.recordFact(c, truth.Fact{Kind: truth.ContainerCreated, Annotations: c.config.Annotations,
		Image: c.config.GetImage().GetImage(), ImageMounts: c.mounts, Mounts: c.pathMounts(),
		User: c.user, Env: env, ContainerConfig: c.config, Limits: c.limits()})
	r.emitEvent(c.ID, c.SandboxID, eventCreated)
}

// pathMounts returns the mounts of paths of the node.
func (c *container) pathMounts() []truth.Mount {
	var all []truth.Mount
	for _, m := range c.config.Mounts {
		if m.HostPath != "" {
			all = append(all, truth.Mount{HostPath: m.HostPath, ContainerPath: m.ContainerPath,
				ReadOnly: m.Readonly})
		}
	}
	return all
}

// deleteContainer removes a container that does not run from the runtime's lists. An empty cause is
// a request of the agent.
func (r *Runtime) deleteContainer(c *container, cause string) {
	if c.removed {
		return
	}
	c.removed = true
	delete(r.containers, c.ID)
	delete(r.containerNames, c.reservedName)
	at, _ := slices.BinarySearchFunc(r.containerOrder, c, compareContainers)
	r.containerOrder = slices.Delete(r.containerOrder, at, at+1)
	r.containerList = nil
	r.recordFact(c, truth.Fact{Kind: truth.ContainerRemoved, ExitCode: c.ExitCode,
		Cause: cause, Bytes: c.layerBytes()})
	r.freeLayerLater(c)
	r.emitEvent(c.ID, c.SandboxID, eventDeleted)
}

func compareContainers(a, b *container) int { return strings.Compare(a.ID, b.ID) }

// invalidate drops the cached messages of a container, so that they are built again when needed.
func (r *Runtime) invalidate(c *container) {
	c.cachedListItem, c.cachedStatus = nil, nil
	r.containerList = nil
}

// recordFact adds a fact about a container to the truth log.
func (r *Runtime) recordFact(c *container, f truth.Fact) {
	f.Time = r.now()
	f.PodUID, f.PodNamespace, f.PodName = c.PodUID, c.PodNamespace, c.PodName
	f.Container, f.ContainerID, f.SandboxID = c.Name, c.ID, c.SandboxID
	f.Attempt = c.Attempt
	r.opts.Truth.Add(f)
}
