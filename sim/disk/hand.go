package disk

import (
	"path"
	"time"

	"seedlet.dev/sim/truth"
)

// What others than the agent do on the disk, and what they see there.

// Write places a file as an editor does that does not force it to the disk. Missing directories
// are made. It panics if the path cannot be a file's: that is a mistake in the plan.
func (d *Disk) Write(p string, data []byte) {
	p = path.Clean(p)
	if _, err := d.mkdirAll("Write", path.Dir(p), 0o755); err != nil {
		panic("disk: " + err.Error())
	}
	if old := d.at(p); old != nil && old.dir {
		panic("disk: " + p + " is a directory")
	}
	d.change(p, &node{name: path.Base(p), mode: 0o644, modTime: d.now(), data: data})
	d.tell(truth.PathWritten, p, truth.CauseUser)
	d.notify(p)
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

// Remove removes a file or a tree. It reports false if nothing is there.
func (d *Disk) Remove(p string) bool {
	p = path.Clean(p)
	if d.at(p) == nil {
		return false
	}
	d.change(p, nil)
	d.tell(truth.PathRemoved, p, truth.CauseUser)
	d.notify(p)
	return true
}

// Read returns the content of a file; false if there is no such file.
func (d *Disk) Read(p string) ([]byte, bool) {
	if n := d.at(p); n != nil && !n.dir {
		return n.data, true
	}
	return nil, false
}

// Exists reports whether there is a file or directory.
func (d *Disk) Exists(p string) bool { return d.at(p) != nil }

// List returns the names in a directory in order; none if there is no such directory.
func (d *Disk) List(p string) []string {
	var names []string
	if n := d.at(p); n != nil {
		for _, c := range n.children {
			names = append(names, c.name)
		}
	}
	return names
}

// Walk returns all paths, parents first, in order.
func (d *Disk) Walk() []string {
	var all []string
	d.root.walk("/", func(p string, _ *node) { all = append(all, p) })
	return all
}

// Sync forces what was changed so far, as a careful user does.
func (d *Disk) Sync() { d.sync() }

// SetFull says whether there is no space left for what the agent wants to make.
func (d *Disk) SetFull(is bool) { d.full = is }
