package pod

import (
	"cmp"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/volume"
	"seedlet.dev/world"
)

// What a pod takes from the API server: which objects, and that they are watched for as long as
// the pod may need them.

// Watching is what of the API the pod is told of.
type Watching struct {
	Done  bool            `json:"done,omitempty"` // all that the spec refers to is watched
	About []world.Watched `json:"about,omitempty"`
}

// allServices is what the variables are taken from that tell containers of services.
var allServices = world.Watched{Resource: world.ResourceServices}

// references are the objects that a pod refers to, in order, each once.
func references(pod *v1.Pod) []world.Watched {
	var found []world.Watched
	add := func(r world.Resource, name string) {
		if name != "" {
			found = append(found, world.Watched{Resource: r, Namespace: pod.Namespace, Name: name})
		}
	}
	spec := &pod.Spec
	for i := range spec.Volumes {
		volumeReferences(&spec.Volumes[i], add)
		if volume.HasBundles(&spec.Volumes[i]) {
			found = append(found, volume.AllBundles)
		}
	}
	for i := range spec.InitContainers {
		envReferences(&spec.InitContainers[i], add)
	}
	for i := range spec.Containers {
		envReferences(&spec.Containers[i], add)
	}
	for i := range spec.EphemeralContainers {
		envReferences(ephemeral(&spec.EphemeralContainers[i]), add)
	}
	for _, secret := range spec.ImagePullSecrets {
		add(world.ResourceSecrets, secret.Name)
	}
	if class := spec.RuntimeClassName; class != nil && *class != "" {
		found = append(found, world.Watched{Resource: world.ResourceRuntimeClasses, Name: *class})
	}
	slices.SortFunc(found, func(x, y world.Watched) int {
		return cmp.Or(cmp.Compare(x.Resource, y.Resource), cmp.Compare(x.Name, y.Name))
	})
	return slices.Compact(found)
}

func volumeReferences(v *v1.Volume, add func(world.Resource, string)) {
	switch {
	case v.ConfigMap != nil:
		add(world.ResourceConfigMaps, v.ConfigMap.Name)
	case v.Secret != nil:
		add(world.ResourceSecrets, v.Secret.SecretName)
	case v.Projected != nil:
		for _, source := range v.Projected.Sources {
			switch {
			case source.ConfigMap != nil:
				add(world.ResourceConfigMaps, source.ConfigMap.Name)
			case source.Secret != nil:
				add(world.ResourceSecrets, source.Secret.Name)
			}
		}
	}
}

func envReferences(c *v1.Container, add func(world.Resource, string)) {
	for i := range c.EnvFrom {
		switch from := &c.EnvFrom[i]; {
		case from.ConfigMapRef != nil:
			add(world.ResourceConfigMaps, from.ConfigMapRef.Name)
		case from.SecretRef != nil:
			add(world.ResourceSecrets, from.SecretRef.Name)
		}
	}
	for i := range c.Env {
		switch from := c.Env[i].ValueFrom; {
		case from == nil:
		case from.ConfigMapKeyRef != nil:
			add(world.ResourceConfigMaps, from.ConfigMapKeyRef.Name)
		case from.SecretKeyRef != nil:
			add(world.ResourceSecrets, from.SecretKeyRef.Name)
		}
	}
}

// watch has what the spec refers to watched until the pod has ended.
func (p *Pod) watch(env *Env) {
	wanted := p.Spec != nil && p.Stage != Terminated
	if env.Objects == nil || wanted && p.Watching.Done || !wanted && len(p.Watching.About) == 0 {
		return
	}
	var about []world.Watched
	if wanted {
		about = append(references(p.Spec), allServices)
	}
	all := true
	for _, object := range about {
		all = env.Objects.Want(object, p.UID, env.Out) && all
		if key, read := env.Objects.Reads(object); read {
			env.Touch(key)
		}
	}
	for _, object := range p.Watching.About {
		if !slices.Contains(about, object) {
			env.Objects.Drop(object, p.UID, env.Out)
		}
	}
	p.Watching = Watching{Done: wanted && all, About: about}
}

// referencesKnown says whether nothing that a container's variables are taken from is still being
// asked for: it is known, or known not to be had.
func (p *Pod) referencesKnown(want *v1.Container, env *Env) bool {
	if env.Objects == nil {
		return true
	}
	known := p.IsStatic() || !pending(env, allServices)
	var since time.Time // what is read is to be as new as the need for another run
	if last := p.newest(want.Name); last != nil {
		since = last.Exited
	}
	envReferences(want, func(r world.Resource, name string) {
		about := world.Watched{Resource: r, Namespace: p.Namespace, Name: name}
		reading := env.Objects.Demand(about, since)
		if key, _ := env.Objects.Reads(about); reading {
			env.Touch(key)
		}
		known = known && !reading && !pending(env, about)
	})
	return known
}

func pending(env *Env, about world.Watched) bool {
	w := env.Objects.Watch(about)
	return w == nil || !w.Listed && w.Failing == nil
}
