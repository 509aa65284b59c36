package pod

import (
	"fmt"
	"reflect"

	v1 "k8s.io/api/core/v1"
)

// Unsupported lists what a pod asks for that this version does not do and that would make it run
// wrong if it were left out. Such a pod is refused instead. This is the one list; a feature that
// is built takes its line out.
func Unsupported(pod *v1.Pod) []string {
	var found []string
	add := func(missing bool, path string, args ...any) {
		if missing {
			found = append(found, fmt.Sprintf(path, args...))
		}
	}
	spec := &pod.Spec
	add(len(spec.Volumes) > 0, "spec.volumes")
	add(spec.RuntimeClassName != nil, "spec.runtimeClassName")
	add(len(spec.EphemeralContainers) > 0, "spec.ephemeralContainers")
	add(len(spec.ResourceClaims) > 0, "spec.resourceClaims")
	add(len(spec.HostAliases) > 0, "spec.hostAliases")
	add(spec.DNSConfig != nil, "spec.dnsConfig")
	add(spec.HostUsers != nil && !*spec.HostUsers, "spec.hostUsers")
	add(spec.ActiveDeadlineSeconds != nil, "spec.activeDeadlineSeconds")
	add(spec.Resources != nil, "spec.resources")
	add(spec.SecurityContext != nil &&
		!reflect.ValueOf(*spec.SecurityContext).IsZero(), "spec.securityContext")
	for i := range spec.InitContainers {
		c := &spec.InitContainers[i]
		add(c.RestartPolicy != nil, "spec.initContainers[%d].restartPolicy", i)
		unsupportedIn(c, fmt.Sprintf("spec.initContainers[%d]", i), add)
	}
	for i := range spec.Containers {
		unsupportedIn(&spec.Containers[i], fmt.Sprintf("spec.containers[%d]", i), add)
	}
	return found
}

func unsupportedIn(c *v1.Container, path string, add func(bool, string, ...any)) {
	add(len(c.EnvFrom) > 0, "%s.envFrom", path)
	for i := range c.Env {
		add(c.Env[i].ValueFrom != nil, "%s.env[%d].valueFrom", path, i)
	}
	add(len(c.VolumeMounts) > 0, "%s.volumeMounts", path)
	add(len(c.VolumeDevices) > 0, "%s.volumeDevices", path)
	add(c.LivenessProbe != nil, "%s.livenessProbe", path)
	add(c.ReadinessProbe != nil, "%s.readinessProbe", path)
	add(c.StartupProbe != nil, "%s.startupProbe", path)
	add(c.Lifecycle != nil, "%s.lifecycle", path)
	add(c.SecurityContext != nil, "%s.securityContext", path)
	add(len(c.RestartPolicyRules) > 0, "%s.restartPolicyRules", path)
}
