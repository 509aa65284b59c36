package disk

import (
	"path"
	"slices"
	"strings"

	"seedlet.dev/sim/truth"
	"seedlet.dev/sim/wire"
	"seedlet.dev/world"
)

// bindSubPath makes what is missing first and mounts a little later.
func (d *Disk) bindSubPath(call *wire.Call, req *world.BindSubPath) {
	source, err := d.sourceOf(call.Name, req)
	if err == nil {
		err = d.makeTarget(call.Name, req.Target, source.node)
	}
	if err != nil {
		call.Fail(err)
		return
	}
	d.later(call, func() {
		source, err := d.sourceOf(call.Name, req)
		at, lost := d.look(call.Name, req.Target, true)
		switch {
		case err != nil, lost != nil, at.node == nil, at.node.isDir() != source.node.isDir():
			call.Fail(halfway(call.Name, req.Target))
			return
		case !at.isMountpoint():
			d.mountOver(at, &mount{root: source.node, bound: true,
				memory: source.nodeIn != nil && source.nodeIn.memory})
		}
		d.end(call, nil)
	})
}

// sourceOf goes to what a volume has at a sub-path, making directories that are missing. Links are
// followed within the volume only.
func (d *Disk) sourceOf(op string, req *world.BindSubPath) (place, *world.Error) {
	at, err := d.look(op, req.Root, true)
	switch {
	case err != nil:
		return at, err
	case at.node == nil:
		return at, notFound(op, req.Root)
	case path.IsAbs(req.SubPath), slices.Contains(strings.Split(req.SubPath, "/"), ".."):
		return at, leadsOut(op, req.SubPath)
	}
	root, names := at.path, strings.Split(req.SubPath, "/")
	linked := 0 // how many of the names come from links, which are not made
	for steps := 0; len(names) > 0; steps++ {
		name := names[0]
		names = names[1:]
		if name == ".." && at.path == root || steps > stepsMax {
			return at, leadsOut(op, req.SubPath)
		}
		if at, err = d.look(op, path.Join(at.path, name), false); err != nil {
			return at, err
		}
		switch {
		case at.node == nil && linked > 0:
			return at, leadsOut(op, req.SubPath)
		case at.node == nil:
			if err = d.makeSource(op, &at, req.Mode); err != nil {
				return at, err
			}
		case at.node.kind == kindLink && path.IsAbs(at.node.target):
			return at, leadsOut(op, req.SubPath)
		case at.node.kind == kindLink:
			more := strings.Split(at.node.target, "/")
			names, linked = append(more, names...), len(more)+max(0, linked-1)
			at, _ = d.look(op, path.Dir(at.path), false)
			continue
		}
		linked = max(0, linked-1)
	}
	return at, nil
}

// stepsMax bounds the names in a sub-path, with those that links add, and ends links in a circle.
const stepsMax = 1000

func (d *Disk) makeSource(op string, at *place, mode uint32) *world.Error {
	if d.spaceless(at.path, 0) {
		return noSpace(op, at.path)
	}
	d.change(*at, newDir(mode, d.now()))
	at.node, at.nodeIn = at.dir.child(at.name), at.nameIn
	d.made(at.path)
	return nil
}

func leadsOut(op, subPath string) *world.Error {
	return world.Errorf(world.KindInvalid, op, "%q does not lead into the volume", subPath)
}

// makeTarget makes something of the same kind as the source where it is to be seen. What an
// earlier source has left there goes.
func (d *Disk) makeTarget(op, p string, source *node) *world.Error {
	at, _ := d.look(op, p, true)
	for at.isMountpoint() && at.node != source && d.unmount(at.path) {
		at, _ = d.look(op, p, true)
	}
	if n := at.node; n != nil && n != source && n.isDir() != source.isDir() {
		if len(n.entries) > 0 || n.size > 0 {
			return world.Errorf(world.KindInvalid, op, "%s is in the way", p)
		}
		d.change(at, nil)
		d.tell(truth.PathRemoved, at.path, "")
	}
	if source.isDir() {
		return d.makeMountpoint(op, p)
	}
	if dir := path.Dir(path.Clean(p)); dir != "/" {
		if err := d.makeMountpoint(op, dir); err != nil {
			return err
		}
	}
	at, err := d.look(op, p, true)
	switch {
	case err != nil:
		return err
	case at.node == nil && d.spaceless(p, 0):
		return noSpace(op, p)
	case at.node == nil:
		d.change(at, newFile(nil, 0o644, d.now()))
		d.written(at.path)
	}
	return nil
}
