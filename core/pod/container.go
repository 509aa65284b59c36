package pod

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/pleg"
	"seedlet.dev/core/probe"
	"seedlet.dev/core/userns"
	"seedlet.dev/world"
)

// Sandbox is what the agent knows about one sandbox of a pod.
type Sandbox struct {
	ID        string     `json:"id"`
	Attempt   uint32     `json:"attempt"`
	Ready     bool       `json:"ready"`   // once false it stays false
	Stopped   bool       `json:"stopped"` // a StopPodSandbox has succeeded
	IPs       []string   `json:"ips,omitempty"`
	Inspected bool       `json:"inspected"` // the IPs were asked for and answered
	CreatedAt time.Time  `json:"createdAt"`
	Learned   time.Time  `json:"learned"`      // when the agent came to know of it
	Op        world.OpID `json:"op,omitempty"` // a stop or removal in flight

	Cgroup string       `json:"cgroup,omitempty"` // that it was made in, if it tells
	IDs    userns.Range `json:"ids"`              // of its user namespace
	Claim  string       `json:"claim,omitempty"`  // on the node, if another agent made it

	InspectOp world.OpID `json:"inspectOp,omitempty"`
	NotBefore time.Time  `json:"notBefore"`          // back-off after a failed operation
	Failures  int        `json:"failures,omitempty"` // of stops and removals, in a row

	seenIn uint64 // the number of the newest relist that had it; scratch of that relist
}

// down says that nothing of the sandbox is left but its record.
func (s *Sandbox) down() bool { return !s.Ready && s.Stopped }

// State is what is known of a container. It only goes forward, so that an observation can be
// late without doing harm.
type State string

// The states, in the order in which a container goes through them.
const (
	Created State = "Created"
	Running State = "Running"
	Unknown State = "Unknown" // the runtime lost track; it may run
	Exited  State = "Exited"
)

func (s State) order() int {
	return slices.Index([]State{Created, Running, Unknown, Exited}, s)
}

// Container is what the agent knows about one container of the runtime: one run of a container
// of the pod.
type Container struct {
	Name      string        `json:"name"`
	ID        string        `json:"id"`
	SandboxID string        `json:"sandboxID"`
	Attempt   uint32        `json:"attempt"`           // 0 for the first run
	Restarts  int32         `json:"restarts"`          // how often the container had been restarted
	Hash      string        `json:"hash"`              // identity of the spec it was created from
	Backoff   time.Duration `json:"backoff"`           // to wait after it has exited
	Grace     time.Duration `json:"grace"`             // of the pod it was created for
	Sidecar   int           `json:"sidecar,omitempty"` // its place if it is a sidecar, from one
	Round     int           `json:"round,omitempty"`   // that it was made in

	Foreign   bool                 `json:"foreign,omitempty"` // another agent has made it
	Ports     []v1.ContainerPort   `json:"ports,omitempty"`   // by which hooks name them
	PreStop   *v1.LifecycleHandler `json:"preStop,omitempty"` // the hook
	PostStart Hook                 `json:"postStart"`         // how far that hook is
	Probers   []probe.Prober       `json:"probers,omitempty"`
	Stop      *Stop                `json:"stop,omitempty"` // its end, once that has begun

	State      State     `json:"state"`
	Inspected  State     `json:"inspected,omitempty"` // the state that the fields below are of
	Image      string    `json:"image,omitempty"`
	ImageID    string    `json:"imageID,omitempty"`
	CreatedAt  time.Time `json:"createdAt"`
	StartedAt  time.Time `json:"startedAt"`
	FinishedAt time.Time `json:"finishedAt"`
	// By the agent's own clock, of what this agent has done and seen:
	Began  time.Time `json:"began"`  // when it asked for the start
	Ran    time.Time `json:"ran"`    // when it learnt that it runs
	Alive  time.Time `json:"alive"`  // when it ran for sure, as far as is known
	Exited time.Time `json:"exited"` // when it learnt that it has exited

	ExitCode int32    `json:"exitCode"`
	Reason   string   `json:"reason,omitempty"`
	Message  string   `json:"message,omitempty"` // the runtime's
	Said     Said     `json:"said"`              // the container's
	Link     Link     `json:"link"`
	Left     Leavings `json:"left"`

	User       *v1.ContainerUser `json:"user,omitempty"` // as whom its first process began
	StopSignal *v1.Signal        `json:"stopSignal,omitempty"`

	Learned   time.Time  `json:"learned"`            // when the agent came to know of it
	Op        world.OpID `json:"op,omitempty"`       // a stop or removal in flight
	Stopping  bool       `json:"stopping,omitempty"` // Op is a stop
	InspectOp world.OpID `json:"inspectOp,omitempty"`
	NotBefore time.Time  `json:"notBefore"` // back-off after a failed stop or removal
	Failures  int        `json:"failures,omitempty"`
	LookAt    time.Time  `json:"lookAt"`          // back-off after a failed inspection
	Blind     int        `json:"blind,omitempty"` // failed inspections in a row

	seenIn uint64 // the number of the newest relist that had it; scratch of that relist
}

// live says that the container runs or might.
func (c *Container) live() bool { return c.State == Running || c.State == Unknown }

// ended says that it has exited and that how is known, and what it had to say about it.
func (c *Container) ended() bool {
	return c.State == Exited && c.Inspected == Exited && !c.Said.awaited()
}

// The annotations that carry what must outlive the agent.
const (
	annotationHash     = "io.kubernetes.container.hash"
	annotationRestarts = "io.kubernetes.container.restartCount"
	annotationGrace    = "io.kubernetes.pod.terminationGracePeriod"
	annotationPreStop  = "io.kubernetes.container.preStopHandler" // a hook, as JSON
	annotationPorts    = "io.kubernetes.container.ports"          // a list, as JSON
	// annotationBackoff is how long to wait after the container has exited before it is
	// restarted, as a Go duration. The kubelet keeps this in memory and forgets it when it is
	// restarted; here it belongs to the container.
	annotationBackoff = "seedlet.dev/restart-backoff"
	// annotationSidecar is the place of a sidecar among the init containers, from one. It says in
	// which order a pod is ended whose manifest has gone.
	annotationSidecar = "seedlet.dev/sidecar"
)

// newContainer reads a line of a list.
func newContainer(item *pleg.Container, asked time.Time) Container {
	c := Container{
		Name: item.Name, ID: item.ID, SandboxID: item.SandboxID, Attempt: item.Attempt,
		CreatedAt: item.CreatedAt, Learned: asked, State: Created,
		Hash:     item.Annotations[annotationHash],
		Restarts: int32(number(item.Annotations[annotationRestarts], int64(item.Attempt))),
		Sidecar:  int(number(item.Annotations[annotationSidecar], 0)),
		Round:    int(number(item.Annotations[annotationRound], 0)),
		Grace: time.Second * time.Duration(
			number(item.Annotations[annotationGrace], int64(graceDefault/time.Second))),
	}
	if d, err := time.ParseDuration(item.Annotations[annotationBackoff]); err == nil && d > 0 {
		c.Backoff = d // of another agent's container nothing is known: it may restart at once
	}
	c.Foreign = item.Annotations[annotationBackoff] == ""
	// What is damaged is taken for absent: the container ends without its hook.
	if text := item.Annotations[annotationPreStop]; text != "" {
		_ = json.Unmarshal([]byte(text), &c.PreStop)
	}
	if text := item.Annotations[annotationPorts]; text != "" {
		_ = json.Unmarshal([]byte(text), &c.Ports)
	}
	return c
}

// newest is the newest run of a container; nil if there is none. One that was made in an older
// sandbox and never started is not a run.
func (p *Pod) newest(name string) *Container {
	for i := len(p.Containers) - 1; i >= 0; i-- {
		if c := &p.Containers[i]; c.Name == name && !p.stray(c) {
			return c
		}
	}
	return nil
}

// stray says whether a container was made in a sandbox that is not the current one, or in an
// earlier round, and has not been started: it never will be. A request of unknown outcome leaves
// such when it takes effect late.
func (p *Pod) stray(c *Container) bool {
	s := p.current()
	return c.State == Created && (s == nil || c.SandboxID != s.ID || p.superseded(c))
}

// previous is the run before c; nil if there is none.
func (p *Pod) previous(c *Container) *Container {
	for i := len(p.Containers) - 1; i >= 0; i-- {
		if o := &p.Containers[i]; o.Name == c.Name && o.older(c) && !p.stray(o) {
			return o
		}
	}
	return nil
}

func (c *Container) older(o *Container) bool {
	if c.Attempt != o.Attempt {
		return c.Attempt < o.Attempt
	}
	return c.CreatedAt.Before(o.CreatedAt)
}

func (p *Pod) container(id string) *Container {
	for i := range p.Containers {
		if p.Containers[i].ID == id {
			return &p.Containers[i]
		}
	}
	return nil
}

func (p *Pod) sandbox(id string) *Sandbox {
	for i := range p.Sandboxes {
		if p.Sandboxes[i].ID == id {
			return &p.Sandboxes[i]
		}
	}
	return nil
}

// current is the newest sandbox; nil if there is none.
func (p *Pod) current() *Sandbox {
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
	p.Cgroup.Removed = nil // the runtime has made it again
	p.Sandboxes = append(p.Sandboxes, s)
	slices.SortStableFunc(p.Sandboxes, func(a, b Sandbox) int {
		return cmp.Or(cmp.Compare(a.Attempt, b.Attempt), a.CreatedAt.Compare(b.CreatedAt),
			cmp.Compare(a.ID, b.ID))
	})
}

func (p *Pod) dropContainer(id string) {
	if c := p.container(id); c != nil {
		p.rememberRun(c)
	}
	p.Containers = slices.DeleteFunc(p.Containers, func(c Container) bool { return c.ID == id })
}

func (p *Pod) dropSandbox(id string) {
	p.Sandboxes = slices.DeleteFunc(p.Sandboxes, func(s Sandbox) bool { return s.ID == id })
}
