package budget

import (
	v1 "k8s.io/api/core/v1"
)

// CheckSpec returns the first bound of a pod as a whole that its spec exceeds, as an error; nil if
// it exceeds none. Tokens and references are the numbers that the pod needs.
func CheckSpec(spec *v1.PodSpec, tokens, references int) error {
	containers := len(spec.InitContainers) + len(spec.Containers) + len(spec.EphemeralContainers)
	probes := 0.0 // in a second
	name, mounts, mountsOfPod, images := "", 0, 0, containers
	isImage := make(map[string]bool)
	for i := range spec.Volumes {
		if spec.Volumes[i].Image != nil {
			isImage[spec.Volumes[i].Name] = true
		}
	}
	forEachContainer(spec, func(c *v1.Container) {
		for _, probe := range []*v1.Probe{c.StartupProbe, c.LivenessProbe, c.ReadinessProbe} {
			if probe != nil {
				probes += 1 / float64(max(probe.PeriodSeconds, 1))
			}
		}
		mountsOfPod += len(c.VolumeMounts)
		for i := 0; i < len(c.VolumeMounts) && len(isImage) > 0; i++ {
			if isImage[c.VolumeMounts[i].Name] {
				images++
			}
		}
		if len(c.VolumeMounts) > mounts {
			name, mounts = c.Name, len(c.VolumeMounts)
		}
	})
	switch {
	case containers > ContainersMax:
		return Containers.Errorf("the pod has %d containers, and one pod may have %d", containers,
			ContainersMax)
	case len(spec.Volumes) > VolumesMax:
		return Volumes.Errorf("the pod has %d volumes, and one pod may have %d", len(spec.Volumes),
			VolumesMax)
	case mounts > MountsMax:
		return Mounts.Errorf("container %s has %d volume mounts, and one container may have %d", name,
			mounts, MountsMax)
	case mountsOfPod > MountsOfPodMax:
		return MountsOfPod.Errorf("the containers of the pod have %d volume mounts, and one pod may "+
			"have %d", mountsOfPod, MountsOfPodMax)
	case images > ImagesMax:
		return Images.Errorf("the pod needs %d images, and one pod may need %d", images, ImagesMax)
	case probes > ProbesMax:
		return Probes.Errorf("the pod has %.0f probes per second, and one pod may have %d", probes,
			ProbesMax)
	case tokens > TokensMax:
		return Tokens.Errorf("the pod needs %d service account tokens, and one pod may have %d", tokens,
			TokensMax)
	case references > ReferencesMax:
		return References.Errorf("the pod refers to %d API objects, and one pod may refer to %d",
			references, ReferencesMax)
	}
	return nil
}

func forEachContainer(spec *v1.PodSpec, do func(*v1.Container)) {
	for i := range spec.InitContainers {
		do(&spec.InitContainers[i])
	}
	for i := range spec.Containers {
		do(&spec.Containers[i])
	}
	for i := range spec.EphemeralContainers {
		c := &spec.EphemeralContainers[i]
		do(&v1.Container{Name: c.Name, VolumeMounts: c.VolumeMounts})
	}
}
