package pod

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// What somebody outside finds of a pod in the runtime, by names.

// lastRun is the newest run of a container that has a record; nil if there is none. One that has
// been made and not been started has not run yet, and may never.
func (p *Pod) lastRun(name string) *Container {
	c := p.newest(name)
	if c != nil && c.State == Created {
		return p.previous(c)
	}
	return c
}

// ContainerID is the id of the newest run of a container; empty if there is none, or its record has
// gone: an earlier run is never taken for it.
func (p *Pod) ContainerID(name string) string {
	c := p.lastRun(name)
	if c == nil || p.past(name).newer(c) {
		return ""
	}
	return c.ID
}

// SandboxID is the id of the newest sandbox that is ready; empty if none is.
func (p *Pod) SandboxID() string {
	for i := len(p.Sandboxes) - 1; i >= 0; i-- {
		if p.Sandboxes[i].Ready {
			return p.Sandboxes[i].ID
		}
	}
	return ""
}

// Running is what runs of the pod: its names, and of each container that runs the name and the
// image. Nil if nothing does, not even a sandbox.
func (p *Pod) Running() *v1.Pod {
	is := &v1.Pod{}
	is.Namespace, is.Name, is.UID = p.Namespace, p.Name, types.UID(p.UID)
	for i := range p.Containers {
		if c := &p.Containers[i]; c.State == Running {
			is.Spec.Containers = append(is.Spec.Containers,
				v1.Container{Name: c.Name, Image: c.Image})
		}
	}
	if len(is.Spec.Containers) == 0 && p.SandboxID() == "" {
		return nil
	}
	return is
}
