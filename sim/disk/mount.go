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
	memory bool // lost when the power goes, and not full when the disk is
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
func (d *Disk) mountOver(at place, root *node, memory bool) {
	m := &mount{path: at.path, in: at.nodeIn, on: at.node, root: root, memory: memory}
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

// spaceless reports whether there is no space at a path.
func (d *Disk) spaceless(p string) bool {
	if !d.full {
		return false
	}
	for _, m := range slices.Backward(d.mounts) {
		if within(path.Clean(p), m.path) {
			return !m.memory
		}
	}
	return true
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
			d.mountOver(at, newDir(req.Mode, d.now()), true)
		}
		call.Reply(&world.Done{})
	})
}

func (d *Disk) makeMountpoint(op, p string) *world.Error {
	if path.Clean(p) == "/" {
		return world.Errorf(world.KindRefused, op, "nothing is mounted at /")
	}
	if d.spaceless(p) && d.at(p) == nil {
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

// bindSubPath makes what is missing first and mounts a little later.
func (d *Disk) bindSubPath(call *wire.Call, req *world.BindSubPath) {
	source, err := d.sourceOf(call.Name, req)
	if err == nil {
		err = d.makeTarget(call.Name, req.Target, source.node.isDir())
	}
	if err != nil {
		call.Fail(err)
		return
	}
	d.later(call, func() {
		source, err := d.sourceOf(call.Name, req)
		at, lost := d.look(call.Name, req.Target, true)
		if err != nil || lost != nil || at.node == nil {
			call.Fail(halfway(call.Name, req.Target))
			return
		}
		if at.isMountpoint() && at.node != source.node {
			for d.unmount(at.path) { // of an earlier volume
			}
			at, _ = d.look(call.Name, req.Target, true)
		}
		if !at.isMountpoint() {
			d.mountOver(at, source.node, source.nodeIn != nil && source.nodeIn.memory)
		}
		call.Reply(&world.Done{})
	})
}

// sourceOf goes to what a volume has at a sub-path, making directories that are missing. It does
// not follow links.
func (d *Disk) sourceOf(op string, req *world.BindSubPath) (place, *world.Error) {
	at, err := d.look(op, req.Root, true)
	switch {
	case err != nil:
		return at, err
	case at.node == nil:
		return at, notFound(op, req.Root)
	case path.IsAbs(req.SubPath), slices.Contains(strings.Split(req.SubPath, "/"), ".."):
		return at, world.Errorf(world.KindInvalid, op, "%q leads out of the volume", req.SubPath)
	}
	for name := range strings.SplitSeq(path.Clean(req.SubPath), "/") {
		p := path.Join(at.path, name)
		if at, err = d.look(op, p, false); err != nil {
			return at, err
		}
		if at.node == nil && d.spaceless(p) {
			return at, noSpace(op, p)
		}
		if at.node == nil {
			d.change(at, newDir(req.Mode, d.now()))
			at.node = at.dir.child(at.name)
			d.made(p)
		}
		if at.node.kind == kindLink {
			return at, world.Errorf(world.KindInvalid, op, "%s is a link", p)
		}
	}
	return at, nil
}

// makeTarget makes something of the same kind as the source where it is to be seen.
func (d *Disk) makeTarget(op, p string, dir bool) *world.Error {
	if dir {
		return d.makeMountpoint(op, p)
	}
	if err := d.makeMountpoint(op, path.Dir(path.Clean(p))); err != nil {
		return err
	}
	at, err := d.look(op, p, true)
	switch {
	case err != nil:
		return err
	case at.node == nil && d.spaceless(p):
		return noSpace(op, p)
	case at.node == nil:
		d.change(at, newFile(nil, 0o644, d.now()))
		d.written(at.path)
	case at.node.isDir():
		return world.Errorf(world.KindInvalid, op, "%s is a directory", p)
	}
	return nil
}
