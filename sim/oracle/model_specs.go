package oracle

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
)

// recordSpec adds a spec to the history of a pod. A container that was created from another spec
// with other handlers is no longer checked by either: the agent may follow the old one or the new
// one.
func (p *pod) recordSpec(spec *v1.Pod) {
	same := func(o *v1.Pod) bool {
		return o.Name == spec.Name && o.Namespace == spec.Namespace &&
			maps.Equal(o.Labels, spec.Labels) && maps.Equal(o.Annotations, spec.Annotations) &&
			reflect.DeepEqual(o.Spec, spec.Spec)
	}
	if !slices.ContainsFunc(p.specs, same) {
		if len(p.specs) == 0 {
			source := spec.Annotations[annotationSource]
			p.static = source == sourceFile || source == sourceHTTP
		}
		p.specs = append(p.specs, spec)
	}
	for _, c := range p.containers {
		if container := containerOf(spec, c.name); c.spec != nil && container != nil &&
			!haveSameHandlers(c.spec, container) {
			c.spec, c.handlers = nil, nil
		}
	}
}

// recordMetadata adds the newest spec with other labels and annotations to the history of a pod of
// the API server.
func (p *pod) recordMetadata(object *v1.Pod) {
	if p.static || len(p.specs) == 0 {
		return
	}
	spec := *p.specs[len(p.specs)-1]
	spec.Labels, spec.Annotations = object.Labels, object.Annotations
	p.recordSpec(&spec)
}

// recordReported records which runs the API server has, by the status of a pod.
func (p *pod) recordReported(object *v1.Pod, now time.Time) {
	for _, s := range allContainerStatuses(object) {
		_, id, _ := strings.Cut(s.ContainerID, "://")
		c := p.model.containers[id]
		if c == nil {
			continue
		}
		if s.State.Running != nil && c.reportedRunningAt.IsZero() {
			c.reportedRunningAt = now
		}
		if s.State.Terminated != nil && c.reportedEndAt.IsZero() {
			c.reportedEndAt = now
		}
	}
}

// specOf returns the spec that a container was created from; nil if no spec of the pod has this
// container, or if several have it with different handlers.
func (p *pod) specOf(name, hash string) *v1.Container {
	var found *v1.Container
	for _, spec := range p.specs {
		c := containerOf(spec, name)
		switch {
		case c == nil:
		case found != nil && !haveSameHandlers(found, c):
			return nil
		case hash == "" || hash == p.model.hashOf(c):
			found = c
		}
	}
	return found
}

// containerOf returns the container of a spec that has this name; nil if there is none.
func containerOf(spec *v1.Pod, name string) *v1.Container {
	for _, list := range [][]v1.Container{spec.Spec.InitContainers, spec.Spec.Containers} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	for i := range spec.Spec.EphemeralContainers {
		if c := &spec.Spec.EphemeralContainers[i]; c.Name == name {
			return (*v1.Container)(&c.EphemeralContainerCommon)
		}
	}
	return nil
}

// haveSameHandlers reports whether two containers have the same probes, hooks and restart rules.
func haveSameHandlers(a, b *v1.Container) bool {
	of := func(c *v1.Container) []any {
		return []any{c.StartupProbe, c.LivenessProbe, c.ReadinessProbe, c.Lifecycle,
			c.RestartPolicy, c.RestartPolicyRules}
	}
	return a == b || reflect.DeepEqual(of(a), of(b))
}

// hasNoKillingHandlers reports whether the container has no probe or hook for which the agent
// would kill it alone.
func (c *container) hasNoKillingHandlers() bool {
	return c.spec != nil && c.spec.LivenessProbe == nil && c.spec.StartupProbe == nil &&
		(c.spec.Lifecycle == nil || c.spec.Lifecycle.PostStart == nil)
}
