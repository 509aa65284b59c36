package pod

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Lookups of a pod's objects in the runtime by name, for requests to the HTTP API.

// NewestStartedRun returns the newest run of a container that was started; nil if the runtime has
// none. A container that was created and not started has not run, and may never.
func (p *Pod) NewestStartedRun(name string) *Container {
	c := p.NewestRun(name)
	if c != nil && c.State == Created {
		return p.PreviousRun(c)
	}
	return c
}

// ContainerID returns the ID of the newest run of a container; empty if there is no run or the
// record of the newest run was removed. The ID of an earlier run is never returned in its place.
func (p *Pod) ContainerID(name string) string {
	c := p.NewestStartedRun(name)
	if c == nil || p.RemovedRun(name).IsNewerThan(c) {
		return ""
	}
	return c.ID
}

// HasObject reports whether a sandbox or container of the pod has the ID.
func (p *Pod) HasObject(id string) bool {
	return p.sandboxByID(id) != nil || p.containerByID(id) != nil
}

// SandboxID returns the ID of the newest ready sandbox; empty if no sandbox is ready.
func (p *Pod) SandboxID() string {
	for i := len(p.Sandboxes) - 1; i >= 0; i-- {
		if p.Sandboxes[i].Ready {
			return p.Sandboxes[i].ID
		}
	}
	return ""
}

// RunningPod returns a pod with the names of this pod and the name and image of each running
// container; nil if neither a container nor a sandbox of the pod runs.
func (p *Pod) RunningPod() *v1.Pod {
	running := &v1.Pod{}
	running.Namespace, running.Name, running.UID = p.Namespace, p.Name, types.UID(p.UID)
	for i := range p.Containers {
		if c := &p.Containers[i]; c.State == Running {
			running.Spec.Containers = append(running.Spec.Containers,
				v1.Container{Name: c.Name, Image: c.Image})
		}
	}
	if len(running.Spec.Containers) == 0 && p.SandboxID() == "" {
		return nil
	}
	return running
}
