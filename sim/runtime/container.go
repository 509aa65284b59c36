package runtime

import (
	"slices"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/sim/truth"
)

// Container is what is true about one container.
type Container struct {
	ID, SandboxID                 string
	PodUID, PodNamespace, PodName string
	Name                          string // in the pod
	Attempt                       uint32
	State                         runtimeapi.ContainerState
	CreatedAt                     time.Time
	StartedAt                     time.Time // zero: never
	FinishedAt                    time.Time // zero: not yet
	ExitCode                      int32
	Reason                        string // why it exited, in the runtime's words
}

// The states, by their shorter names.
const (
	created = runtimeapi.ContainerState_CONTAINER_CREATED
	running = runtimeapi.ContainerState_CONTAINER_RUNNING
	exited  = runtimeapi.ContainerState_CONTAINER_EXITED
)

type container struct {
	Container
	config   *runtimeapi.ContainerConfig
	imageID  string
	user     string
	mounts   []string // images
	logPath  string
	output   output
	reserved string // the name that is taken until it is removed
	skewed   skews
	lost     bool // the runtime does not know its state

	starting, removing bool // a call is at work on it
	gone               bool // removed
	script             Script
	termSent, killSent bool
	killTakes          time.Duration
	noticed            time.Duration // from the end of the process until the runtime knows
	onExit             []func()
	asked              []*asking // what its process has not answered yet

	item   *runtimeapi.Container               // as lists show it; nil after a change
	status *runtimeapi.ContainerStatusResponse // nil after a change
}

type startKey struct{ podUID, container string }

// Containers returns the true state of all containers, by id.
func (r *Runtime) Containers() []Container {
	all := make([]Container, len(r.containerOrder))
	for i, c := range r.containerOrder {
		all[i] = c.Container
	}
	return all
}

func (c *container) startable() bool { return c.State == created && !c.starting && !c.removing }

// process begins the container's process.
func (r *Runtime) process(c *container) {
	key := startKey{c.PodUID, c.Name}
	c.script = r.opts.Behaviour(Instance{
		PodUID: c.PodUID, PodNamespace: c.PodNamespace, PodName: c.PodName,
		Container: c.Name, Attempt: c.Attempt, Starts: r.starts[key],
	})
	r.starts[key]++
	r.enter(r.sandboxes[c.SandboxID])
	c.State, c.StartedAt, c.starting = running, r.now(), false
	c.skewed.started = r.skew
	r.changed(c)
	r.openFiles(c)
	r.write(c)
	r.tell(c, truth.Fact{Kind: truth.ContainerStarted})
	r.emit(c.ID, c.SandboxID, eventStarted)
	if c.script.Runs > 0 {
		r.after(c.script.Runs, func() { r.exitByItself(c) })
	}
}

func (r *Runtime) exitByItself(c *container) {
	if c.script.OOM {
		r.exit(c, exitOnKill, truth.CauseOOM)
		return
	}
	r.exit(c, c.script.ExitCode, truth.CauseOwn)
}

// term sends TERM, as containerd does once in the life of a container, however often it is asked
// to stop it.
func (r *Runtime) term(c *container) {
	if c.termSent {
		return
	}
	c.termSent = true
	if c.script.IgnoresTerm {
		return
	}
	code := int32(exitOnTerm)
	if c.script.HandlesTerm {
		code = c.script.StopExitCode
	}
	r.after(c.script.StopTakes, func() { r.exit(c, code, truth.CauseStop) })
}

// kill sends KILL.
func (r *Runtime) kill(c *container, cause string) {
	if c.State != running || c.killSent {
		return
	}
	c.killSent = true
	r.tell(c, truth.Fact{Kind: truth.KillRequested, Cause: cause})
	r.after(c.killTakes, func() { r.exit(c, exitOnKill, cause) })
}

// exit is the end of the container's process, whichever reason for it comes first.
func (r *Runtime) exit(c *container, code int32, cause string) {
	if c.State != running {
		return
	}
	// The end is the kernel's, the start was the runtime's: a short run may end before it began.
	c.State, c.FinishedAt, c.ExitCode = exited, r.now().Add(-c.noticed), code
	c.Reason, c.skewed.finished = reasonOf(code, cause), r.skew
	if c.lost && byCall(cause) {
		r.find(c)
	}
	r.changed(c)
	message, logEnd := r.closeFiles(c, cause == truth.CauseOwn)
	r.tell(c, truth.Fact{Kind: truth.ContainerExited, ExitCode: code, Cause: cause,
		Message: message, LogEnd: logEnd})
	if !c.lost {
		r.emit(c.ID, c.SandboxID, eventStopped)
	}
	for len(c.asked) > 0 {
		c.asked[0].end(truth.ReplyNone)
	}
	waiting := c.onExit
	c.onExit = nil
	for _, do := range waiting {
		do()
	}
}

// failStart makes a container one that has exited without ever having run.
func (r *Runtime) failStart(c *container) {
	c.State, c.FinishedAt, c.ExitCode = exited, r.now(), exitNoStart
	c.Reason, c.starting, c.skewed.finished = "StartError", false, r.skew
	r.changed(c)
	r.tell(c, truth.Fact{
		Kind: truth.ContainerExited, ExitCode: exitNoStart, Cause: truth.CauseStart,
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

// addContainer makes a container visible.
func (r *Runtime) addContainer(c *container) {
	c.State, c.CreatedAt, c.skewed.created = created, r.now(), r.skew
	r.containers[c.ID] = c
	at, _ := slices.BinarySearchFunc(r.containerOrder, c, compareContainers)
	r.containerOrder = slices.Insert(r.containerOrder, at, c)
	r.containerList = nil
	env := map[string]string{}
	for _, v := range c.config.Envs {
		env[v.Key] = string(v.Value)
	}
	r.tell(c, truth.Fact{Kind: truth.ContainerCreated, Annotations: c.config.Annotations,
		Image: c.config.GetImage().GetImage(), ImageMounts: c.mounts, User: c.user, Env: env})
	r.emit(c.ID, c.SandboxID, eventCreated)
}

// dropContainer makes a container that does not run disappear.
func (r *Runtime) dropContainer(c *container) {
	if c.gone {
		return
	}
	c.gone = true
	delete(r.containers, c.ID)
	delete(r.containerNames, c.reserved)
	at, _ := slices.BinarySearchFunc(r.containerOrder, c, compareContainers)
	r.containerOrder = slices.Delete(r.containerOrder, at, at+1)
	r.containerList = nil
	r.tell(c, truth.Fact{Kind: truth.ContainerRemoved, ExitCode: c.ExitCode})
	r.emit(c.ID, c.SandboxID, eventDeleted)
}

func compareContainers(a, b *container) int { return strings.Compare(a.ID, b.ID) }

// changed has the container's messages built anew when they are asked for.
func (r *Runtime) changed(c *container) {
	c.item, c.status = nil, nil
	r.containerList = nil
}

// tell adds a fact about a container to the truth.
func (r *Runtime) tell(c *container, f truth.Fact) {
	f.Time = r.now()
	f.PodUID, f.PodNamespace, f.PodName = c.PodUID, c.PodNamespace, c.PodName
	f.Container, f.ContainerID, f.SandboxID = c.Name, c.ID, c.SandboxID
	f.Attempt = c.Attempt
	r.opts.Truth.Add(f)
}
