package oracle

import (
	"fmt"
	"maps"
	"path"
	"slices"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/sim/truth"
)

// volumeDevices fires when a container is started that does not have the device of a block volume
// where its spec names it, has another one there, may do more or less with it than the pod asks
// for, or has a device that its spec does not name, and when nothing keeps the device open, also
// later while the container runs: another one could get its number. It fires as well when the
// directory of a pod is removed before the device is unmounted that was bound for it.
type volumeDevices struct {
	created map[string][]*runtimeapi.Device // by ID of the container that was created with them
	running map[string]deviceUser           // by ID of the container that runs with devices
}

// deviceUser is a container that runs with devices.
type deviceUser struct {
	uid, name string
	devices   []*runtimeapi.Device
}

func (*volumeDevices) describe() Entry {
	return Entry{"devices", "A container has the devices of its pod's block volumes where its " +
		"spec names them, with the rights that the pod asks for, and no other devices, and they are " +
		"kept for it as long as it runs."}
}

func (o *volumeDevices) checkFact(m *model, f *truth.Fact) *finding {
	switch f.Kind {
	case truth.ContainerCreated:
		if o.created == nil {
			o.created, o.running = map[string][]*runtimeapi.Device{}, map[string]deviceUser{}
		}
		if devices := f.ContainerConfig.GetDevices(); len(devices) > 0 {
			o.created[f.ContainerID] = devices
		}
	case truth.ContainerStarted:
		devices := o.created[f.ContainerID]
		delete(o.created, f.ContainerID)
		if len(devices) > 0 {
			o.running[f.ContainerID] = deviceUser{f.PodUID, f.Container, devices}
		}
		return o.checkStart(m, f, devices)
	case truth.ContainerExited, truth.ContainerRemoved, truth.ContainerLost:
		delete(o.running, f.ContainerID)
	case truth.PowerLost:
		clear(o.running)
	case truth.DeviceReleased, truth.Unmounted:
		return o.checkLoss(m, f)
	case truth.PathRemoved:
		return checkBoundBehind(m, f)
	}
	return nil
}

// checkBoundBehind checks that the directory of a pod, which has the link to a device, goes after
// what is bound.
func checkBoundBehind(m *model, f *truth.Fact) *finding {
	uid, below := childName(m.opts.PodsDir, f.Path)
	if f.Cause != "" || !below || f.Path != m.opts.PodsDir+"/"+uid {
		return nil
	}
	for i := range m.volumes.mounts {
		at := m.volumes.mounts[i].path
		if of, _ := boundDevice(m, at); of == uid {
			return findingf("%s was removed while a device is bound to %s", f.Path, at)
		}
	}
	return nil
}

// checkStart checks the devices of a container that is started.
func (o *volumeDevices) checkStart(m *model, f *truth.Fact,
	devices []*runtimeapi.Device) *finding {
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

// checkLoss checks that no container has the device that the agent unmounts or releases. A delayed
// operation from before a manifest came back is excused, as by the oracle volumes.
func (o *volumeDevices) checkLoss(m *model, f *truth.Fact) *finding {
	uid, volume := boundDevice(m, f.Path)
	p := m.pods[uid]
	if f.Cause != "" || p == nil || p.wasRemoved() && p.timesDesired > 1 {
		return nil
	}
	for _, user := range o.running { //ordered: whether there is one
		if user.uid == uid && slices.ContainsFunc(user.devices, func(d *runtimeapi.Device) bool {
			return path.Base(d.HostPath) == volume
		}) {
			return findingf("%s: %s, while container %s of %s has the device", f.Path, f.Kind, user.name,
				p)
		}
	}
	return nil
}

// boundDevice returns for which pod, and of which volume, a device is bound to a path; empty if
// none is.
func boundDevice(m *model, at string) (uid, volume string) {
	switch {
	case isWithin(at, m.localBlocks()):
		return path.Base(at), path.Base(path.Dir(at))
	case m.isInDiskBlocks(at):
		uid = path.Base(at)
		return uid, m.boundDisk(m.pods[uid], at)
	case isBoundPath(at):
		return path.Base(at), path.Base(path.Dir(path.Dir(at)))
	}
	return "", ""
}

// localBlocks returns the directory of the local volumes of volumeMode Block.
func (m *model) localBlocks() string {
	return path.Dir(m.opts.PodsDir) + "/plugins/kubernetes.io~local-volume/volumeDevices"
}

// blockVolume is a block volume of a pod: its device, and the path to which that is to be bound.
type blockVolume struct{ device, bound string }

// blockVolumeOf returns a block volume of a pod by its name in the pod; nil if it is none, or not
// known. That its driver has lied about it shows: there is no device.
func (m *model) blockVolumeOf(p *pod, v *v1.Volume) *blockVolume {
	for _, use := range m.csiUses(p.spec) {
		if use.volume == v.Name {
			return &blockVolume{"/dev/" + use.driver + "/" + use.handle,
				m.csiBlocks() + "/" + use.pv + "/dev/" + p.uid}
		}
	}
	if d := m.volumes.diskOf(p.spec, v); d != nil {
		return &blockVolume{d.node(), m.diskBlocks(d.kind) + "/" + d.dir() + "/" + p.uid}
	}
	if pv := m.volumes.volumeOf(p.spec, v); pv != nil && pv.Spec.Local != nil {
		return &blockVolume{pv.Spec.Local.Path, m.localBlocks() + "/" + pv.Name + "/" + p.uid}
	}
	return nil
}

// findWrongDevice returns that a container has not the device that its spec names.
func (m *model) findWrongDevice(p *pod, named *v1.VolumeDevice,
	devices []*runtimeapi.Device) *finding {
	of := slices.IndexFunc(p.spec.Spec.Volumes, func(v v1.Volume) bool {
		return v.Name == named.Name
	})
	if of < 0 || m.opts.DeviceAt == nil {
		return nil
	}
	want := m.blockVolumeOf(p, &p.spec.Spec.Volumes[of])
	if want == nil {
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
	source, _ := m.opts.DeviceAt(devices[at].HostPath)
	switch {
	case m.volumes.held[want.bound].IsZero():
		return findingf("a container of %s was started, and nothing holds the device of volume %s", p,
			named.Name)
	case source != want.device:
		return findingf("a container of %s has the device %q at %s, not %s", p, source,
			named.DevicePath, want.device)
	case devices[at].Permissions != permissions:
		return findingf("a container of %s has the rights %q on the device at %s, not %q", p,
			devices[at].Permissions, named.DevicePath, permissions)
	}
	return nil
}

// unsettledBlocks returns which devices are bound, or kept open, for pods that are not desired, or
// that have ended, and the files and links that are left of that.
func (m *model) unsettledBlocks() []string {
	var lines []string
	isLeft := func(at string) bool {
		uid, _ := boundDevice(m, at)
		p := m.pods[uid]
		return uid != "" &&
			(p == nil || p.spec == nil || isWithin(at, m.localBlocks()) && p.hasEnded())
	}
	for i := range m.volumes.mounts {
		if at := m.volumes.mounts[i].path; isWithin(at, m.localBlocks()) && isLeft(at) {
			lines = append(lines, fmt.Sprintf("no pod has the device that is bound to %s", at))
		}
	}
	for _, at := range slices.Sorted(maps.Keys(m.volumes.held)) {
		if isLeft(at) {
			lines = append(lines, fmt.Sprintf("no pod has the device that is kept open at %s", at))
		}
	}
	if m.opts.ListFiles == nil {
		return lines
	}
	for volume := range m.opts.ListFiles(m.localBlocks()) {
		dir := m.localBlocks() + "/" + volume.Name
		for file := range m.opts.ListFiles(dir) {
			if isLeft(dir + "/" + file.Name) {
				lines = append(lines, fmt.Sprintf("no pod needs %s/%s", dir, file.Name))
			}
		}
	}
	for _, p := range m.podsInOrder {
		dir := m.opts.PodsDir + "/" + p.uid + "/volumeDevices/kubernetes.io~local-volume"
		if p.spec == nil || !p.hasEnded() {
			continue // what is left of the directory of a pod that is not desired is reported before
		}
		for link := range m.opts.ListFiles(dir) {
			lines = append(lines, fmt.Sprintf("pod %s has ended, and %s/%s is left", p, dir, link.Name))
		}
	}
	return lines
}

// hasEnded reports whether the pod is in a terminal phase at the API server and nothing of it runs.
func (p *pod) hasEnded() bool { return !p.terminalAt.IsZero() && p.liveContainers == 0 }
