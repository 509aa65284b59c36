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
	spec := &pod.Spec
	for i := range spec.InitContainers {
		use.add(volume, spec.InitContainers[i].VolumeMounts, spec.InitContainers[i].VolumeDevices)
	}
	for i := range spec.Containers {
		use.add(volume, spec.Containers[i].VolumeMounts, spec.Containers[i].VolumeDevices)
	}
	for i := range spec.EphemeralContainers {
		use.add(volume, spec.EphemeralContainers[i].VolumeMounts,
			spec.EphemeralContainers[i].VolumeDevices)
	}
	return use
}

// IsUsed reports whether a container uses the volume.
func (u Use) IsUsed() bool { return u.Mounted || u.Device }

func (u *Use) add(volume string, mounts []v1.VolumeMount, devices []v1.VolumeDevice) {
	for i := range mounts {
		u.Mounted = u.Mounted || mounts[i].Name == volume
	}
	for i := range devices {
		u.Device = u.Device || devices[i].Name == volume
	}
}
