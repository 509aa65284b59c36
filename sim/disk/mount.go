package disk

import (
	"fmt"
	"math"
	"path"
	"slices"
	"strings"
	"time"

	"seedlet.dev/sim/truth"
	"seedlet.dev/sim/wire"
	"seedlet.dev/world"
)

// mount is a tree that covers the node at its path. A bind mount shares the tree of its source and
// stays valid when the source is renamed or removed.
type mount struct {
	path     string
	parent   *mount // mount that the covered node is in; nil for the disk itself
	covered  *node
	root     *node
	isBind   bool
	isMemory bool // a tmpfs: lost with the power, not full when the disk is
	isApart  bool // a file system of another process, which is not full when the disk is

	bytesMax int64 // size of a tmpfs; zero: unlimited

	// What the mount table says: the file system, and the path in it that is mounted.
	fileSystem
	within   string
	readOnly bool
}

// fileSystem is a file system in the mount table.
type fileSystem struct {
	source, fsType, device string
	label                  string // the SELinux label of all its files, if they have one
}

// ownFileSystem is that of the disk itself.
var ownFileSystem = fileSystem{source: "/dev/sda1", fsType: "ext4", device: "8:1"}

// newFileSystem returns a file system with a device of its own.
func (d *Disk) newFileSystem(source, fsType string) fileSystem {
	d.devices++
	return fileSystem{source: source, fsType: fsType, device: fmt.Sprintf("0:%d", d.devices)}
}

// bindOf returns a bind mount of a location.
func bindOf(source location) *mount {
	m := &mount{root: source.node, isBind: true, fileSystem: ownFileSystem, within: source.path}
	if in := source.nodeMount; in != nil {
		m.isMemory, m.isApart = in.isMemory, in.isApart
		m.fileSystem, m.readOnly = in.fileSystem, in.readOnly
		m.within = path.Join(in.within, strings.TrimPrefix(source.path, in.path))
	}
	return m
}

// listMounts lists the mounts at or below a path.
func (d *Disk) listMounts(call *wire.Call, req *world.ListMounts) {
	at, err := d.resolve(call.Name, req.Path, false)
	if err != nil && !err.Has(world.KindNotFound) {
		call.Fail(err)
		return
	}
	listed := &world.MountsListed{}
	for _, m := range d.mounts {
		if err == nil && within(m.path, at.path) {
			listed.Mounts = append(listed.Mounts, world.Mount{
				Path:   path.Clean(req.Path) + strings.TrimPrefix(m.path, at.path),
				Source: m.source, FSType: m.fsType, Device: m.device, Root: m.within,
				ReadOnly: m.readOnly, SELinuxContext: m.label,
				SELinuxLabels: d.opts.SELinux && m.label == "" && hasLabels(m.fsType)})
		}
	}
	call.Reply(listed)
}

// hasLabels reports whether the files of a file system have SELinux labels that can be changed.
func hasLabels(fsType string) bool {
	return fsType == "ext4" || fsType == "xfs" || fsType == "tmpfs"
}

// visibleNode returns the node that is visible in the place of a node, through the mounts that
// cover it, and the mount that the visible node is in.
func (d *Disk) visibleNode(n *node, parent *mount) (*node, *mount) {
	for n != nil && n.mountCount > 0 {
		i := slices.IndexFunc(d.mounts, func(m *mount) bool {
			return m.covered == n && m.parent == parent
		})
		if i < 0 {
			break
		}
		parent = d.mounts[i]
		n = parent.root
	}
	return n, parent
}

// mountOver mounts m at a location.
func (d *Disk) mountOver(at location, m *mount) {
	m.path, m.parent, m.covered = at.path, at.nodeMount, at.node
	m.covered.mountCount++
	d.mounts = append(d.mounts, m)
	d.opts.Truth.Add(truth.Fact{Time: d.now(), Kind: truth.Mounted, Path: m.path, Source: m.source,
		NewPath: m.within, IsReadOnly: m.readOnly, Label: m.label})
	d.notify(m.path)
}

// unmountNewest removes the newest mount at or below a path. It returns false if none exists.
func (d *Disk) unmountNewest(p string) bool {
	for i, m := range slices.Backward(d.mounts) {
		if within(m.path, p) {
			m.covered.mountCount--
			d.mounts = slices.Delete(d.mounts, i, i+1)
			d.recordFact(truth.Unmounted, m.path, "")
			d.notify(m.path)
			return true
		}
	}
	return false
}

// countMountsWithin returns the number of mounts at or below a path.
func (d *Disk) countMountsWithin(p string) (count int) {
	for _, m := range d.mounts {
		if within(m.path, p) {
			count++
		}
	}
	return count
}

// within reports whether p is other or a descendant of it; both are clean.
func within(p, other string) bool {
	return p == other || other == "/" ||
		strings.HasPrefix(p, other) && p[len(other)] == '/'
}

// mountOf returns the newest mount that a path is in; nil if it is in none.
func (d *Disk) mountOf(p string) *mount {
	for _, m := range slices.Backward(d.mounts) {
		if within(path.Clean(p), m.path) {
			return m
		}
	}
	return nil
}

// lacksSpace reports whether a path has no space for a file of so many bytes.
func (d *Disk) lacksSpace(p string, bytes int64) bool {
	if m := d.mountOf(p); m != nil && m.isMemory {
		return m.bytesMax > 0 && m.root.usedBytes()+bytes > m.bytesMax
	}
	room, inodes := d.Room(p)
	if max(bytes, 1) <= room && inodes > 0 {
		return d.full && !d.isApart(p)
	}
	if d.opts.NoteFull != nil {
		d.opts.NoteFull()
	}
	return true
}

// isApart reports whether a path is in a file system of another process.
func (d *Disk) isApart(p string) bool {
	m := d.mountOf(p)
	return m != nil && m.isApart
}

// Room returns how many bytes and files can still be written at a path on the disk.
func (d *Disk) Room(p string) (bytes, inodes int64) {
	if !d.opts.Fills || d.isApart(p) {
		return math.MaxInt64, math.MaxInt64
	}
	fs := d.Filesystem(p)
	return fs.AvailableBytes / blockSize * blockSize, fs.InodesFree
}

// freeMemory returns the free space of the tmpfs that a path is in, and false if it is in none.
func (d *Disk) freeMemory(p string) (bytes int64, isMemory bool) {
	switch m := d.mountOf(p); {
	case m == nil:
		return 0, false
	case m.bytesMax > 0:
		return m.bytesMax - m.root.usedBytes(), true
	default:
		return math.MaxInt64, m.isMemory
	}
}

// usedBytes returns the allocated bytes of the files of a tree.
func (n *node) usedBytes() (bytes int64) {
	n.catchUp()
	bytes = (n.size + blockSize - 1) / blockSize * blockSize
	for _, e := range n.entries {
		bytes += e.node.usedBytes()
	}
	return bytes
}

// mountMemory creates the mount point first and mounts a little later. If the agent dies in between
// the directory is left.
func (d *Disk) mountMemory(call *wire.Call, req *world.MountMemory) {
	if err := d.makeMountpoint(call.Name, req.Path); err != nil {
		call.Fail(err)
		return
	}
	d.continueLater(call, func() {
		at, err := d.resolve(call.Name, req.Path, true)
		switch {
		case err != nil || at.node == nil:
			call.Fail(changedMeanwhile(call.Name, req.Path))
			return
		case !at.isMountpoint():
			d.mountOver(at, &mount{root: newDir(req.Mode, d.now()), isMemory: true,
				bytesMax: req.BytesMax, within: "/", fileSystem: d.newFileSystem(memoryKind(req))})
		case at.nodeMount.isBind, at.nodeMount.isApart:
			call.Fail(world.Errorf(world.KindExists, call.Name, "%s is a mount already", at.path))
			return
		}
		call.Reply(&world.Done{})
	})
}

// memoryKind returns the source and type of a file system in memory.
func memoryKind(req *world.MountMemory) (source, fsType string) {
	if req.HugePages != "" {
		return "hugetlbfs", "hugetlbfs"
	}
	return "tmpfs", "tmpfs"
}

func (d *Disk) makeMountpoint(op, p string) *world.Error {
	if path.Clean(p) == "/" {
		return world.Errorf(world.KindRefused, op, "nothing is mounted at /")
	}
	if d.lacksSpace(p, 0) && d.nodeAt(p) == nil {
		return noSpace(op, p)
	}
	made, err := d.mkdirAll(op, p, 0o755)
	if made {
		d.recordMade(p)
	}
	return err
}

// unmountAll removes the newest mounts first, because a mount can only be removed after the mounts
// on top of it. It removes some of the mounts a little later.
func (d *Disk) unmountAll(call *wire.Call, req *world.Unmount) {
	if !path.IsAbs(req.Path) {
		call.Fail(world.Errorf(world.KindInvalid, call.Name, "%q is not an absolute path", req.Path))
		return
	}
	p := path.Clean(req.Path)
	if at, err := d.resolve(call.Name, p, false); err == nil {
		p = at.path
	}
	for held := range d.held { //ordered: whether there is one
		if within(held, p) {
			call.Fail(world.Errorf(world.KindExhausted, call.Name, "%s is busy", p))
			return
		}
	}
	if n := d.countMountsWithin(p); n > 0 {
		for range call.Draw() % uint64(n+1) {
			d.unmountNewest(p)
		}
	}
	end := func() {
		for d.unmountNewest(p) {
		}
		call.Reply(&world.Done{})
	}
	if slices.ContainsFunc(d.mounts, func(m *mount) bool {
		return within(m.path, p) && d.isHungMount(m)
	}) {
		d.opts.Agenda.After(forceAfter, func() {
			if d.decideToContinue(call) {
				end()
			}
		})
		return
	}
	d.continueLater(call, end)
}

// MemoryUsage returns what the files of all tmpfs take of the machine's memory.
func (d *Disk) MemoryUsage() (bytes int64) {
	for _, m := range d.mounts {
		if m.isMemory {
			bytes += m.root.usedBytes()
		}
	}
	return bytes
}

// forceAfter is after which time the mounts of a server that does not respond are unmounted by
// force.
const forceAfter = time.Minute
