package disk

import (
	"path"

	"seedlet.dev/sim/wire"
	"seedlet.dev/world"
)

// Filesystem is a file system of the disk. It holds everything at and below its path but what other
// file systems hold.
type Filesystem struct {
	Path          string
	CapacityBytes int64
	Inodes        int64
	// Extra returns what is used beside the files of the disk, as by images; nil: nothing.
	Extra func() (bytes, inodes int64)
}

// RootFilesystem is the file system of the root of every disk whose options have no other.
var RootFilesystem = Filesystem{Path: "/", CapacityBytes: 100 << 30, Inodes: 6 << 20}

// mountedDevices is added to the device numbers of memory file systems.
const mountedDevices = 1000

// measureFilesystem measures the file system of a path. A fault that fills the disk for the agent
// is not in the numbers, as a quota would not be.
func (d *Disk) measureFilesystem(call *wire.Call, req *world.MeasureFilesystem) {
	at, err := d.resolve(call.Name, req.Path, true)
	switch {
	case d.isFilesystem(req.Path):
		measured := d.Filesystem(req.Path)
		call.Reply(&measured)
	case err != nil:
		call.Fail(err)
	case at.node == nil:
		call.Fail(notFound(call.Name, req.Path))
	case at.nodeMount != nil && at.nodeMount.isMemory:
		call.Reply(d.memoryFilesystem(at.nodeMount))
	default:
		measured := d.Filesystem(at.path)
		call.Reply(&measured)
	}
}

// measureDevice measures a block device, or the one that is bound to a path.
func (d *Disk) measureDevice(call *wire.Call, req *world.MeasureDevice) {
	at, err := d.resolve(call.Name, req.Path, true)
	device := at.path
	if err == nil && at.nodeMount != nil && at.node == at.nodeMount.root {
		if device = at.nodeMount.within; device == "/" {
			device = at.nodeMount.source
		}
	}
	switch {
	case err != nil:
	case at.node == nil:
		err = notFound(call.Name, req.Path)
	case at.node.kind != world.PathBlockDevice:
		err = world.Errorf(world.KindInvalid, call.Name, "%s is no block device", req.Path)
	case d.nodeAt(device) == nil:
		err = notFound(call.Name, device)
	default:
		call.Reply(&world.DeviceMeasured{CapacityBytes: DeviceBytes(device)})
		return
	}
	call.Fail(err)
}

// DeviceBytes returns the size of a block device, which is made of the path of its node: 1 GiB and
// something.
func DeviceBytes(device string) int64 {
	sum := int64(0)
	for _, c := range []byte(device) {
		sum = (sum*31 + int64(c)) % 1021
	}
	return 1<<30 + sum*4096
}

// isFilesystem reports whether a file system is mounted at a path. Nothing on the disk has to be
// there.
func (d *Disk) isFilesystem(p string) bool {
	for _, fs := range d.opts.Filesystems {
		if fs.Path == path.Clean(p) {
			return true
		}
	}
	return false
}

// Filesystem returns the state of the file system of the disk that a path is in, as
// MeasureFilesystem does.
func (d *Disk) Filesystem(p string) world.FilesystemMeasured {
	fs, device := RootFilesystem, 0
	for i, other := range d.opts.Filesystems {
		if within(path.Clean(p), other.Path) && len(other.Path) >= len(fs.Path) {
			fs, device = other, i+1
		}
	}
	used := &world.TreeMeasured{}
	if n := d.nodeAt(fs.Path); n != nil {
		n.measure(used)
	}
	for _, other := range d.opts.Filesystems {
		if n := d.nodeAt(other.Path); n != nil && other.Path != fs.Path && within(other.Path, fs.Path) {
			inner := &world.TreeMeasured{}
			n.measure(inner)
			used.Bytes, used.Inodes = used.Bytes-inner.Bytes, used.Inodes-inner.Inodes
		}
	}
	if fs.Extra != nil {
		bytes, inodes := fs.Extra()
		used.Bytes, used.Inodes = used.Bytes+bytes, used.Inodes+inodes
	}
	return world.FilesystemMeasured{Device: uint64(device) + 1, CapacityBytes: fs.CapacityBytes,
		AvailableBytes: max(0, fs.CapacityBytes-used.Bytes),
		FreeBytes:      max(0, fs.CapacityBytes-used.Bytes), Inodes: fs.Inodes,
		InodesFree: max(0, fs.Inodes-used.Inodes)}
}

// memoryFilesystem returns the state of a tmpfs. An unlimited one has the size of the machine's
// memory, which the disk does not know.
func (d *Disk) memoryFilesystem(m *mount) *world.FilesystemMeasured {
	const unlimited, inodes = 4 << 30, 1 << 20
	device, capacity := uint64(mountedDevices), m.bytesMax
	for i, other := range d.mounts {
		if other == m {
			device += uint64(i)
		}
	}
	if capacity == 0 {
		capacity = unlimited
	}
	used := &world.TreeMeasured{}
	m.root.measure(used)
	return &world.FilesystemMeasured{Device: device, CapacityBytes: capacity,
		AvailableBytes: max(0, capacity-m.root.usedBytes()),
		FreeBytes:      max(0, capacity-m.root.usedBytes()), Inodes: inodes,
		InodesFree: inodes - used.Inodes}
}
