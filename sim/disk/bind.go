package disk

import (
	"path"
	"slices"
	"strings"

	"seedlet.dev/sim/truth"
	"seedlet.dev/sim/wire"
	"seedlet.dev/world"
)

// bindSubPath first creates the missing source and target, and mounts a little later.
func (d *Disk) bindSubPath(call *wire.Call, req *world.BindSubPath) {
	source, err := d.resolveSubPath(call.Name, req)
	if err == nil {
		err = d.makeTarget(call.Name, req.Target, source.node)
	}
	if err != nil {
		call.Fail(err)
		return
	}
	d.continueLater(call, func() {
		source, err := d.resolveSubPath(call.Name, req)
		at, targetErr := d.resolve(call.Name, req.Target, true)
		switch {
		case err != nil, targetErr != nil, at.node == nil, at.node.isDir() != source.node.isDir():
			call.Fail(changedMeanwhile(call.Name, req.Target))
			return
		case !at.isMountpoint():
			d.mountOver(at, bindOf(source))
		}
		d.complete(call, nil)
	})
}

// resolveSubPath resolves a sub-path within a volume and creates missing directories. It follows
// links within the volume only.
func (d *Disk) resolveSubPath(op string, req *world.BindSubPath) (location, *world.Error) {
	at, err := d.resolve(op, req.Root, true)
	switch {
	case err != nil:
		return at, err
	case at.node == nil:
		return at, notFound(op, req.Root)
	case path.IsAbs(req.SubPath), slices.Contains(strings.Split(req.SubPath, "/"), ".."):
		return at, escapesVolume(op, req.SubPath)
	}
	root, rootMode, names := at.path, at.node.mode, strings.Split(req.SubPath, "/")
	linkNames := 0 // number of names that come from links; these are not created
	for steps := 0; len(names) > 0; steps++ {
		name := names[0]
		names = names[1:]
		if name == ".." && at.path == root || steps > stepsMax {
			return at, escapesVolume(op, req.SubPath)
		}
		if at, err = d.resolve(op, path.Join(at.path, name), false); err != nil {
			return at, err
		}
		switch {
		case at.node == nil && linkNames > 0:
			return at, escapesVolume(op, req.SubPath)
		case at.node == nil:
			if err = d.makeSourceDir(op, &at, rootMode); err != nil {
				return at, err
			}
		case at.node.kind == kindLink && path.IsAbs(at.node.target):
			return at, escapesVolume(op, req.SubPath)
		case at.node.kind == kindLink:
			more := strings.Split(at.node.target, "/")
			names, linkNames = append(more, names...), len(more)+max(0, linkNames-1)
			at, _ = d.resolve(op, path.Dir(at.path), false)
			continue
		}
		linkNames = max(0, linkNames-1)
	}
	return at, nil
}

// stepsMax limits the names of a sub-path, including those of followed links. It ends circular
// links.
const stepsMax = 1000

func (d *Disk) makeSourceDir(op string, at *location, mode uint32) *world.Error {
	if d.lacksSpace(at.path, 0) {
		return noSpace(op, at.path)
	}
	dir := newDir(mode, d.now())
	if at.dir.mode&setGroupID != 0 {
		dir.gid = at.dir.gid
	}
	d.setEntry(*at, dir)
	at.node, at.nodeMount = at.dir.child(at.name), at.nameMount
	d.recordMade(at.path)
	return nil
}

func escapesVolume(op, subPath string) *world.Error {
	return world.Errorf(world.KindInvalid, op, "%q does not lead into the volume", subPath)
}

// makeTarget creates a target of the same kind as the source. It removes the mount and the mount
// point of an earlier source.
func (d *Disk) makeTarget(op, p string, source *node) *world.Error {
	at, _ := d.resolve(op, p, true)
	for at.isMountpoint() && at.node != source && d.unmountNewest(at.path) {
		at, _ = d.resolve(op, p, true)
	}
	if n := at.node; n != nil && n != source && n.isDir() != source.isDir() {
		if len(n.entries) > 0 || n.size > 0 {
			return world.Errorf(world.KindInvalid, op, "%s is in the way", p)
		}
		d.setEntry(at, nil)
		d.recordFact(truth.PathRemoved, at.path, "")
	}
	if source.isDir() {
		return d.makeMountpoint(op, p)
	}
	if dir := path.Dir(path.Clean(p)); dir != "/" {
		if err := d.makeMountpoint(op, dir); err != nil {
			return err
		}
	}
	at, err := d.resolve(op, p, true)
	switch {
	case err != nil:
		return err
	case at.node == nil && d.lacksSpace(p, 0):
		return noSpace(op, p)
	case at.node == nil:
		d.setEntry(at, newFile(nil, 0o644, d.now()))
		d.recordWritten(at.path)
	}
	return nil
}
