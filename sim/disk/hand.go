package disk

import (
	"path"
	"time"

	"seedlet.dev/sim/truth"
	"seedlet.dev/world"
)

// What others than the agent do on the disk, and what they see there.

// Write places a file as an editor does that does not force it to the disk: a new file takes the
// name. Missing directories are made. It panics if the path cannot be a file's: that is a mistake
// in the plan.
func (d *Disk) Write(p string, data []byte) { d.place(p, newFile(data, 0o644, d.now())) }

// Place places something that is no regular file: an empty directory, a socket, a device.
// Missing directories are made.
func (d *Disk) Place(p string, kind world.PathKind) {
	d.place(p, &node{kind: kind, content: content{mode: 0o755, modTime: d.now()}})
}

// Link places a symbolic link. Missing directories are made.
func (d *Disk) Link(p, target string) { d.place(p, newLink(target, d.now())) }

func (d *Disk) place(p string, n *node) {
	if _, err := d.mkdirAll("Write", path.Dir(path.Clean(p)), 0o755); err != nil {
		panic("disk: " + err.Error())
	}
	at, err := d.look("Write", p, false)
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
	d.change(at, n)
	kind := truth.PathWritten
	if n.isDir() {
		kind = truth.PathMade
	}
	d.tell(kind, at.path, truth.CauseUser)
	d.notify(at.path)
}

// WriteTorn writes the first half of a file now and the whole of it when takes has passed, if
// nobody has removed or written it by then. Finish is called just before the whole is there.
func (d *Disk) WriteTorn(p string, data []byte, takes time.Duration, finish func()) {
	d.Write(p, data[:len(data)/2])
	half := d.at(p)
	d.opts.Agenda.After(takes, func() {
		if d.at(p) == half {
			finish()
			d.Write(p, data)
		}
	})
}

// Remove removes a file or a tree. It reports false if nothing is there, and if something is
// mounted in it.
func (d *Disk) Remove(p string) bool {
	at, err := d.look("Remove", p, false)
	if err != nil || at.node == nil || d.mountedWithin(at.path) > 0 {
		return false
	}
	d.change(at, nil)
	d.tell(truth.PathRemoved, at.path, truth.CauseUser)
	d.notify(at.path)
	return true
}

// Read returns the content of a file; false if there is no such file.
func (d *Disk) Read(p string) ([]byte, bool) {
	if n := d.at(p); n != nil && n.kind == world.PathFile {
		return n.whole(), true
	}
	return nil, false
}

// Exists reports whether there is something, and be it a link that leads nowhere.
func (d *Disk) Exists(p string) bool {
	at, _ := d.look("", p, false)
	return at.node != nil
}

// Access returns the permission bits, with set-group-ID, and the group of what is at a path.
func (d *Disk) Access(p string) (mode uint32, gid int64) {
	if n := d.at(p); n != nil {
		return n.mode, n.gid
	}
	return 0, 0
}

// List returns the names in a directory in order; none if there is no such directory.
func (d *Disk) List(p string) []string {
	var names []string
	if n := d.at(p); n != nil {
		for _, e := range n.entries {
			names = append(names, e.name)
		}
	}
	return names
}

// Walk returns all paths, parents first, in order.
func (d *Disk) Walk() []string {
	var all []string
	d.walk("/", d.root, nil, func(p string, _ *node) { all = append(all, p) })
	return all
}

// Mounts returns where something is mounted, oldest first.
func (d *Disk) Mounts() []string {
	var paths []string
	for _, m := range d.mounts {
		paths = append(paths, m.path)
	}
	return paths
}

// Sync forces what was changed so far, as a careful user does.
func (d *Disk) Sync() { d.sync() }

// SetFull says whether there is no space left for what the agent wants to make.
func (d *Disk) SetFull(is bool) { d.full = is }
