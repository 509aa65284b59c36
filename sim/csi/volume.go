package csi

import (
	"seedlet.dev/sim/truth"
	"seedlet.dev/world"
)

// volumeName names a volume: two drivers may have one of the same handle.
type volumeName struct{ driver, handle string }

// volume is what a volume is besides its mounts.
type volume struct {
	volumeName
	fsType        string // that it was formatted with; empty: it was not
	bytes         int64  // of the device
	fsBytes       int64  // of the file system
	measured      int64  // calls for its usage
	isEphemeral   bool
	blockStagedAt map[string]bool // staging paths of the device, which is not mounted
	lockedBy      *call
}

// volumeBytes is the size of a volume that has not grown.
const volumeBytes = 1 << 30

// volume returns a volume by its driver and handle.
func (d *Drivers) volume(driver, handle string) *volume {
	name := volumeName{driver, handle}
	v := d.volumes[name]
	if v == nil {
		v = &volume{volumeName: name, bytes: volumeBytes}
		d.volumes[name] = v
	}
	return v
}

// Grow gives a volume a size, as the controller of its driver does. The file system in it stays as
// it is until it is expanded or staged.
func (d *Drivers) Grow(driver, handle string, bytes int64) {
	d.volume(driver, handle).bytes = bytes
}

// source is what the mount table names the volume.
func (v *volume) source() string { return "/dev/" + v.driver + "/" + v.handle }

// isAt reports whether the volume is what is mounted at a path.
func (d *Drivers) isAt(v *volume, path string) bool {
	m, isMounted := d.opts.Disk.MountedAt(path)
	return isMounted && m.Source == v.source()
}

// isAtOther reports whether the volume is mounted anywhere but at the given paths.
func (d *Drivers) isAtOther(v *volume, paths ...string) bool {
	for _, at := range d.opts.Disk.MountsOf(v.source()) {
		isOther := true
		for _, p := range paths {
			isOther = isOther && at != p
		}
		if isOther {
			return true
		}
	}
	return false
}

// exists reports whether the driver has the volume.
func (d *Drivers) exists(v *volume) bool {
	return v.isEphemeral || d.opts.HasVolume == nil || d.opts.HasVolume(v.driver, v.handle)
}

// isReader reports whether an access mode excludes writers.
func isReader(mode world.CSIAccessMode) bool {
	return mode == world.CSISingleNodeReaderOnly || mode == world.CSIMultiNodeReaderOnly
}

var accessModes = map[world.CSIAccessMode]bool{
	world.CSISingleNodeWriter: true, world.CSISingleNodeReaderOnly: true,
	world.CSIMultiNodeReaderOnly: true, world.CSIMultiNodeMultiWriter: true,
	world.CSISingleNodeSingleWriter: true, world.CSISingleNodeMultiWriter: true,
}

// refuseInvalid fails a call whose arguments no driver takes, and reports whether it did.
func (d *Drivers) refuseInvalid(c *call, handle string, can *world.CSICapability,
	paths ...string) bool {
	problem := ""
	for _, p := range paths {
		if p == "" || p[0] != '/' {
			problem = "a path is missing, or not absolute"
		}
	}
	switch {
	case handle == "":
		problem = "the volume ID is missing"
	case can != nil && !accessModes[can.Access]:
		problem = "access mode " + string(can.Access) + " is unknown"
	case can != nil && !c.driver.is.MultiWriter && (can.Access == world.CSISingleNodeSingleWriter ||
		can.Access == world.CSISingleNodeMultiWriter):
		problem = "access mode " + string(can.Access) + " is not supported"
	}
	if problem == "" {
		return false
	}
	d.fail(c, world.KindInvalid, "%s", problem)
	return true
}

// recordVolume records a change of a volume. The end of a mount is recorded before the mount table
// changes: what is unmounted without that was not unmounted by its driver.
func (d *Drivers) recordVolume(kind truth.Kind, v *volume, path string, readOnly bool) {
	d.opts.Truth.Add(truth.Fact{Time: d.opts.Agenda.Now(), Kind: kind, Path: path,
		Volume: &truth.Volume{Driver: v.driver, Handle: v.handle, IsReadOnly: readOnly,
			IsEphemeral: v.isEphemeral, Label: d.opts.Disk.LabelAt(path)}})
}
