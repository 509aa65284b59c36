package csi

import (
	"time"

	"seedlet.dev/sim/disk"
	"seedlet.dev/sim/plan"
	"seedlet.dev/sim/truth"
	"seedlet.dev/world"
)

func (d *Drivers) getNodeInfo(c *call) {
	is, node := c.driver.is, d.opts.Node
	if is.NodeID != "" {
		node = is.NodeID
	}
	volumes := is.VolumesMax
	if at := limitAt(is); !at.IsZero() && !d.opts.Agenda.Now().Before(at) {
		volumes = is.VolumesThen
	}
	d.reply(c, &world.CSINodeInfo{NodeID: node, VolumesMax: volumes, Topology: is.Topology,
		Capabilities: world.CSICapabilities{StageUnstage: !is.NoStage, Stats: !is.NoStats,
			Expand: !is.NoExpand, Condition: is.Condition, SingleNodeMultiWriter: is.MultiWriter,
			VolumeMountGroup: is.MountGroup}})
}

// limitAt returns when a driver reports another number of volumes; zero: never.
func limitAt(is *plan.CSIDriver) time.Time {
	if is.LimitAt == 0 {
		return time.Time{}
	}
	return plan.Start.Add(time.Duration(is.LimitAt))
}

// isFound reports whether a volume is at a path, which may be the staging path of a device.
func (d *Drivers) isFound(v *volume, path string) bool {
	return d.isAt(v, path) || v.blockStagedAt[path]
}

// refuseUse fails a call about a published volume that the driver does not have, or whose volume is
// not at the path, and reports whether it did.
func (d *Drivers) refuseUse(c *call, has bool, v *volume, handle, path string) bool {
	switch {
	case !has:
		d.fail(c, world.KindUnimplemented, "the driver has no %s", c.Name)
	case d.refuseInvalid(c, handle, nil, path):
	case !d.isFound(v, path):
		d.fail(c, world.KindNotFound, "volume %s is not at %s", handle, path)
	default:
		return false
	}
	return true
}

// expand grows the file system of a volume to the size of the volume.
func (d *Drivers) expand(c *call, m *world.ExpandVolume) {
	v := c.volume
	if d.refuseUse(c, !c.driver.is.NoExpand, v, m.Handle, m.Path) {
		return
	}
	if m.RequiredBytes > v.bytes {
		d.fail(c, world.KindInvalid, "%d bytes: volume %s has %d", m.RequiredBytes, m.Handle, v.bytes)
		return
	}
	d.continueLater(c, func() {
		v.fsBytes = v.bytes
		d.opts.Truth.Add(truth.Fact{Time: d.opts.Agenda.Now(), Kind: truth.VolumeExpanded,
			Path: m.Path, Bytes: v.fsBytes, Volume: &truth.Volume{Driver: v.driver, Handle: v.handle}})
		d.reply(c, &world.VolumeExpanded{CapacityBytes: v.fsBytes})
	})
}

// stats answers with the size of a volume, a quarter of which is used, and a block more each time.
// Of a device the size alone is known.
func (d *Drivers) stats(c *call, m *world.GetVolumeStats) {
	v := d.volume(c.driver.name, m.Handle)
	if d.refuseUse(c, !c.driver.is.NoStats, v, m.Handle, m.Path) {
		return
	}
	if at, _ := d.opts.Disk.MountedAt(m.Path); at.FSType == disk.NodeFSType {
		d.reply(c, &world.CSIVolumeStats{CapacityBytes: v.bytes})
		return
	}
	v.measured++
	used := v.fsBytes/4 + 4096*v.measured
	stats := &world.CSIVolumeStats{CapacityBytes: v.fsBytes, UsedBytes: used,
		AvailableBytes: v.fsBytes - used, Inodes: v.fsBytes / 4096, InodesUsed: 1,
		InodesFree: v.fsBytes/4096 - 1}
	if c.driver.is.Condition {
		stats.Condition = &world.CSIVolumeCondition{Message: "the volume is healthy"}
	}
	d.reply(c, stats)
}
