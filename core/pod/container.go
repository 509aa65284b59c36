package pod

import (
	"cmp"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/containergc"
	"seedlet.dev/core/criconfig"
	"seedlet.dev/core/pleg"
	"seedlet.dev/core/probe"
	"seedlet.dev/core/userns"
	"seedlet.dev/world"
)

// Sandbox holds the facts that the agent has about one sandbox of a pod.
type Sandbox struct {
	ID        string     `json:"id"`
	Attempt   uint32     `json:"attempt"`
	Ready     bool       `json:"ready"`   // once false it stays false
	Stopped   bool       `json:"stopped"` // a StopPodSandbox has succeeded
	IPs       []string   `json:"ips,omitempty"`
	Inspected bool       `json:"inspected"`         // the IPs are known
	LacksIP   bool       `json:"lacksIP,omitempty"` // matters if Pod.needsIP
	CreatedAt time.Time  `json:"createdAt"`
	LearnedAt time.Time  `json:"learnedAt"`    // when the agent learned of it
	Op        world.OpID `json:"op,omitempty"` // a stop or removal in flight

	Cgroup     string       `json:"cgroup,omitempty"`     // of the pod at creation, if annotated
	IDs        userns.Range `json:"ids"`                  // of the user namespace
	Allocation string       `json:"allocation,omitempty"` // annotation of the pod's resources

	InspectOp world.OpID `json:"inspectOp,omitempty"`
	NotBefore time.Time  `json:"notBefore"`          // back-off after a failure
	Failures  int        `json:"failures,omitempty"` // of stops and removals, in a row

	Removal containergc.Failure `json:"removal,omitzero"` // of its record

	seenIn uint64 // the newest relist that had it; only used during that relist
}

// isDown reports whether the sandbox is stopped: only its record in the runtime is left.
func (s *Sandbox) isDown() bool { return !s.Ready && s.Stopped }

// State is the known state of a container. A state only goes forward, so a late observation does no
// harm.
type State string

// The states, in the order in which a container goes through them.
const (
	Created State = "Created"
	Running State = "Running"
	Unknown State = "Unknown" // lost by the runtime; it may run
	Exited  State = "Exited"
)

func (s State) order() int {
	return slices.Index([]State{Created, Running, Unknown, Exited}, s)
}

// Container holds the facts that the agent has about one container of the runtime, which is one run
// of a container of the pod.
type Container struct {
	Name      string `json:"name"`
	ID        string `json:"id"`
	SandboxID string `json:"sandboxID"`

	// Run is the part that the container was created with and that its annotations hold.
	criconfig.Run

	FromOtherAgent bool           `json:"fromOtherAgent,omitempty"` // created by another agent
	Actuation      Actuation      `json:"actuation"`                // of its resources
	PostStart      Hook           `json:"postStart"`                // progress of the hook
	Probers        []probe.Prober `json:"probers,omitempty"`
	Stop           *Stop          `json:"stop,omitempty"` // set once a stop has started

	State     State  `json:"state"`
	Inspected State  `json:"inspected,omitempty"` // of the next fields, by ContainerStatus
	Image     string `json:"image,omitempty"`
	ImageID   string `json:"imageID,omitempty"`
	// MountedImages are the image volumes. They are in use as long as the runtime has the container.
	MountedImages []string  `json:"mountedImages,omitempty"`
	CreatedAt     time.Time `json:"createdAt"`
	StartedAt     time.Time `json:"startedAt"`
	FinishedAt    time.Time `json:"finishedAt"`
	// By the agent's own clock, for this agent's own requests and observations:
	StartIssuedAt   time.Time `json:"startIssuedAt"`   // when StartContainer was issued
	RunningSeenAt   time.Time `json:"runningSeenAt"`   // when it was first known to run
	LastSeenRunning time.Time `json:"lastSeenRunning"` // when it was last known to run
	ExitSeenAt      time.Time `json:"exitSeenAt"`      // when it was first known to have exited

	ExitCounted        bool               `json:"exitCounted,omitempty"` // by CountExits
	ExitCode           int32              `json:"exitCode"`
	Reason             string             `json:"reason,omitempty"`
	Message            string             `json:"message,omitempty"`  // from the runtime
	TerminationMessage TerminationMessage `json:"terminationMessage"` // from the container
	Link               Link               `json:"link"`
	Cleanup            FileCleanup        `json:"cleanup"`

	User *v1.ContainerUser `json:"user,omitempty"` // of its first process

	LearnedAt       time.Time  `json:"learnedAt"`          // when the agent learned of it
	Op              world.OpID `json:"op,omitempty"`       // a stop or removal in flight
	Stopping        bool       `json:"stopping,omitempty"` // Op is a stop
	InspectOp       world.OpID `json:"inspectOp,omitempty"`
	NotBefore       time.Time  `json:"notBefore"` // back-off after a failed stop or removal
	Failures        int        `json:"failures,omitempty"`
	InspectAfter    time.Time  `json:"inspectAfter"`              // back-off after a failed inspection
	InspectFailures int        `json:"inspectFailures,omitempty"` // failed inspections in a row

	Removal containergc.Failure `json:"removal,omitzero"` // of its files, or of its record

	seenIn uint64 // the newest relist that had it; only used during that relist
}

// isLive reports whether the container runs or may run.
func (c *Container) isLive() bool { return c.State == Running || c.State == Unknown }

// HasKnownExit reports whether the container has exited and its exit code and termination message
// are known.
func (c *Container) HasKnownExit() bool {
	return c.State == Exited && c.Inspected == Exited && !c.TerminationMessage.isPending()
}

// hasFailed reports whether a container that has exited has failed in its role. An init container
// that was killed for lack of memory has, even if its first process handled that and exited with 0
// (isInitContainerFailed in kuberuntime/helpers.go).
func (c *Container) hasFailed(role Role) bool {
	return c.ExitCode != 0 || role == Init && c.Reason == reasonOOMKilled
}

const reasonOOMKilled = "OOMKilled" // of the runtime

// HasCompletedInit reports whether the run of an init container has succeeded.
func (c *Container) HasCompletedInit() bool { return c.HasKnownExit() && !c.hasFailed(Init) }

// containerFromList returns the facts that a line of a container list has about a container which
// was not known before.
func containerFromList(item *pleg.Container, requestedAt time.Time) Container {
	c := Container{
		Name: item.Name, ID: item.ID, SandboxID: item.SandboxID,
		CreatedAt: item.CreatedAt, LearnedAt: requestedAt, State: Created,
	}
	c.Run, c.FromOtherAgent = criconfig.ReadRun(item.Attempt, item.Annotations)
	return c
}

// runsOf returns the containers of the runtime that have a name, the oldest first.
func (p *Pod) runsOf(name string) []Container {
	compare := func(c Container, name string) int { return cmp.Compare(c.Name, name) }
	from, found := slices.BinarySearchFunc(p.Containers, name, compare)
	to := from
	for found && to < len(p.Containers) && p.Containers[to].Name == name {
		to++
	}
	return p.Containers[from:to]
}

// NewestRun returns the newest run of a container; nil if the runtime has none. Leftovers are not
// runs.
func (p *Pod) NewestRun(name string) *Container {
	runs := p.runsOf(name)
	for i := len(runs) - 1; i >= 0; i-- {
		if c := &runs[i]; !p.isLeftover(c) {
			return c
		}
	}
	return nil
}

// PreviousRun returns the run before c; nil if the runtime has none.
func (p *Pod) PreviousRun(c *Container) *Container {
	runs := p.runsOf(c.Name)
	for i := len(runs) - 1; i >= 0; i-- {
		if o := &runs[i]; o.isOlderThan(c) && !p.isLeftover(o) {
			return o
		}
	}
	return nil
}

// isLeftover reports whether a container was created in an old sandbox or in an earlier restart
// round and was never started. A leftover is never started. A create request of unknown outcome
// that takes effect late leaves one.
func (p *Pod) isLeftover(c *Container) bool {
	s := p.CurrentSandbox()
	return c.State == Created && (s == nil || c.SandboxID != s.ID || p.IsSuperseded(c))
}

func (c *Container) isOlderThan(o *Container) bool {
	if c.Attempt != o.Attempt {
		return c.Attempt < o.Attempt
	}
	return c.CreatedAt.Before(o.CreatedAt)
}

func (p *Pod) containerByID(id string) *Container {
	for i := range p.Containers {
		if p.Containers[i].ID == id {
			return &p.Containers[i]
		}
	}
	return nil
}

func (p *Pod) sandboxByID(id string) *Sandbox {
	for i := range p.Sandboxes {
		if p.Sandboxes[i].ID == id {
			return &p.Sandboxes[i]
		}
	}
	return nil
}

// hasReadySandbox reports whether any sandbox of the pod is ready.
func (p *Pod) hasReadySandbox() bool {
	for i := range p.Sandboxes {
		if p.Sandboxes[i].Ready {
			return true
		}
	}
	return false
}

// CurrentSandbox returns the newest sandbox; nil if none exists.
func (p *Pod) CurrentSandbox() *Sandbox {
	if len(p.Sandboxes) == 0 {
		return nil
	}
	return &p.Sandboxes[len(p.Sandboxes)-1]
}

func (p *Pod) addContainer(c Container) {
	p.Containers = append(p.Containers, c)
	slices.SortStableFunc(p.Containers, func(a, b Container) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Attempt, b.Attempt),
			a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
}

func (p *Pod) addSandbox(s Sandbox) {
	p.Cgroup.Removed = nil // the runtime has created the cgroup again
	p.Sandboxes = append(p.Sandboxes, s)
	slices.SortStableFunc(p.Sandboxes, func(a, b Sandbox) int {
		return cmp.Or(cmp.Compare(a.Attempt, b.Attempt), a.CreatedAt.Compare(b.CreatedAt),
			cmp.Compare(a.ID, b.ID))
	})
}

func (p *Pod) dropContainer(id string) {
	if c := p.containerByID(id); c != nil {
		p.rememberRemovedRun(c)
	}
	p.Containers = slices.DeleteFunc(p.Containers, func(c Container) bool { return c.ID == id })
}

func (p *Pod) dropSandbox(id string) {
	p.Sandboxes = slices.DeleteFunc(p.Sandboxes, func(s Sandbox) bool { return s.ID == id })
}
