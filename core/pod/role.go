package pod

import v1 "k8s.io/api/core/v1"

// Role is what a container is to its pod.
type Role string

// The roles. A sidecar is an init container with restartPolicy Always: what comes after it starts
// once it runs, it is restarted whatever the pod's policy says, and it ends after all others
// (KEP-753).
const (
	App     Role = "App"
	Init    Role = "Init"
	Sidecar Role = "Sidecar"
	// Ephemeral containers are added to a pod that runs, to look into it. They start whatever the
	// others do, are never restarted, and decide nothing about the pod (KEP-277).
	Ephemeral Role = "Ephemeral"
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
	for i := range p.Spec.Spec.EphemeralContainers {
		if p.Spec.Spec.EphemeralContainers[i].Name == name {
			return Ephemeral
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
