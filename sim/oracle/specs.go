package oracle

import (
	"reflect"
	"slices"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/manifest"
)

// specify remembers a spec. What was made by another one that says otherwise cannot be judged by
// either: the agent may go by the old or by the new.
func (p *pod) specify(spec *v1.Pod) {
	same := func(o *v1.Pod) bool { return reflect.DeepEqual(o.Spec, spec.Spec) }
	if !slices.ContainsFunc(p.specs, same) {
		if len(p.specs) == 0 {
			p.static = spec.Annotations[manifest.ConfigSourceAnnotation] == string(manifest.OriginFile)
		}
		p.specs = append(p.specs, spec)
	}
	for _, c := range p.containers {
		if want := containerOf(spec, c.name); c.spec != nil && want != nil &&
			!treatedAlike(c.spec, want) {
			c.spec, c.asks = nil, nil
		}
	}
}

// specOf is what a container was made from; nil if no spec is known that says so, or several that
// say different things of how it is to be treated.
func (p *pod) specOf(name, hash string) *v1.Container {
	var found *v1.Container
	for _, spec := range p.specs {
		c := containerOf(spec, name)
		switch {
		case c == nil:
		case found != nil && !treatedAlike(found, c):
			return nil
		case hash == "" || hash == manifest.ContainerHash(c):
			found = c
		}
	}
	return found
}

// containerOf is a container of a spec; nil if there is none of this name.
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

// treatedAlike says whether two containers have the same probes, hooks and restart rules.
func treatedAlike(a, b *v1.Container) bool {
	of := func(c *v1.Container) []any {
		return []any{c.StartupProbe, c.LivenessProbe, c.ReadinessProbe, c.Lifecycle,
			c.RestartPolicy, c.RestartPolicyRules}
	}
	return a == b || reflect.DeepEqual(of(a), of(b))
}

// asksNothing says that a container has neither probes nor hooks that could be the reason to end
// it alone.
func (c *container) asksNothing() bool {
	return c.spec != nil && c.spec.LivenessProbe == nil && c.spec.StartupProbe == nil &&
		(c.spec.Lifecycle == nil || c.spec.Lifecycle.PostStart == nil)
}
