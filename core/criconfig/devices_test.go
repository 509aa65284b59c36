package criconfig

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/csi"
	"seedlet.dev/core/volume"
)

// A directory is never passed as a device: a runtime would pass all devices that a tenant has made
// in it. Nor is a device mounted. An ephemeral container that is added later may ask for either.
func TestDevicesAreThoseOfBlockVolumes(t *testing.T) {
	for _, isBlock := range []bool{false, true} {
		p := newPod()
		p.setVolumes(v1.Volume{Name: "data", VolumeSource: v1.VolumeSource{
			PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}})
		p.Mounted = &volume.Set{Volumes: []volume.Volume{{Name: "data", Backing: &volume.Backing{
			Plugin: volume.CSIPlugin, Name: "pv", CSI: &csi.Use{Block: isBlock}}}}}
		c := p.web()
		c.VolumeDevices = []v1.VolumeDevice{{Name: "data", DevicePath: "/dev/x"}}
		if devices, err := p.devices(c); (err == nil) != isBlock || isBlock && len(devices) != 1 {
			t.Errorf("block %v, as a device: got %v, %v", isBlock, devices, err)
		}
		c.VolumeMounts = []v1.VolumeMount{{Name: "data", MountPath: "/data"}}
		if mounts, err := p.mounts(c, nil, Images{}); (err == nil) == isBlock {
			t.Errorf("block %v, as a mount: got %v, %v", isBlock, mounts, err)
		}
	}
}
