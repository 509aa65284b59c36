package oracle

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/sim/truth"
)

// csiDevices fires when a container is started that does not have the device of a block volume
// where its spec names it, has another one there, may do more or less with it than the pod asks
// for, or has a device that its spec does not name, and when nothing keeps the device open: another
// one could get its number.
type csiDevices struct {
	devices map[string][]*runtimeapi.Device // by ID of the container that was created with them
}

func (*csiDevices) describe() Entry {
	return Entry{"csi-devices", "A container has the devices of its pod's block volumes where its " +
		"spec names them, with the rights that the pod asks for, and no other devices."}
}

func (o *csiDevices) checkFact(m *model, f *truth.Fact) *finding {
	switch f.Kind {
	case truth.ContainerCreated:
		if o.devices == nil {
			o.devices = map[string][]*runtimeapi.Device{}
		}
		if devices := f.ContainerConfig.GetDevices(); len(devices) > 0 {
			o.devices[f.ContainerID] = devices
		}
	case truth.ContainerStarted:
		devices := o.devices[f.ContainerID]
		delete(o.devices, f.ContainerID)
		return o.checkStart(m, f, devices)
	}
	return nil
}

// checkStart checks the devices of a container that is started.
func (o *csiDevices) checkStart(m *model, f *truth.Fact, devices []*runtimeapi.Device) *finding {
	p := m.pods[f.PodUID]
	if p == nil || p.spec == nil || p.specChanged || p.wasRemoved() {
		return nil
	}
	c := containerOf(p.spec, f.Container)
	if c == nil {
		return nil
	}
	for i := range c.VolumeDevices {
		if problem := m.findWrongDevice(p, &c.VolumeDevices[i], devices); problem != nil {
			return problem
		}
	}
	for _, d := range devices {
		if !slices.ContainsFunc(c.VolumeDevices, func(v v1.VolumeDevice) bool {
			return v.DevicePath == d.ContainerPath
		}) {
			return findingf("container %s of %s has a device at %s, which its spec does not name",
				f.Container, p, d.ContainerPath)
		}
	}
	return nil
}

// findWrongDevice returns that a container has not the device that its spec names.
func (m *model) findWrongDevice(p *pod, named *v1.VolumeDevice,
	devices []*runtimeapi.Device) *finding {
	of := slices.IndexFunc(p.spec.Spec.Volumes, func(v v1.Volume) bool { return v.Name == named.Name })
	uses := m.csiUses(p.spec)
	is := slices.IndexFunc(uses, func(u csiUse) bool { return u.volume == named.Name })
	if of < 0 || is < 0 || m.csi.lied[uses[is].path] || m.opts.DeviceAt == nil {
		return nil
	}
	at := slices.IndexFunc(devices, func(d *runtimeapi.Device) bool {
		return d.ContainerPath == named.DevicePath
	})
	if at < 0 {
		return findingf("a container of %s was started without the device of volume %s", p, named.Name)
	}
	permissions := "mrw"
	if _, readOnly := claimName(p.spec, &p.spec.Spec.Volumes[of]); readOnly {
		permissions = "r"
	}
	want := "/dev/" + uses[is].driver + "/" + uses[is].handle
	source, _ := m.opts.DeviceAt(devices[at].HostPath)
	bound := m.csiBlocks() + "/" + uses[is].pv + "/dev/" + p.uid
	switch {
	case m.opts.IsDeviceHeld != nil && !m.opts.IsDeviceHeld(bound):
		return findingf("a container of %s was started, and nothing holds the device of volume %s", p,
			named.Name)
	case source != want:
		return findingf("a container of %s has the device %q at %s, not %s", p, source,
			named.DevicePath, want)
	case devices[at].Permissions != permissions:
		return findingf("a container of %s has the rights %q on the device at %s, not %q", p,
			devices[at].Permissions, named.DevicePath, permissions)
	}
	return nil
}
