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
		for _, field := range unsupportedIn(c) {
			add(true, "spec.initContainers[%d].%s", i, field)
		}
	}
	for i := range spec.Containers {
		for _, field := range unsupportedIn(&spec.Containers[i]) {
			add(true, "spec.containers[%d].%s", i, field)
		}
	}
	return found
}

func unsupportedIn(c *v1.Container) []string {
	var found []string
	add := func(missing bool, field string) {
		if missing {
			found = append(found, field)
		}
	}
	add(len(c.EnvFrom) > 0, "envFrom")
	for i := range c.Env {
		add(c.Env[i].ValueFrom != nil, "env.valueFrom")
	}
	add(len(c.VolumeMounts) > 0, "volumeMounts")
	add(len(c.VolumeDevices) > 0, "volumeDevices")
	add(c.LivenessProbe != nil, "livenessProbe")
	add(c.ReadinessProbe != nil, "readinessProbe")
	add(c.StartupProbe != nil, "startupProbe")
	add(c.Lifecycle != nil, "lifecycle")
	add(c.SecurityContext != nil, "securityContext")
	add(len(c.RestartPolicyRules) > 0, "restartPolicyRules")
	return found
}
