package oracle

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/world"
)

// deviceSizes fires when the size that the agent serves of a block volume of the kinds local, iscsi
// and fc is not that of its device, or anything else is served of it, and when the size is not
// served although the pod has had the device for long. (Those of CSI drivers are judged by
// csi-stats.)
type deviceSizes struct{}

func (*deviceSizes) describe() Entry {
	return Entry{"device-sizes", "Of a block volume that a pod has, the agent serves the size of " +
		"the device, and nothing else."}
}

// deviceSizeBound is how long the size of a device may be unknown: a period, and the time until the
// next plan.
const deviceSizeBound = 2 * time.Minute

// findWrongDeviceSize returns that what is served of a block volume of a pod is not its size.
func (m *model) findWrongDeviceSize(now time.Time, p *pod,
	known map[string]*world.VolumeUsage) *finding {
	for i := range p.spec.Spec.Volumes {
		v := &p.spec.Spec.Volumes[i]
		if m.opts.DeviceBytes == nil || !isDevice(&p.spec.Spec, v.Name) ||
			slices.ContainsFunc(m.csiUses(p.spec), func(u csiUse) bool { return u.volume == v.Name }) {
			continue
		}
		volume := m.blockVolumeOf(p, v)
		if volume == nil {
			continue
		}
		served, want := known[p.uid+"/"+v.Name], m.opts.DeviceBytes(volume.device)
		switch {
		case served == nil && m.mustHaveSize(now, p, volume):
			return findingf("the size of volume %s of pod %s is not served", v.Name, p)
		case served != nil && served.Stats != world.CSIVolumeStats{CapacityBytes: want}:
			return findingf("volume %s of pod %s is served as %+v, and has %d bytes", v.Name, p,
				served.Stats, want)
		}
	}
	return nil
}

// mustHaveSize reports whether a pod has had a device for so long, without a fault, that its size
// is known.
func (m *model) mustHaveSize(now time.Time, p *pod, volume *blockVolume) bool {
	since := now.Add(-deviceSizeBound)
	held := m.volumes.held[volume.bound]
	failedAt := later(m.lastFault(now), m.lastTimeout("MeasureDevice"))
	return p.liveContainers > 0 && !held.IsZero() && !held.After(since) && m.agentUpSince(since) &&
		!failedAt.After(since) && !m.disks.changedAt[volume.device].After(since)
}

// isDevice reports whether a container of a pod has a volume as a device.
func isDevice(spec *v1.PodSpec, volume string) bool {
	return slices.ContainsFunc(slices.Concat(spec.InitContainers, spec.Containers),
		func(c v1.Container) bool {
			return slices.ContainsFunc(c.VolumeDevices, func(d v1.VolumeDevice) bool {
				return d.Name == volume
			})
		})
}
