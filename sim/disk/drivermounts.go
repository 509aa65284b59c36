package disk

import (
	"path"
	"slices"

	"seedlet.dev/sim/truth"
	"seedlet.dev/sim/wire"
	"seedlet.dev/world"
)

// Mounts that other processes of the machine make, such as the drivers of volumes. They have the
// mount table and the mount points in common with the agent.

// MountSource mounts the file system of a source, such as a device, at a directory. The content
// stays with the source while it is not mounted, and without power. The SELinux label of all files
// is the same wherever it is mounted; empty: each file has its own.
func (d *Disk) MountSource(source, fsType, p, label string, readOnly bool) *world.Error {
	at, err := d.freeMountpoint(p)
	if err != nil {
		return err
	}
	if err := d.checkLabel("Mount", source, label); err != nil {
		return err
	}
	d.mountOver(at, &mount{root: d.storedVolume(source), within: "/", readOnly: readOnly,
		isApart: true, fileSystem: fileSystem{source, fsType, "device " + source, label}})
	return nil
}

// NodeFSType is the type of the file system that the nodes of devices are in.
const NodeFSType = "devtmpfs"

// MountNode mounts a block device at a file.
func (d *Disk) MountNode(source, p string, readOnly bool) *world.Error {
	at, err := d.resolve("Mount", p, true)
	switch {
	case err != nil:
		return err
	case at.node == nil:
		return notFound("Mount", p)
	case at.node.kind != world.PathFile:
		return world.Errorf(world.KindInvalid, "Mount", "%s: not a file", p)
	}
	d.mountOver(at, &mount{within: "/", readOnly: readOnly, isApart: true,
		root:       &node{kind: world.PathBlockDevice, content: content{mode: 0o660, modTime: d.now()}},
		fileSystem: fileSystem{source, NodeFSType, "node " + source, ""}})
	return nil
}

// FormatSource makes the file system of a source that has none.
func (d *Disk) FormatSource(source string) { d.storedVolume(source) }

// RemoveSource forgets the content of a source. The file system stays where it is mounted.
func (d *Disk) RemoveSource(source string) { delete(d.stored, source) }

// BindPath mounts what is visible at a path at another one, a directory that exists.
func (d *Disk) BindPath(from, to string, readOnly bool) *world.Error {
	source, err := d.resolve("Bind", from, true)
	if err == nil && source.node == nil {
		err = notFound("Bind", from)
	}
	if err != nil {
		return err
	}
	at, err := d.freeMountpoint(to)
	if err != nil {
		return err
	}
	m := bindOf(source)
	m.readOnly = m.readOnly || readOnly
	d.mountOver(at, m)
	return nil
}

// freeMountpoint returns a directory that exists and at which nothing is mounted.
func (d *Disk) freeMountpoint(p string) (location, *world.Error) {
	at, err := d.resolve("Mount", p, true)
	switch {
	case err != nil:
		return at, err
	case at.node == nil:
		return at, notFound("Mount", p)
	case !at.node.isDir():
		return at, world.Errorf(world.KindInvalid, "Mount", "%s: not a directory", p)
	case at.isMountpoint():
		return at, world.Errorf(world.KindExists, "Mount", "%s is a mount already", p)
	}
	return at, nil
}

// MountedAt returns what is mounted at a path, the newest if there are several, and false if
// nothing is.
func (d *Disk) MountedAt(p string) (world.Mount, bool) {
	at, err := d.resolve("", p, true)
	if err != nil || !at.isMountpoint() {
		return world.Mount{}, false
	}
	m := at.nodeMount
	return world.Mount{Path: m.path, Source: m.source, FSType: m.fsType, Root: m.within,
		Device: m.device, ReadOnly: m.readOnly}, true
}

// LabelAt returns the SELinux label of all files of what is mounted at a path; empty if nothing is,
// or each file has its own.
func (d *Disk) LabelAt(p string) string {
	if at, err := d.resolve("", p, true); err == nil && at.isMountpoint() {
		return at.nodeMount.label
	}
	return ""
}

// MountsOf returns the paths at which a source is mounted, oldest first.
func (d *Disk) MountsOf(source string) []string {
	var paths []string
	for _, m := range d.mounts {
		if m.source == source {
			paths = append(paths, m.path)
		}
	}
	return paths
}

// UsersOf returns the paths at which a block device is mounted, or bound, oldest first.
func (d *Disk) UsersOf(node string) []string {
	var paths []string
	for _, m := range d.mounts {
		if m.source == node || m.within == node {
			paths = append(paths, m.path)
		}
	}
	return paths
}

// IsOpen reports whether a block device is mounted, by the path that it was mounted at.
func (d *Disk) IsOpen(device string) bool {
	number := DeviceNumber(device)
	return slices.ContainsFunc(d.mounts, func(m *mount) bool { return m.device == number })
}

// IsBusy reports whether something is mounted in the newest mount at a path.
func (d *Disk) IsBusy(p string) bool {
	at, err := d.resolve("", p, true)
	return err == nil && at.isMountpoint() &&
		slices.ContainsFunc(d.mounts, func(o *mount) bool { return o.parent == at.nodeMount })
}

// UnmountPath removes the newest mount at a path, if there is one that is not busy.
func (d *Disk) UnmountPath(p string) {
	at, err := d.resolve("", p, true)
	if err != nil || !at.isMountpoint() || d.IsBusy(p) {
		return
	}
	m := at.nodeMount
	m.covered.mountCount--
	d.mounts = slices.DeleteFunc(d.mounts, func(o *mount) bool { return o == m })
	d.recordFact(truth.Unmounted, m.path, "")
	d.notify(m.path)
}

// MakeMountpoint makes a directory whose parent exists, unless it is there.
func (d *Disk) MakeMountpoint(p string) *world.Error {
	return d.makeEmpty("Mkdir", p, newDir(0o750, d.now()))
}

// MakeMountFile makes an empty file whose parent exists, unless it is there.
func (d *Disk) MakeMountFile(p string) *world.Error {
	return d.makeEmpty("Create", p, newFile(nil, 0o640, d.now()))
}

func (d *Disk) makeEmpty(call, p string, empty *node) *world.Error {
	at, err := d.resolve(call, p, true)
	switch {
	case err != nil:
		return err
	case at.node == nil:
		d.setEntry(at, empty)
		d.recordFact(truth.PathCreated, at.path, truth.CauseAdministrator)
		d.notify(at.path)
	case at.node.isDir() != empty.isDir():
		return world.Errorf(world.KindExists, call, "%s exists and is no %s", p, empty.kind)
	}
	return nil
}

// RemoveMountpoint removes an empty directory or a file at which nothing is mounted. One that is
// not there is success.
func (d *Disk) RemoveMountpoint(p string) *world.Error {
	at, err := d.resolve("Rmdir", p, false)
	switch {
	case err.Has(world.KindNotFound), err == nil && at.node == nil:
		return nil
	case err != nil:
		return err
	case at.isMountpoint() || len(at.node.entries) > 0:
		return world.Errorf(world.KindInternal, "Rmdir", "%s is not an empty directory", path.Clean(p))
	}
	d.setEntry(at, nil)
	d.recordFact(truth.PathRemoved, at.path, truth.CauseAdministrator)
	d.notify(at.path)
	return nil
}

// holdDevice keeps a device open.
func (d *Disk) holdDevice(call *wire.Call, req *world.HoldDevice) {
	at, err := d.resolve(call.Name, req.Path, true)
	switch {
	case err != nil:
	case at.node == nil:
		err = notFound(call.Name, req.Path)
	case at.node.kind != world.PathBlockDevice:
		err = world.Errorf(world.KindInvalid, call.Name, "%s is no block device", req.Path)
	case !d.held[at.path]:
		d.held[at.path] = true
		d.recordFact(truth.DeviceHeld, at.path, "")
	}
	d.complete(call, err)
}

// releaseDevice ends that the device at a path is kept open, if it is.
func (d *Disk) releaseDevice(p, cause string) {
	if d.held[p] {
		delete(d.held, p)
		d.recordFact(truth.DeviceReleased, p, cause)
	}
}
