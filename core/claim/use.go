package claim

import v1 "k8s.io/api/core/v1"

// Use is how the containers of a pod use a volume. A volume that is not used is not set up, as the
// kubelet does not.
type Use struct {
	Mounted bool // in volumeMounts
	Device  bool // in volumeDevices
}

// UseOf returns how the containers of a pod use a volume, ephemeral containers included.
func UseOf(pod *v1.Pod, volume string) Use {
	var use Use
	visitUses(pod, func(mounts []v1.VolumeMount, devices []v1.VolumeDevice) {
		for i := range mounts {
			use.Mounted = use.Mounted || mounts[i].Name == volume
		}
		for i := range devices {
			use.Device = use.Device || devices[i].Name == volume
		}
	})
	return use
}

// UsedVolumes returns the names of the volumes that containers use, ephemeral containers included.
func UsedVolumes(pod *v1.Pod) map[string]bool {
	used := map[string]bool{}
	visitUses(pod, func(mounts []v1.VolumeMount, devices []v1.VolumeDevice) {
		for i := range mounts {
			used[mounts[i].Name] = true
		}
		for i := range devices {
			used[devices[i].Name] = true
		}
	})
	return used
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
