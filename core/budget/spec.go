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
	ports, resources, selectors := 0, resourceCount(spec.Resources), nodeSelectorCount(spec)
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
		ports += len(c.Ports)
		resources += resourceCount(&c.Resources)
		mountsOfPod += mountCount(c)
		for i := 0; i < len(c.VolumeMounts) && len(isImage) > 0; i++ {
			if isImage[c.VolumeMounts[i].Name] {
				images++
			}
		}
		if mountCount(c) > mounts {
			name, mounts = c.Name, mountCount(c)
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
		return Mounts.Errorf("container %s has %d volume mounts and devices, and one container may have "+
			"%d", name, mounts, MountsMax)
	case mountsOfPod > MountsOfPodMax:
		return MountsOfPod.Errorf("the containers of the pod have %d volume mounts and devices, and one "+
			"pod may have %d", mountsOfPod, MountsOfPodMax)
	case ports > PortsMax:
		return Ports.Errorf("the containers of the pod have %d ports, and one pod may have %d", ports,
			PortsMax)
	case resources > ResourcesMax:
		return Resources.Errorf("the pod and its containers name %d resources in requests and limits, "+
			"and one pod may name %d", resources, ResourcesMax)
	case selectors > NodeSelectorMax:
		return NodeSelector.Errorf("the node selector and node affinity of the pod have %d labels, "+
			"terms, expressions and values, and one pod may have %d", selectors, NodeSelectorMax)
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
	if err := checkRepeated(spec); err != nil {
		return err
	}
	if err := checkSources(spec); err != nil {
		return err
	}
	return checkImages(spec, images)
}

// mountCount returns how many volumes and devices a container has.
func mountCount(c *v1.Container) int { return len(c.VolumeMounts) + len(c.VolumeDevices) }

// checkRepeated returns the first bound that a pod exceeds by the bytes of what its status or the
// runtime repeats, as an error.
func checkRepeated(spec *v1.PodSpec) error {
	names, paths, groups := ResourceNameBytes(spec), 0, 0
	forEachContainer(spec, func(c *v1.Container) {
		for i := range c.VolumeMounts {
			paths += len(c.VolumeMounts[i].MountPath)
		}
		for i := range c.VolumeDevices {
			paths += len(c.VolumeDevices[i].DevicePath)
		}
	})
	if security := spec.SecurityContext; security != nil {
		groups = len(security.SupplementalGroups)
	}
	switch {
	case names > ResourceNamesMax:
		return ResourceNames.Errorf("the names of resources in the requests and limits of the pod have "+
			"%d bytes, and those of one pod may have %d", names, ResourceNamesMax)
	case paths > MountPathsMax:
		return MountPaths.Errorf("the paths of the volume mounts and devices of the pod have %d bytes, "+
			"and those of one pod may have %d", paths, MountPathsMax)
	case groups > SupplementalGroupsMax:
		return SupplementalGroups.Errorf("the pod has %d supplemental groups, and one pod may have %d",
			groups, SupplementalGroupsMax)
	}
	return nil
}

// ResourceNameBytes returns the bytes of the names of all resources that a pod and its containers
// name. A name counts in each request and in each limit.
func ResourceNameBytes(spec *v1.PodSpec) int {
	bytes := 0
	count := func(lists ...v1.ResourceList) {
		for _, list := range lists {
			for name := range list { //ordered: a sum
				bytes += len(name)
			}
		}
	}
	if own := spec.Resources; own != nil {
		count(own.Requests, own.Limits)
	}
	count(spec.Overhead)
	forEachContainer(spec, func(c *v1.Container) {
		count(c.Resources.Requests, c.Resources.Limits)
	})
	return bytes
}

// checkSources returns the bound that the sources of volumes which select trust bundles, or are
// certificates, exceed by their number, as an error.
func checkSources(spec *v1.PodSpec) error {
	bundles, certificates := 0, 0
	for i := range spec.Volumes {
		projected := spec.Volumes[i].Projected
		for k := 0; projected != nil && k < len(projected.Sources); k++ {
			switch source := &projected.Sources[k]; {
			case source.ClusterTrustBundle != nil:
				bundles++
			case source.PodCertificate != nil:
				certificates++
			}
		}
	}
	switch {
	case bundles > TrustBundlesMax:
		return TrustBundles.Errorf("the volumes of the pod have %d sources of trust bundles, and those "+
			"of one pod may have %d", bundles, TrustBundlesMax)
	case certificates > PodCertificatesMax:
		return PodCertificates.Errorf("the volumes of the pod have %d sources podCertificate, and those "+
			"of one pod may have %d", certificates, PodCertificatesMax)
	}
	return nil
}

// checkImages returns the first bound that a pod exceeds by its so many images, as an error.
func checkImages(spec *v1.PodSpec, images int) error {
	switch {
	case images > ImagesMax:
		return Images.Errorf("the pod needs %d images, and one pod may need %d", images, ImagesMax)
	case len(spec.ImagePullSecrets) > PullSecretsMax:
		return PullSecrets.Errorf("the pod names %d image pull secrets, and one pod may name %d",
			len(spec.ImagePullSecrets), PullSecretsMax)
	}
	return nil
}

// CheckImageReferences returns an error if the references of a pod to images have too many bytes.
func CheckImageReferences(spec *v1.PodSpec) error {
	if bytes := imageReferenceBytes(spec); bytes > ImageReferencesOfPodMax {
		return ImageReferencesOfPod.Errorf("the references of the pod to images have %d bytes, and "+
			"those of one pod may have %d", bytes, ImageReferencesOfPodMax)
	}
	return nil
}

// imageReferenceBytes returns the bytes of the different references to images that are not refused
// by themselves.
func imageReferenceBytes(spec *v1.PodSpec) int {
	bytes, isCounted := 0, map[string]bool{}
	count := func(reference string) {
		if len(reference) <= ImageReferenceMax && !isCounted[reference] {
			isCounted[reference] = true
			bytes += len(reference)
		}
	}
	for i := range spec.Volumes {
		if image := spec.Volumes[i].Image; image != nil {
			count(image.Reference)
		}
	}
	forEachContainer(spec, func(c *v1.Container) { count(c.Image) })
	return bytes
}

// resourceCount returns how many resources have a request or a limit.
func resourceCount(r *v1.ResourceRequirements) int {
	if r == nil {
		return 0
	}
	return max(len(r.Requests), len(r.Limits))
}

// nodeSelectorCount returns how much there is to match against the labels of the node.
func nodeSelectorCount(spec *v1.PodSpec) int {
	count := len(spec.NodeSelector)
	if spec.Affinity == nil || spec.Affinity.NodeAffinity == nil {
		return count
	}
	required := spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	if required == nil {
		return count
	}
	for i := range required.NodeSelectorTerms {
		term := &required.NodeSelectorTerms[i]
		count++
		for _, list := range [][]v1.NodeSelectorRequirement{term.MatchExpressions, term.MatchFields} {
			for k := range list {
				count += 1 + len(list[k].Values)
			}
		}
	}
	return count
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
		do(&v1.Container{Name: c.Name, Image: c.Image, VolumeMounts: c.VolumeMounts,
			VolumeDevices: c.VolumeDevices})
	}
}
