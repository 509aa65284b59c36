package disk

import (
	"strconv"
	"strings"

	"seedlet.dev/sim/wire"
	"seedlet.dev/world"
)

// Mounts of volumes: of the node's own directories, of block devices and of network file systems.

// storedVolume returns the root of a file system that is not on the disk: that of a block device,
// or an export of a server. It keeps its content while it is not mounted, and without power.
func (d *Disk) storedVolume(source string) *node {
	root := d.stored[source]
	if root == nil {
		root = newDir(0o755, d.now())
		d.stored[source] = root
	}
	return root
}

// bindMount creates the mount point first and mounts a little later.
func (d *Disk) bindMount(call *wire.Call, req *world.BindMount) {
	if at, err := d.resolve(call.Name, req.Path, false); err == nil && at.isMountpoint() {
		at.nodeMount.readOnly = at.nodeMount.readOnly || req.ReadOnly
		call.Reply(&world.Mounted{Existed: true})
		return
	}
	source, err := d.bindSource(call.Name, req)
	result := &world.Mounted{}
	if err == nil {
		result = d.findShared(req, source)
	}
	switch {
	case err != nil:
	case result.Shared && req.Exclusive:
		err = world.Errorf(world.KindRefused, call.Name, "%s is mounted below %s", req.Source, req.Among)
	default:
		err = d.makeTarget(call.Name, req.Path, source.node)
	}
	if err != nil {
		call.Fail(err)
		return
	}
	d.continueLater(call, func() {
		source, err := d.bindSource(call.Name, req)
		at, targetErr := d.resolve(call.Name, req.Path, false)
		if err != nil || targetErr != nil || at.node == nil || at.isMountpoint() ||
			at.node.isDir() != source.node.isDir() {
			call.Fail(changedMeanwhile(call.Name, req.Path))
			return
		}
		m := bindOf(source)
		m.readOnly = req.ReadOnly
		d.mountOver(at, m)
		call.Reply(result)
	})
}

// bindSource returns the source of a bind mount.
func (d *Disk) bindSource(op string, req *world.BindMount) (location, *world.Error) {
	at, err := d.resolve(op, req.Source, true)
	if err == nil {
		err = d.checkSequence(op, req.Source, req.Sequence)
	}
	switch {
	case err != nil:
	case at.node == nil:
		err = notFound(op, req.Source)
	case req.SourceMounted && !at.isMountpoint():
		err = world.Errorf(world.KindNotFound, op, "nothing is mounted at %s", req.Source)
	}
	return at, err
}

// findShared looks for other mounts of a source below a directory.
func (d *Disk) findShared(req *world.BindMount, source location) *world.Mounted {
	own := bindOf(source)
	for _, m := range d.mounts {
		if req.Among != "" && within(m.path, req.Among) && m.device == own.device &&
			m.within == own.within && m != source.nodeMount {
			return &world.Mounted{Shared: true, GID: source.node.gid}
		}
	}
	return &world.Mounted{}
}

// mountDevice formats a device that has no file system when it is mounted first.
func (d *Disk) mountDevice(call *wire.Call, req *world.MountDevice) {
	label := LabelIn(req.Options)
	replyOf := func(existed bool) any { return &world.Mounted{Existed: existed} }
	d.mountStored(call, req.Path, replyOf, func() (*mount, *world.Error) {
		at, err := d.resolve(call.Name, req.Device, true)
		if err == nil {
			err = d.checkSequence(call.Name, req.Device, req.Sequence)
		}
		switch {
		case err != nil:
			return nil, err
		case at.node == nil:
			return nil, notFound(call.Name, req.Device)
		case at.node.kind != world.PathBlockDevice:
			return nil, world.Errorf(world.KindInternal, call.Name, "%s is no block device", req.Device)
		case req.ReadOnly && d.stored[at.path] == nil:
			return nil, world.Errorf(world.KindInternal, call.Name,
				"cannot mount unformatted disk %s as we are manipulating it in read-only mode", at.path)
		}
		if err := d.checkLabel(call.Name, at.path, label); err != nil {
			return nil, err
		}
		return &mount{root: d.storedVolume(at.path), within: "/", readOnly: req.ReadOnly,
			fileSystem: fileSystem{at.path, req.FSType, DeviceNumber(req.Device), label}}, nil
	})
}

// LabelIn returns the SELinux label that the options of a mount name; empty: none.
func LabelIn(options []string) string {
	for _, o := range options {
		quoted, isContext := strings.CutPrefix(o, "context=")
		if label, err := strconv.Unquote(quoted); isContext && err == nil {
			return label
		}
	}
	return ""
}

// checkLabel returns an error if a file system is mounted with another label: all its mounts have
// one, or none (selinux_cmp_sb_context in Linux).
func (d *Disk) checkLabel(call, source, label string) *world.Error {
	for _, m := range d.mounts {
		if m.source == source && m.fsType != NodeFSType && m.label != label {
			return world.Errorf(world.KindInvalid, call, "%s is mounted at %s with the label %q", source,
				m.path, m.label)
		}
	}
	return nil
}

// DeviceNumber returns the number of a block device, as the mount table has it: as in the kernel,
// paths and numbers are given to other devices together.
func DeviceNumber(p string) string { return "device " + p }

// mountNFS mounts an export. Each server has every export.
func (d *Disk) mountNFS(call *wire.Call, req *world.MountNFS) {
	replyOf := func(bool) any { return &world.Done{} }
	d.mountStored(call, req.Path, replyOf, func() (*mount, *world.Error) {
		return &mount{root: d.storedVolume(req.Source()), within: "/", readOnly: req.ReadOnly,
			fileSystem: fileSystem{req.Source(), "nfs4", "export " + req.Source(), ""}}, nil
	})
}

// mountStored creates the mount point first and mounts a little later. Unless the power was lost
// between, the mount point is removed if the mount fails.
func (d *Disk) mountStored(call *wire.Call, p string, replyOf func(existed bool) any,
	build func() (*mount, *world.Error)) {
	if at, err := d.resolve(call.Name, p, false); err == nil && at.isMountpoint() {
		call.Reply(replyOf(true))
		return
	}
	if err := d.makeMountpoint(call.Name, p); err != nil {
		call.Fail(err)
		return
	}
	d.continueLater(call, func() {
		at, err := d.resolve(call.Name, p, false)
		if err != nil || at.node == nil || at.isMountpoint() {
			call.Fail(changedMeanwhile(call.Name, p))
			return
		}
		m, err := build()
		if err != nil {
			if at.node.isDir() && len(at.node.entries) == 0 {
				d.setEntry(at, nil)
			}
			call.Fail(err)
			return
		}
		d.mountOver(at, m)
		call.Reply(replyOf(false))
	})
}
