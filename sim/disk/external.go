package disk

import (
	"path"
	"time"

	"seedlet.dev/sim/truth"
	"seedlet.dev/world"
)

// Changes by other users than the agent, and queries of the disk's state.

// Write replaces a file without a sync, as an editor does: a new file takes the name. It creates
// missing directories. It panics if the path cannot be a file's, which is an error of the plan.
func (d *Disk) Write(p string, data []byte) { d.create(p, newFile(data, 0o644, d.now())) }

// CreateSpecial creates an empty directory, a socket, a device or a pipe, with missing directories.
func (d *Disk) CreateSpecial(p string, kind world.PathKind) {
	d.create(p, &node{kind: kind, content: content{mode: 0o755, modTime: d.now()}})
}

// Link creates a symbolic link, with missing directories.
func (d *Disk) Link(p, target string) { d.create(p, newLink(target, d.now())) }

// LinkDevice links a path to the node of a block device. Requests that name a sequence number find
// the device at this path only if it has that number.
func (d *Disk) LinkDevice(p, target string, sequence uint64) {
	link := newLink(target, d.now())
	link.sequence = sequence
	d.create(p, link)
}

// checkSequence returns an error if a path is not that of the device with a sequence number.
func (d *Disk) checkSequence(op, p string, sequence uint64) *world.Error {
	at, err := d.resolve(op, p, false)
	if sequence == 0 || err == nil && at.node != nil && at.node.sequence == sequence {
		return nil
	}
	return world.Errorf(world.KindNotFound, op, "%s is not the disk %d any more", p, sequence)
}

func (d *Disk) create(p string, n *node) {
	if _, err := d.mkdirAll("Write", path.Dir(path.Clean(p)), 0o755); err != nil {
		panic("disk: " + err.Error())
	}
	at, err := d.resolve("Write", p, false)
	switch {
	case err != nil:
		panic("disk: " + err.Error())
	case at.node != nil && at.node.isDir() && n.isDir():
		return
	case at.node != nil && at.node.isDir():
		panic("disk: " + p + " is a directory")
	case at.isMountpoint():
		panic("disk: " + p + " is a mount point; Open it to write")
	}
	d.setEntry(at, n)
	kind := truth.PathWritten
	if n.isDir() {
		kind = truth.PathCreated
	}
	d.recordFact(kind, at.path, truth.CauseAdministrator)
	d.notify(at.path)
}

// WriteTorn writes the first half of a file now and the whole file after a delay, unless the file
// has been removed or written by then. It calls finish once it has written the whole file.
func (d *Disk) WriteTorn(p string, data []byte, delay time.Duration, finish func()) {
	d.Write(p, data[:len(data)/2])
	half := d.nodeAt(p)
	d.opts.Agenda.After(delay, func() {
		if d.nodeAt(p) == half {
			d.Write(p, data)
			finish()
		}
	})
}

// Remove removes a file or a tree. It returns false if the path does not exist or has a mount at or
// below it.
func (d *Disk) Remove(p string) bool {
	at, err := d.resolve("Remove", p, false)
	if err != nil || at.node == nil || d.countMountsWithin(at.path) > 0 {
		return false
	}
	d.setEntry(at, nil)
	d.recordFact(truth.PathRemoved, at.path, truth.CauseAdministrator)
	d.notify(at.path)
	return true
}

// Read returns the content of a file, and false if there is no regular file at the path.
func (d *Disk) Read(p string) ([]byte, bool) {
	if n := d.nodeAt(p); n != nil && n.kind == world.PathFile {
		return n.readAll(), true
	}
	return nil, false
}

// Exists reports whether the path exists, including a dangling link.
func (d *Disk) Exists(p string) bool {
	at, _ := d.resolve("", p, false)
	return at.node != nil
}

// ModeAndGroup returns the permission bits, with set-group-ID, and the group of a path.
func (d *Disk) ModeAndGroup(p string) (mode uint32, gid int64) {
	if n := d.nodeAt(p); n != nil {
		return n.mode, n.gid
	}
	return 0, 0
}

// List returns the sorted names in a directory; none if the directory does not exist.
func (d *Disk) List(p string) []string {
	var names []string
	if n := d.nodeAt(p); n != nil {
		for _, e := range n.entries {
			names = append(names, e.name)
		}
	}
	return names
}

// Walk returns all paths in sorted order, parents first.
func (d *Disk) Walk() []string {
	var all []string
	d.walk("/", d.root, nil, func(p string, _ *node) { all = append(all, p) })
	return all
}

// Mounts returns the paths of all mounts, oldest first.
func (d *Disk) Mounts() []string {
	var paths []string
	for _, m := range d.mounts {
		paths = append(paths, m.path)
	}
	return paths
}

// Sync makes all changes so far durable.
func (d *Disk) Sync() { d.sync() }

// SetFull sets whether the disk has no space left for the agent's changes.
func (d *Disk) SetFull(isFull bool) { d.full = isFull }
