package pod

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/budget"
	"seedlet.dev/core/claim"
	"seedlet.dev/core/criconfig"
	"seedlet.dev/core/podcertificate"
	"seedlet.dev/core/volume"
	"seedlet.dev/world"
)

// The API objects that a pod refers to. They are watched for as long as the pod may need them.

// Watches holds the API objects that are watched for the pod.
type Watches struct {
	// Complete is set if all objects of the spec are watched, or never will be.
	Complete bool                `json:"complete,omitempty"`
	Objects  []world.WatchTarget `json:"objects,omitempty"`
	// Volumes are the persistent volumes that the pod's claims name, as far as the claims are known.
	Volumes []world.WatchTarget `json:"volumes,omitempty"`
	// Problem is why the objects of the spec are not watched: the pod needs more of something than
	// one pod may have, or than the node has left. Such a pod is not started.
	Problem string `json:"problem,omitempty"`
	// Excess is what follows from objects that are too large.
	Excess ObjectExcess `json:"excess,omitzero"`
}

// references returns the objects that a pod refers to, each once, in the order of its spec.
func references(pod *v1.Pod) []world.WatchTarget {
	var all []world.WatchTarget
	seen := map[world.WatchTarget]bool{}
	visitReferences(pod, func(target world.WatchTarget) {
		if !seen[target] {
			seen[target] = true
			all = append(all, target)
		}
	})
	return all
}

// countReferences returns the number of references, or a number above the budget if they exceed it.
// A claim counts for its volume as well.
func countReferences(pod *v1.Pod) int {
	seen, claims := map[world.WatchTarget]bool{}, 0
	visitReferences(pod, func(target world.WatchTarget) {
		if len(seen) <= budget.ReferencesMax && !seen[target] {
			seen[target] = true
			claims += furtherReferences(target)
		}
	})
	return len(seen) + claims
}

// furtherReferences returns the number of further objects that follow from one: the volume of a
// claim.
func furtherReferences(target world.WatchTarget) int {
	if target.Resource == world.ResourceClaims {
		return 1
	}
	return 0
}

// visitReferences visits the objects that a pod refers to, each as often as it does.
func visitReferences(pod *v1.Pod, visit func(world.WatchTarget)) {
	add := func(r world.Resource, name string) {
		if name != "" {
			visit(world.WatchTarget{Resource: r, Namespace: pod.Namespace, Name: name})
		}
	}
	spec := &pod.Spec
	for i := range spec.Volumes {
		v := &spec.Volumes[i]
		volumeReferences(v, add)
		if volume.HasTrustBundles(v) {
			visit(volume.AllTrustBundles)
		}
		add(world.ResourceClaims, claim.Name(pod, v))
	}
	for i := range spec.InitContainers {
		envReferences(&spec.InitContainers[i], add)
	}
	for i := range spec.Containers {
		envReferences(&spec.Containers[i], add)
	}
	for i := range spec.EphemeralContainers {
		envReferences(criconfig.EphemeralContainer(&spec.EphemeralContainers[i]), add)
	}
	for _, secret := range spec.ImagePullSecrets {
		add(world.ResourceSecrets, secret.Name)
	}
	if class := spec.RuntimeClassName; class != nil && *class != "" {
		visit(world.WatchTarget{Resource: world.ResourceRuntimeClasses, Name: *class})
	}
}

func volumeReferences(v *v1.Volume, add func(world.Resource, string)) {
	switch {
	case v.ConfigMap != nil:
		add(world.ResourceConfigMaps, v.ConfigMap.Name)
	case v.Secret != nil:
		add(world.ResourceSecrets, v.Secret.SecretName)
	case v.CSI != nil && v.CSI.NodePublishSecretRef != nil:
		add(world.ResourceSecrets, v.CSI.NodePublishSecretRef.Name)
	case v.ISCSI != nil && v.ISCSI.SecretRef != nil:
		add(world.ResourceSecrets, v.ISCSI.SecretRef.Name)
	case v.AzureFile != nil: // the CSI driver that has replaced its plugin needs it
		add(world.ResourceSecrets, v.AzureFile.SecretName)
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

// WorkOfSpec returns what a spec counts as work of a step that goes over the whole of it.
func WorkOfSpec(pod *v1.Pod) int { return pod.Spec.Size() * 4 }

// watchReferences watches the objects that the spec refers to until the pod has terminated.
func (p *Pod) watchReferences(env *Env) {
	needed := p.Spec != nil && p.Stage != Terminated
	if env.Objects == nil || needed && p.Watches.Complete || !needed && len(p.Watches.Objects) == 0 {
		return
	}
	var objects []world.WatchTarget
	var excess ObjectExcess
	if needed {
		env.Effects.CountWork(WorkOfSpec(p.Spec))
		objects = append(references(p.Spec), criconfig.AllServices)
		if p.needsCertificates(env) {
			objects = append(objects, podcertificate.AllRequests)
		}
		if p.checkBudget(objects, env) {
			return
		}
		excess, objects = p.Watches.Excess.divide(objects)
	}
	isNeeded := make(map[world.WatchTarget]bool, len(objects))
	for _, object := range objects {
		isNeeded[object] = true
		p.watch(object, env)
	}
	for _, object := range p.Watches.Objects {
		if !isNeeded[object] {
			env.Objects.DeleteReference(object, p.UID, env.Effects)
		}
	}
	p.Watches = Watches{Complete: needed, Objects: objects, Excess: excess,
		Volumes: p.Watches.Volumes}
}

// watch watches an object for the pod, and reports whether the node has a watch left for it.
func (p *Pod) watch(object world.WatchTarget, env *Env) bool {
	return env.Objects.Refer(object, p.UID, env.Enqueue, env.Effects)
}

// watchVolumes reads the persistent volumes that the pod's claims name, until the pod has
// terminated. A claim that changes may name another one.
func (p *Pod) watchVolumes(env *Env, w *wakeTimer) {
	needed := p.Spec != nil && p.Stage != Terminated
	if env.Objects == nil || needed && !p.Watches.Complete ||
		len(p.Watches.Volumes) == 0 && (!needed || len(p.specIndex().claims) == 0) {
		return
	}
	var volumes []world.WatchTarget
	if needed {
		for _, v := range p.specIndex().claims {
			name := claim.VolumeName(p.Spec, v, env.Objects)
			target := claim.VolumeTarget(name)
			switch {
			case name == "", slices.Contains(volumes, target):
			case slices.Contains(p.Watches.Volumes, target), p.watch(target, env):
				volumes = append(volumes, target)
			default: // other pods end
				w.waitUntil(w.now.Add(watchRetryPeriod))
			}
		}
	}
	for _, target := range p.Watches.Volumes {
		if !slices.Contains(volumes, target) {
			env.Objects.DeleteReference(target, p.UID, env.Effects)
		}
	}
	p.Watches.Volumes = volumes
	if needed {
		p.noteUnusableClaims(env)
	}
}

// noteUnusableClaims has claims and persistent volumes read again soon which the pod waits for and
// cannot use as they are.
func (p *Pod) noteUnusableClaims(env *Env) {
	unusable := map[world.WatchTarget]bool{}
	for _, v := range p.specIndex().claims {
		if p.Storage.Volumes.IsResolved(v.Name) {
			continue
		}
		for _, target := range claim.Unusable(p.Spec, v, env.Objects) {
			unusable[target] = true
		}
	}
	note := func(target world.WatchTarget) {
		if env.Objects.SetUsable(target, p.UID, !unusable[target], env.Effects.Now()) {
			key, _ := env.Objects.ReadKey(target)
			env.Enqueue(key)
		}
	}
	for _, v := range p.specIndex().claims {
		note(claim.Target(p.Spec, v))
	}
	for _, target := range p.Watches.Volumes {
		note(target)
	}
}

// areReferencesKnown reports whether the objects that a container's environment is taken from are
// known, or known not to be available.
func (p *Pod) areReferencesKnown(container *v1.Container, env *Env) bool {
	if env.Objects == nil {
		return true
	}
	known := p.IsStatic() || !isWatchPending(env, criconfig.AllServices)
	var since time.Time // an object that is read must be at least as new as the last exit
	if last := p.NewestRun(container.Name); last != nil {
		since = last.ExitSeenAt
	}
	envReferences(container, func(r world.Resource, name string) {
		target := world.WatchTarget{Resource: r, Namespace: p.Namespace, Name: name}
		reading := env.Objects.RequireSince(target, since)
		if key, _ := env.Objects.ReadKey(target); reading {
			env.Enqueue(key)
		}
		known = known && !reading && !isWatchPending(env, target)
	})
	return known
}

func isWatchPending(env *Env, target world.WatchTarget) bool {
	w := env.Objects.Watch(target)
	return w == nil || !w.Listed && w.Failing == nil
}
