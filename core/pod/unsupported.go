package pod

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
)

// Unsupported lists what a pod asks for that this version does not do, or is told not to do, and
// that would make it run wrong if it were left out. Such a pod is refused instead. This is the one
// list; a feature that is built takes its line out.
func Unsupported(pod *v1.Pod, restartsAll bool) []string {
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
		for _, field := range unsupportedIn(&spec.InitContainers[i], spec, restartsAll) {
			add(true, "spec.initContainers[%d].%s", i, field)
		}
	}
	for i := range spec.Containers {
		for _, field := range unsupportedIn(&spec.Containers[i], spec, restartsAll) {
			add(true, "spec.containers[%d].%s", i, field)
		}
	}
	return found
}

func unsupportedIn(c *v1.Container, spec *v1.PodSpec, restartsAll bool) []string {
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
	e := effective(spec, c)
	add(e.WindowsOptions != nil, "securityContext.windowsOptions")
	for i := range c.RestartPolicyRules {
		rule := &c.RestartPolicyRules[i]
		add(rule.Action != v1.ContainerRestartRuleActionRestart && !restartsAll, fmt.Sprintf(
			"restartPolicyRules[%d].action (%s, feature gate RestartAllContainersOnContainerExits)",
			i, rule.Action))
	}
	return found
}

// unsupportedVolume is what of a volume cannot be had; empty if there is no such thing.
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

// unsupportedFile is the first file of a volume whose value is not known: how much storage the
// node has.
func unsupportedFile(files []v1.DownwardAPIVolumeFile, spec *v1.PodSpec) string {
	for i := range files {
		if ref := files[i].ResourceFieldRef; ref != nil &&
			ref.Resource == "limits.ephemeral-storage" &&
			!limitsStorage(ref.ContainerName, &v1.Container{}, spec) {
			return " (" + files[i].Path + ": limits.ephemeral-storage without a limit)"
		}
	}
	return ""
}

// unsupportedSource is what a variable cannot be taken from; empty if there is no such thing.
func unsupportedSource(v *v1.EnvVar, c *v1.Container, spec *v1.PodSpec) string {
	from := v.ValueFrom
	switch {
	case from == nil:
		return ""
	case from.FileKeyRef != nil:
		return "fileKeyRef"
	case from.ResourceFieldRef != nil:
		// How much storage the node has is not known.
		if ref := from.ResourceFieldRef; ref.Resource == "limits.ephemeral-storage" &&
			!limitsStorage(ref.ContainerName, c, spec) {
			return "resourceFieldRef (limits.ephemeral-storage without a limit)"
		}
	}
	return ""
}

// limitsStorage says whether a container has a limit of storage: that of the name, or c if empty.
// One that there is not is for the status to tell.
func limitsStorage(name string, c *v1.Container, spec *v1.PodSpec) bool {
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
