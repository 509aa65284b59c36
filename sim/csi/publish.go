package csi

import (
	"strings"

	"seedlet.dev/sim/disk"
	"seedlet.dev/sim/truth"
	"seedlet.dev/world"
)

// ephemeralKey is what an agent puts into the context of a volume that is written in a pod.
const ephemeralKey = "csi.storage.k8s.io/ephemeral"

// isEphemeral reports whether a volume is written in a pod. A driver to which its agent does not
// say so knows such a volume by its handle, which is none of those that its controller gives.
func isEphemeral(m *world.PublishVolume) bool {
	said, isSaid := m.VolumeContext[ephemeralKey]
	return said == "true" || !isSaid && strings.HasPrefix(m.Handle, "csi-")
}

// publish makes the target, and mounts a volume there a little later: what is staged, or the volume
// itself if the driver does not stage or the volume is ephemeral.
func (d *Drivers) publish(c *call, m *world.PublishVolume) {
	v, isEphemeral := c.volume, isEphemeral(m)
	readOnly := m.ReadOnly || isReader(m.Capability.Access)
	switch {
	case d.refuseInvalid(c, m.Handle, &m.Capability, m.TargetPath):
		return
	case !isEphemeral && !d.exists(v):
		d.fail(c, world.KindNotFound, "volume %s does not exist", m.Handle)
		return
	case !isEphemeral && !d.isAttached(v):
		d.fail(c, world.KindConflict, "volume %s is not attached to the node", m.Handle)
		return
	case !isEphemeral && !c.driver.is.NoStage && !d.isStaged(v, m):
		d.fail(c, world.KindConflict, "volume %s is not staged at %q", m.Handle, m.StagingPath)
		return
	case m.Capability.Access == world.CSISingleNodeSingleWriter &&
		d.isAtOther(v, m.StagingPath, m.TargetPath):
		d.fail(c, world.KindConflict, "volume %s is published elsewhere", m.Handle)
		return
	case c.driver.lies():
		d.recordVolume(truth.VolumeNotPublished, v, m.TargetPath, readOnly)
		d.reply(c, &world.Done{})
		return
	}
	if isEphemeral {
		v.isEphemeral = true
	}
	makeTarget := d.opts.Disk.MakeMountpoint
	if m.Capability.Block {
		makeTarget = d.opts.Disk.MakeMountFile
	}
	if err := makeTarget(m.TargetPath); err != nil {
		d.fail(c, world.KindInternal, "making the target: %s", err.Message)
		return
	}
	d.continueLater(c, func() {
		mount := d.bindStaged
		if isEphemeral || c.driver.is.NoStage {
			mount = d.mountTarget
		}
		_, isAgain := d.opts.Disk.MountedAt(m.TargetPath)
		if !mount(c, m, readOnly) {
			return
		}
		if isAgain && !readOnly && !m.Capability.Block {
			d.opts.Disk.Write(m.TargetPath+"/"+truth.RenewedFile, nil)
		}
		d.continueLater(c, func() { d.reply(c, &world.Done{}) })
	})
}

// lies reports whether a driver publishes nothing and says that it has, and counts that.
func (p *process) lies() bool {
	if p.lied >= p.is.Lies {
		return false
	}
	p.lied++
	return true
}

func (d *Drivers) isStaged(v *volume, m *world.PublishVolume) bool {
	if m.Capability.Block {
		return v.blockStagedAt[m.StagingPath]
	}
	return d.isAt(v, m.StagingPath)
}

// mountTarget mounts the volume itself at the target.
func (d *Drivers) mountTarget(c *call, m *world.PublishVolume, readOnly bool) bool {
	if m.Capability.Block {
		return d.mountNode(c, m.TargetPath, readOnly)
	}
	return d.mountSource(c, &m.Capability, m.TargetPath, readOnly, truth.VolumePublished)
}

// mountNode mounts the device of a volume at the target.
func (d *Drivers) mountNode(c *call, path string, readOnly bool) bool {
	return d.mountOnce(c, path, readOnly, func() *world.Error {
		return d.opts.Disk.MountNode(c.volume.source(), path, readOnly)
	})
}

// bindStaged mounts what is staged at the target. What is staged read-only cannot be written to
// where it is published.
func (d *Drivers) bindStaged(c *call, m *world.PublishVolume, readOnly bool) bool {
	v := c.volume
	if m.Capability.Block {
		return d.mountTarget(c, m, readOnly)
	}
	staged, isStaged := d.opts.Disk.MountedAt(m.StagingPath)
	switch {
	case !isStaged || staged.Source != v.source():
		d.fail(c, world.KindConflict, "volume %s is not staged any more", v.handle)
		return false
	case d.opts.Disk.LabelAt(m.StagingPath) != disk.LabelIn(m.Capability.MountFlags):
		d.fail(c, world.KindExists, "volume %s is staged with another label", v.handle)
		return false
	}
	readOnly = readOnly || staged.ReadOnly
	return d.mountOnce(c, m.TargetPath, readOnly, func() *world.Error {
		return d.opts.Disk.BindPath(m.StagingPath, m.TargetPath, readOnly)
	})
}

// mountOnce mounts a volume at a target, unless it is mounted there in the same way.
func (d *Drivers) mountOnce(c *call, path string, readOnly bool, mount func() *world.Error) bool {
	v := c.volume
	at, isMounted := d.opts.Disk.MountedAt(path)
	switch {
	case isMounted && at.Source != v.source():
		d.fail(c, world.KindConflict, "%s is mounted at %s", at.Source, path)
		return false
	case isMounted && at.ReadOnly != readOnly:
		d.fail(c, world.KindExists, "volume %s is published at %s in another way", v.handle, path)
		return false
	case isMounted:
		return true
	}
	if err := mount(); err != nil {
		d.fail(c, world.KindInternal, "publishing volume %s: %s", v.handle, err.Message)
		return false
	}
	d.recordVolume(truth.VolumePublished, v, path, readOnly)
	return true
}

// unpublish unmounts a volume from the target, and removes the target a little later. An ephemeral
// volume ends with that. It needs no volume, which may have been deleted meanwhile.
func (d *Drivers) unpublish(c *call, m *world.UnpublishVolume) {
	v := c.volume
	at, isMounted := d.opts.Disk.MountedAt(m.TargetPath)
	switch {
	case d.refuseInvalid(c, m.Handle, nil, m.TargetPath):
		return
	case isMounted && at.Source != v.source():
		d.fail(c, world.KindConflict, "%s is mounted at %s", at.Source, m.TargetPath)
		return
	case isMounted && d.opts.Disk.IsBusy(m.TargetPath):
		d.fail(c, world.KindInternal, "target %s is busy", m.TargetPath)
		return
	case isMounted:
		d.recordVolume(truth.VolumeUnpublished, v, m.TargetPath, false)
		d.opts.Disk.UnmountPath(m.TargetPath)
	}
	d.continueLater(c, func() {
		if err := d.opts.Disk.RemoveMountpoint(m.TargetPath); err != nil {
			d.fail(c, world.KindInternal, "removing the target: %s", err.Message)
			return
		}
		if v.isEphemeral {
			d.opts.Disk.RemoveSource(v.source())
			*v = volume{volumeName: v.volumeName, bytes: volumeBytes, lockedBy: c}
		}
		d.reply(c, &world.Done{})
	})
}
