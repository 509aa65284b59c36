package pod

import v1 "k8s.io/api/core/v1"

// Role is the role of a container in its pod.
type Role string

// The roles. A sidecar is an init container with restartPolicy Always: the containers after it
// start once it has started, it is restarted whatever the pod's restart policy, and it is stopped
// after all app containers (KEP-753).
const (
	App     Role = "App"
	Init    Role = "Init"
	Sidecar Role = "Sidecar"
	// Ephemeral containers are added to a running pod to debug it. They start whatever the other
	// containers do, are never restarted, and do not affect the pod's phase (KEP-277).
	Ephemeral Role = "Ephemeral"
)

// InitRole returns the role of one of the spec's init containers.
func InitRole(container *v1.Container) Role {
	if container.RestartPolicy != nil && *container.RestartPolicy == v1.ContainerRestartPolicyAlways {
		return Sidecar
	}
	return Init
}
