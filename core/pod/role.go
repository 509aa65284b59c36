package pod

import (
	"time"

	v1 "k8s.io/api/core/v1"
)

// Role is what a container is to its pod.
type Role string

// The roles. A sidecar is an init container with restartPolicy Always: what comes after it starts
// once it runs, it is restarted whatever the pod's policy says, and it ends after all others
// (KEP-753).
const (
	App     Role = "App"
	Init    Role = "Init"
	Sidecar Role = "Sidecar"
)

// initRole is the role of one of the spec's init containers.
func initRole(want *v1.Container) Role {
	if want.RestartPolicy != nil && *want.RestartPolicy == v1.ContainerRestartPolicyAlways {
		return Sidecar
	}
	return Init
}

// role is the role of a container of the spec; what the spec does not name is an app container.
func (p *Pod) role(name string) Role {
	for i := range p.Spec.Spec.InitContainers {
		if want := &p.Spec.Spec.InitContainers[i]; want.Name == name {
			return initRole(want)
		}
	}
	return App
}

// sidecarNumber is the place of a sidecar among the init containers, from one; zero if the
// container is none.
func (p *Pod) sidecarNumber(name string) int {
	for i := range p.Spec.Spec.InitContainers {
		want := &p.Spec.Spec.InitContainers[i]
		if want.Name == name && initRole(want) == Sidecar {
			return i + 1
		}
	}
	return 0
}

// sidecarGraceMin is what a sidecar gets at least, when the others have used the grace period up.
const sidecarGraceMin = 2 * time.Second

// stopAll stops every container that runs: first all but the sidecars, at once, then the sidecars
// one by one, the last one first. It reports whether any is still running.
//
// A stop that has to be repeated gets its whole grace period again: whether the first one has
// sent TERM is not known, and a container is never given less than its due. Sidecars get what is
// left of the pod's.
func (p *Pod) stopAll(env *Env, w *waits) bool {
	grace := p.grace()
	if p.Stage != Syncing {
		grace = p.Kill.Grace
	}
	last := (*Container)(nil) // the sidecar to stop next
	for i := range p.Containers {
		c := &p.Containers[i]
		if !c.live() {
			continue
		}
		if last == nil || c.Sidecar == 0 || last.Sidecar != 0 && c.Sidecar > last.Sidecar {
			last = c
		}
		if c.Sidecar == 0 {
			p.stop(c, grace, env, w)
		}
	}
	if last != nil && last.Sidecar != 0 && p.settled() { // nothing else may be about to start
		if p.Stage != Syncing {
			left := grace - env.Out.Now().Sub(p.Kill.At)
			grace = max(left, min(sidecarGraceMin, grace))
		}
		p.stop(last, grace, env, w)
	}
	return last != nil
}
