package disk

import (
	"path"
	"slices"
	"strings"

	"seedlet.dev/sim/truth"
	"seedlet.dev/sim/wire"
	"seedlet.dev/world"
)

// mount is a tree that hides what is at its path. One that is bound is the tree of its source
// itself, and lives on when the source has lost its name.
type mount struct {
	path   string
	in     *mount // what is hidden is hidden in this mount only; nil for the disk itself
	on     *node
	root   *node
	bound  bool
	memory bool // lost when the power goes, and not full when the disk is

	bytesMax int64 // of a mount of memory itself; zero: no end
}

// top is what is seen in the place of a node, and the mount that it is in.
func (d *Disk) top(n *node, in *mount) (*node, *mount) {
	for n != nil && n.hidden > 0 {
		i := slices.IndexFunc(d.mounts, func(m *mount) bool { return m.on == n && m.in == in })
		if i < 0 {
			break
		}
		in = d.mounts[i]
		n = in.root
	}
	return n, in
}

// mountOver hides what is at a place.
func (d *Disk) mountOver(at place, m *mount) {
	m.path, m.in, m.on = at.path, at.nodeIn, at.node
	m.on.hidden++
	d.mounts = append(d.mounts, m)
	d.tell(truth.Mounted, m.path, "")
	d.notify(m.path)
}

// unmount takes away the newest mount at or below a path, and reports false if there is none.
func (d *Disk) unmount(p string) bool {
	for i, m := range slices.Backward(d.mounts) {
		if within(m.path, p) {
			m.on.hidden--
			d.mounts = slices.Delete(d.mounts, i, i+1)
			d.tell(truth.Unmounted, m.path, "")
			d.notify(m.path)
			return true
		}
	}
	return false
}

// mountedWithin counts the mounts at or below a path.
func (d *Disk) mountedWithin(p string) (count int) {
	for _, m := range d.mounts {
		if within(m.path, p) {
			count++
		}
	}
	return count
}

// within reports whether a path is another or below it; both are clean.
func within(p, other string) bool {
	return p == other || other == "/" ||
		strings.HasPrefix(p, other) && p[len(other)] == '/'
}

// spaceless reports whether there is no space at a path for a file of so many bytes.
func (d *Disk) spaceless(p string, bytes int64) bool {
	for _, m := range slices.Backward(d.mounts) {
		if within(path.Clean(p), m.path) && m.memory {
			return m.bytesMax > 0 && m.root.used()+bytes > m.bytesMax
		}
		if within(path.Clean(p), m.path) {
			break
		}
	}
	return d.full
}

// room is what is left in the file system in memory that a path is in; false if it has no end, or
// is on the disk.
func (d *Disk) room(p string) (bytes int64, bounded bool) {
	for _, m := range slices.Backward(d.mounts) {
		if within(p, m.path) {
			return m.bytesMax - m.root.used(), m.bytesMax > 0
		}
	}
	return 0, false
}

// used is what the files of a tree take.
func (n *node) used() (bytes int64) {
	n.catchUp()
	bytes = (n.size + blockSize - 1) / blockSize * blockSize
	for _, e := range n.entries {
		bytes += e.node.used()
	}
	return bytes
}

// mountMemory makes the directory first and mounts a little later: an agent that dies in between
// leaves the directory.
func (d *Disk) mountMemory(call *wire.Call, req *world.MountMemory) {
	if err := d.makeMountpoint(call.Name, req.Path); err != nil {
		call.Fail(err)
		return
	}
	d.later(call, func() {
		at, err := d.look(call.Name, req.Path, true)
		switch {
		case err != nil || at.node == nil:
			call.Fail(halfway(call.Name, req.Path))
			return
		case !at.isMountpoint():
			d.mountOver(at, &mount{root: newDir(req.Mode, d.now()), memory: true,
				bytesMax: req.BytesMax})
		case at.nodeIn.bound:
			call.Fail(world.Errorf(world.KindExists, call.Name, "%s is a mount already", at.path))
			return
		}
		call.Reply(&world.Done{})
	})
}

func (d *Disk) makeMountpoint(op, p string) *world.Error {
	if path.Clean(p) == "/" {
		return world.Errorf(world.KindRefused, op, "nothing is mounted at /")
	}
	if d.spaceless(p, 0) && d.at(p) == nil {
		return noSpace(op, p)
	}
	made, err := d.mkdirAll(op, p, 0o755)
	if made {
		d.made(p)
	}
	return err
}

// unmountAll begins with the newest mount, as one that is above another has to stay until then.
// Some of them stay a little longer.
func (d *Disk) unmountAll(call *wire.Call, req *world.Unmount) {
	if !path.IsAbs(req.Path) {
		call.Fail(world.Errorf(world.KindInvalid, call.Name, "%q is not an absolute path", req.Path))
		return
	}
	p := path.Clean(req.Path)
	if at, err := d.look(call.Name, p, false); err == nil {
		p = at.path
	}
	if n := d.mountedWithin(p); n > 0 {
		for range call.Draw() % uint64(n+1) {
			d.unmount(p)
		}
	}
	d.later(call, func() {
		for d.unmount(p) {
		}
		call.Reply(&world.Done{})
	})
}
