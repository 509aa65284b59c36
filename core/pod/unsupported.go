package pod

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/criconfig"
)

// UnsupportedFields lists the fields of a pod that this version does not support, or that are
// disabled, and without which the pod would run wrongly. Such a pod is rejected. This is the only
// list of such fields; a feature that is implemented removes its line.
func UnsupportedFields(pod *v1.Pod, restartsAll bool) []string {
	var found []string
	add := func(missing bool, path string, args ...any) {
		if missing {
			found = append(found, fmt.Sprintf(path, args...))
		}
	}
	spec := &pod.Spec
	for i := range spec.Volumes {
		source := unsupportedVolume(&spec.Volumes[i], spec)
		add(source != "", "spec.volumes[%d]%s", i, source)
	}
	add(len(spec.ResourceClaims) > 0, "spec.resourceClaims")
	if s := spec.SecurityContext; s != nil {
		add(s.WindowsOptions != nil, "spec.securityContext.windowsOptions")
	}
	for i := range spec.InitContainers {
		for _, field := range unsupportedInContainer(&spec.InitContainers[i], spec, restartsAll) {
			add(true, "spec.initContainers[%d].%s", i, field)
		}
	}
	for i := range spec.Containers {
		for _, field := range unsupportedInContainer(&spec.Containers[i], spec, restartsAll) {
			add(true, "spec.containers[%d].%s", i, field)
		}
	}
	return found
}

func unsupportedInContainer(c *v1.Container, spec *v1.PodSpec, restartsAll bool) []string {
	var found []string
	add := func(missing bool, field string) {
		if missing {
			found = append(found, field)
		}
	}
	for i := range c.Env {
		source := unsupportedSource(&c.Env[i], c, spec)
		add(source != "", fmt.Sprintf("env[%d].valueFrom.%s", i, source))
	}
	add(len(c.VolumeDevices) > 0, "volumeDevices")
	e := criconfig.EffectiveSecurityContext(spec, c)
	add(e.WindowsOptions != nil, "securityContext.windowsOptions")
	for i := range c.RestartPolicyRules {
		rule := &c.RestartPolicyRules[i]
		add(rule.Action != v1.ContainerRestartRuleActionRestart && !restartsAll, fmt.Sprintf(
			"restartPolicyRules[%d].action (%s, feature gate RestartAllContainersOnContainerExits)",
			i, rule.Action))
	}
	return found
}

// unsupportedVolume returns the part of a volume that is not supported; empty if all of it is.
func unsupportedVolume(v *v1.Volume, spec *v1.PodSpec) string {
	switch {
	case v.HostPath != nil, v.EmptyDir != nil, v.Image != nil, v.ConfigMap != nil, v.Secret != nil:
		return ""
	case v.DownwardAPI != nil:
		return unsupportedFile(v.DownwardAPI.Items, spec)
	case v.Projected == nil:
		return " (" + v.Name + ")"
	}
	for i, source := range v.Projected.Sources {
		if source.PodCertificate != nil {
			return fmt.Sprintf(".projected.sources[%d]", i)
		}
		if source.DownwardAPI == nil {
			continue
		}
		if file := unsupportedFile(source.DownwardAPI.Items, spec); file != "" {
			return file
		}
	}
	return ""
}

// unsupportedFile returns the first downward API file that holds the storage capacity of the node,
// which is not known.
func unsupportedFile(files []v1.DownwardAPIVolumeFile, spec *v1.PodSpec) string {
	for i := range files {
		if ref := files[i].ResourceFieldRef; ref != nil &&
			ref.Resource == "limits.ephemeral-storage" &&
			!hasStorageLimit(ref.ContainerName, &v1.Container{}, spec) {
			return " (" + files[i].Path + ": limits.ephemeral-storage without a limit)"
		}
	}
	return ""
}

// unsupportedSource returns the source of an environment variable that is not supported; empty if
// it is.
func unsupportedSource(v *v1.EnvVar, c *v1.Container, spec *v1.PodSpec) string {
	from := v.ValueFrom
	switch {
	case from == nil:
		return ""
	case from.ResourceFieldRef != nil:
		// The storage capacity of the node is not known.
		if ref := from.ResourceFieldRef; ref.Resource == "limits.ephemeral-storage" &&
			!hasStorageLimit(ref.ContainerName, c, spec) {
			return "resourceFieldRef (limits.ephemeral-storage without a limit)"
		}
	}
	return ""
}

// hasStorageLimit reports whether a container has a limit of ephemeral storage: the container of
// the name, or c if the name is empty. A name that does not exist counts as having one; the status
// reports it later.
func hasStorageLimit(name string, c *v1.Container, spec *v1.PodSpec) bool {
	named := func(o v1.Container) bool { return o.Name == name }
	if i := slices.IndexFunc(spec.Containers, named); i >= 0 {
		c = &spec.Containers[i]
	} else if i := slices.IndexFunc(spec.InitContainers, named); i >= 0 {
		c = &spec.InitContainers[i]
	} else if name != "" {
		return true
	}
	return !c.Resources.Limits.StorageEphemeral().IsZero()
}
