package claim

import v1 "k8s.io/api/core/v1"

// Use is how the containers of a pod use a volume. A volume that is not used is not set up, as the
// kubelet does not.
type Use struct {
	Mounted bool // in volumeMounts
	Device  bool // in volumeDevices
}

// UsesOf returns how the containers of a pod use its volumes, by name, ephemeral containers
// included. A volume that none uses is left out.
func UsesOf(pod *v1.Pod) map[string]Use {
	uses := map[string]Use{}
	visitUses(pod, func(mounts []v1.VolumeMount, devices []v1.VolumeDevice) {
		for i := range mounts {
			use := uses[mounts[i].Name]
			use.Mounted = true
			uses[mounts[i].Name] = use
		}
		for i := range devices {
			use := uses[devices[i].Name]
			use.Device = true
			uses[devices[i].Name] = use
		}
	})
	return uses
}

func visitUses(pod *v1.Pod, visit func([]v1.VolumeMount, []v1.VolumeDevice)) {
	spec := &pod.Spec
	for i := range spec.InitContainers {
		visit(spec.InitContainers[i].VolumeMounts, spec.InitContainers[i].VolumeDevices)
	}
	for i := range spec.Containers {
		visit(spec.Containers[i].VolumeMounts, spec.Containers[i].VolumeDevices)
	}
	for i := range spec.EphemeralContainers {
		visit(spec.EphemeralContainers[i].VolumeMounts, spec.EphemeralContainers[i].VolumeDevices)
	}
}
