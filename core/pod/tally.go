package pod

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/image"
	"seedlet.dev/core/manifest"
	"seedlet.dev/core/op"
	"seedlet.dev/core/probe"
)

// What of a pod is counted for those who watch the node. It decides nothing.

// Census is what one pod, or all of them, count for.
type Census struct {
	Running int `json:"running,omitempty"` // pods that have a sandbox that is ready
	Static  int `json:"static,omitempty"`  // pods of manifests that are wanted
	// Pods that take room on the node, those of the API server and those of manifests.
	Active       int `json:"active,omitempty"`
	ActiveStatic int `json:"activeStatic,omitempty"`

	// Containers that the runtime has, by their state, and those of the spec that are ephemeral.
	Created   int `json:"created,omitempty"`
	Runs      int `json:"runs,omitempty"`
	Unknown   int `json:"unknown,omitempty"`
	Exited    int `json:"exited,omitempty"`
	Ephemeral int `json:"ephemeral,omitempty"`
}

// Add adds what another one counts for, so many times.
func (c *Census) Add(o Census, times int) {
	c.Running += times * o.Running
	c.Static += times * o.Static
	c.Active += times * o.Active
	c.ActiveStatic += times * o.ActiveStatic
	c.Created += times * o.Created
	c.Runs += times * o.Runs
	c.Unknown += times * o.Unknown
	c.Exited += times * o.Exited
	c.Ephemeral += times * o.Ephemeral
}

// Census is what the pod counts for now.
func (p *Pod) Census() Census {
	var c Census
	if p.anyReady() {
		c.Running = 1
	}
	for i := range p.Containers {
		switch p.Containers[i].State {
		case Created:
			c.Created++
		case Running:
			c.Runs++
		case Exited:
			c.Exited++
		default:
			c.Unknown++
		}
	}
	if p.Spec == nil {
		return c
	}
	if !p.Gone {
		c.Ephemeral = len(p.Spec.Spec.EphemeralContainers)
	}
	switch static, active := p.IsStatic(), p.TakesRoom(); {
	case static && active:
		c.ActiveStatic = 1
	case active:
		c.Active = 1
	}
	if p.IsStatic() && !p.Gone {
		c.Static = 1
	}
	return c
}

// IsStatic says whether the pod is of a manifest.
func (p *Pod) IsStatic() bool {
	if p.Spec == nil {
		return false
	}
	source := p.Spec.Annotations[manifest.ConfigSourceAnnotation]
	return source != "" && source != "api"
}

// Busy says whether anything is being made, looked at, stopped or removed for the pod, or an image
// awaited that nothing is known to be wrong with. A pod that is being ended is, until it has.
func (p *Pod) Busy() bool {
	if p.Op != 0 || !p.Stale.IsZero() || p.Stage == Terminating {
		return true
	}
	for i := range p.Containers {
		if p.Containers[i].Op != 0 || p.Containers[i].InspectOp != 0 {
			return true
		}
	}
	for i := range p.Sandboxes {
		if p.Sandboxes[i].Op != 0 || p.Sandboxes[i].InspectOp != 0 {
			return true
		}
	}
	for i := range p.Needs {
		if p.Needs[i].Problem == nil {
			return true
		}
	}
	return false
}

// Pulling says whether an image that the pod waits for is being pulled.
func (p *Pod) Pulling(images *image.Store) bool {
	for i := range p.Needs {
		if since, _ := images.Pulling(p.Needs[i].Image); !since.IsZero() {
			return true
		}
	}
	return false
}

// Awaiting are the roles of the containers that wait for an image.
func (p *Pod) Awaiting(image string) []Role {
	var roles []Role
	for i := range p.Needs {
		if p.Needs[i].Image == image && p.Spec != nil {
			roles = append(roles, p.role(p.Needs[i].Container))
		}
	}
	return roles
}

// RoleIn is the role of the container that an operation makes or starts.
func (p *Pod) RoleIn(r op.Record) Role {
	if p.Spec == nil {
		return App
	}
	return p.role(p.subject(r))
}

// Probed is the name of the container that an operation probes, and what for; false if it is none,
// or if the container has gone.
func (p *Pod) Probed(r op.Record) (container string, kind probe.Kind, ok bool) {
	id, what := cutSubject(r.Subject)
	c := p.container(id)
	switch kind = probe.Kind(what); kind {
	case probe.Startup, probe.Liveness, probe.Readiness:
		if c != nil {
			return c.Name, kind, true
		}
	}
	return "", "", false
}

// InitTime is how long the init containers have run of which the runtime still knows.
func (p *Pod) InitTime() time.Duration {
	var sum time.Duration
	for i := range p.Containers {
		c := &p.Containers[i]
		if p.Spec != nil && c.ended() && p.role(c.Name) == Init && !c.StartedAt.IsZero() {
			sum += max(c.FinishedAt.Sub(c.StartedAt), 0)
		}
	}
	return sum
}

// Stateful says whether a pod has a volume that outlives it or that others see to: how long such a
// pod takes to start says little of the node.
func Stateful(spec *v1.Pod) bool {
	for i := range spec.Spec.Volumes {
		v := &spec.Spec.Volumes[i]
		if v.Secret == nil && v.ConfigMap == nil && v.DownwardAPI == nil && v.EmptyDir == nil &&
			v.Projected == nil {
			return true
		}
	}
	return false
}

// AllStarted says whether a status tells of every app container that it runs.
func AllStarted(status *v1.PodStatus) bool {
	for i := range status.ContainerStatuses {
		running := status.ContainerStatuses[i].State.Running
		if running == nil || running.StartedAt.IsZero() {
			return false
		}
	}
	return len(status.ContainerStatuses) > 0
}
