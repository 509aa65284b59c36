package csi

import (
	"seedlet.dev/sim/disk"
	"seedlet.dev/sim/truth"
	"seedlet.dev/world"
)

// stage mounts a volume at the staging path, after a while.
func (d *Drivers) stage(c *call, m *world.StageVolume) {
	v := c.volume
	switch {
	case c.driver.is.NoStage:
		d.fail(c, world.KindUnimplemented, "the driver does not stage")
		return
	case d.refuseInvalid(c, m.Handle, &m.Capability, m.StagingPath):
		return
	case !d.exists(v):
		d.fail(c, world.KindNotFound, "volume %s does not exist", m.Handle)
		return
	case !d.isAttached(v):
		d.fail(c, world.KindConflict, "volume %s is not attached to the node", m.Handle)
		return
	}
	d.continueLater(c, func() {
		if m.Capability.Block {
			if v.blockStagedAt == nil {
				v.blockStagedAt = map[string]bool{}
			}
			v.blockStagedAt[m.StagingPath] = true
			d.recordVolume(truth.VolumeStaged, v, m.StagingPath, false)
			d.continueLater(c, func() { d.reply(c, &world.Done{}) })
			return
		}
		if d.mountSource(c, &m.Capability, m.StagingPath, isReader(m.Capability.Access),
			truth.VolumeStaged) {
			d.continueLater(c, func() { d.reply(c, &world.Done{}) })
		}
	})
}

func (d *Drivers) isAttached(v *volume) bool {
	return d.opts.IsAttached == nil || d.opts.IsAttached(v.driver, v.handle)
}

// mountSource mounts the file system of a volume at a path, unless it is mounted there in the same
// way. Otherwise it fails the call, and returns false.
func (d *Drivers) mountSource(c *call, can *world.CSICapability, path string, readOnly bool,
	kind truth.Kind) bool {
	v, fsType := c.volume, can.FSType
	if fsType == "" {
		fsType = "ext4"
	}
	if v.fsType == "" {
		v.fsType, v.fsBytes = fsType, v.bytes
	}
	label := disk.LabelIn(can.MountFlags)
	at, isMounted := d.opts.Disk.MountedAt(path)
	switch {
	case isMounted && at.Source != v.source():
		d.fail(c, world.KindConflict, "%s is mounted at %s", at.Source, path)
		return false
	case isMounted && (at.ReadOnly != readOnly || v.fsType != fsType ||
		d.opts.Disk.LabelAt(path) != label):
		d.fail(c, world.KindExists, "volume %s is mounted at %s in another way", v.handle, path)
		return false
	case isMounted:
		return true
	case v.fsType != fsType:
		d.fail(c, world.KindConflict, "volume %s has the file system %s", v.handle, v.fsType)
		return false
	}
	v.fsBytes = v.bytes
	if err := d.opts.Disk.MountSource(v.source(), v.fsType, path, label, readOnly); err != nil {
		d.fail(c, world.KindInternal, "mounting volume %s: %s", v.handle, err.Message)
		return false
	}
	d.recordVolume(kind, v, path, readOnly)
	return true
}

// unstage unmounts a volume from the staging path. It needs no volume, which may have been deleted
// meanwhile.
func (d *Drivers) unstage(c *call, m *world.UnstageVolume) {
	v := c.volume
	at, isMounted := d.opts.Disk.MountedAt(m.StagingPath)
	switch {
	case c.driver.is.NoStage:
		d.fail(c, world.KindUnimplemented, "the driver does not stage")
		return
	case d.refuseInvalid(c, m.Handle, nil, m.StagingPath):
		return
	case isMounted && at.Source != v.source():
		d.fail(c, world.KindConflict, "%s is mounted at %s", at.Source, m.StagingPath)
		return
	case d.isAtOther(v, m.StagingPath):
		d.fail(c, world.KindConflict, "volume %s is still published", m.Handle)
		return
	case isMounted && d.opts.Disk.IsBusy(m.StagingPath):
		d.fail(c, world.KindInternal, "%s is busy", m.StagingPath)
		return
	}
	d.continueLater(c, func() {
		if d.isAt(v, m.StagingPath) || v.blockStagedAt[m.StagingPath] {
			d.recordVolume(truth.VolumeUnstaged, v, m.StagingPath, false)
			d.opts.Disk.UnmountPath(m.StagingPath)
			delete(v.blockStagedAt, m.StagingPath)
		}
		d.continueLater(c, func() { d.reply(c, &world.Done{}) })
	})
}
