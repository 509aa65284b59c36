package disk

import (
	"bytes"
	"compress/gzip"
	"path"

	"seedlet.dev/sim/truth"
	"seedlet.dev/sim/wire"
	"seedlet.dev/world"
)

// The calls that change names and files.

func (d *Disk) makeDir(call *wire.Call, req *world.MakeDir) {
	if d.spaceless(req.Path, 0) && d.at(req.Path) == nil {
		call.Fail(noSpace(call.Name, req.Path))
		return
	}
	made, err := d.mkdirAll(call.Name, req.Path, req.Mode)
	if err != nil {
		call.Fail(err)
		return
	}
	if made {
		d.made(req.Path)
	}
	call.Reply(&world.Done{})
}

// makeFile leaves what is there alone, and does not force what it makes to the disk.
func (d *Disk) makeFile(call *wire.Call, req *world.MakeFile) {
	at, err := d.look(call.Name, req.Path, true)
	if err == nil && at.node == nil {
		at, err = d.look(call.Name, req.Path, false)
	}
	switch {
	case err != nil:
	case at.node != nil && at.node.kind != world.PathFile:
		err = world.Errorf(world.KindExists, call.Name, "%s exists and is no file", req.Path)
	case at.node == nil && d.spaceless(at.path, 0):
		err = noSpace(call.Name, req.Path)
	case at.node == nil:
		d.change(at, newFile(nil, req.Mode, d.now()))
		d.written(at.path)
	}
	d.end(call, err)
}

// makeLink puts a link in the place of a link, or of nothing.
func (d *Disk) makeLink(call *wire.Call, req *world.MakeLink) {
	at, err := d.look(call.Name, req.Path, false)
	full := d.spaceless(req.Path, 0)
	if err.Has(world.KindNotFound) && !full {
		if _, err = d.mkdirAll(call.Name, path.Dir(path.Clean(req.Path)), 0o755); err == nil {
			at, err = d.look(call.Name, req.Path, false)
		}
	}
	switch {
	case full:
		err = noSpace(call.Name, req.Path)
	case err != nil:
	case req.Target == "":
		err = world.Errorf(world.KindInvalid, call.Name, "a link to nothing")
	case at.node != nil && at.node.kind != kindLink:
		err = world.Errorf(world.KindExists, call.Name, "%s exists and is no link", req.Path)
	case at.node == nil || at.node.target != req.Target:
		d.change(at, newLink(req.Target, d.now()))
		d.written(at.path)
	}
	d.end(call, err)
}

// writeFile replaces a file and forces it to the disk, and with it all that was changed before;
// but for a volatile one.
func (d *Disk) writeFile(call *wire.Call, req *world.WriteFile) {
	at, err := d.look(call.Name, req.Path, false)
	switch {
	case err != nil:
	case d.spaceless(at.path, int64(len(req.Data))):
		err = noSpace(call.Name, req.Path)
	default:
		err = replaceable(call.Name, at)
	}
	if err == nil {
		d.change(at, newFile(req.Data, req.Mode, d.now()))
		if !req.Volatile {
			d.sync()
		}
		d.written(at.path)
	}
	d.end(call, err)
}

// replaceable says why no file can take a name.
func replaceable(op string, at place) *world.Error {
	switch {
	case at.isMountpoint():
		return world.Errorf(world.KindInternal, op, "%s: device or resource busy", at.path)
	case at.node != nil && at.node.isDir():
		return world.Errorf(world.KindExists, op, "%s is a directory", at.path)
	}
	return nil
}

// rename takes one step, which is not forced to the disk.
func (d *Disk) rename(call *wire.Call, req *world.Rename) {
	from, err := d.look(call.Name, req.From, false)
	to, toErr := d.look(call.Name, req.To, false)
	if err == nil {
		err = toErr
	}
	switch {
	case err != nil:
	case from.node == nil:
		err = notFound(call.Name, req.From)
	case from.node == to.node:
		d.end(call, nil)
		return
	case from.nameIn != to.nameIn:
		err = world.Errorf(world.KindInvalid, call.Name, "%s: invalid cross-device link", req.To)
	case from.isMountpoint():
		err = world.Errorf(world.KindInternal, call.Name, "%s: device or resource busy", req.From)
	case from.node.isDir() && within(to.path, from.path):
		err = world.Errorf(world.KindInvalid, call.Name, "%s is in %s", req.To, req.From)
	case req.Exclusive && to.node != nil:
		err = world.Errorf(world.KindExists, call.Name, "%s: file exists", req.To)
	default:
		err = replaceable(call.Name, to)
	}
	if err == nil {
		d.move(from, to)
		d.opts.Truth.Add(truth.Fact{Time: d.now(), Kind: truth.PathRenamed, Path: from.path,
			To: to.path})
		d.notify(from.path)
		d.notify(to.path)
	}
	d.end(call, err)
}

// halfMade ends the name of a file that Compress has not finished.
const halfMade = ".tmp"

// compress works under another name, which the truth log does not know of; then the compressed
// file is there, and a little later the other one goes.
func (d *Disk) compress(call *wire.Call, req *world.Compress) {
	from, err := d.look(call.Name, req.Path, false)
	to, toErr := d.look(call.Name, req.Path+".gz", false)
	if err == nil {
		err = toErr
	}
	switch {
	case err != nil:
	case from.node == nil && to.node == nil:
		err = notFound(call.Name, req.Path)
	case from.node == nil:
		d.end(call, nil)
		return
	case from.node.kind != world.PathFile:
		err = world.Errorf(world.KindInvalid, call.Name, "%s is no regular file", req.Path)
	case d.spaceless(to.path, 0):
		err = noSpace(call.Name, req.Path)
	default:
		err = replaceable(call.Name, to)
	}
	if err != nil {
		call.Fail(err)
		return
	}
	half := to
	half.path, half.name = to.path+halfMade, to.name+halfMade
	d.change(half, newFile(nil, from.node.mode, d.now()))
	d.later(call, func() {
		if d.at(from.path) != from.node || d.at(half.path) == nil {
			call.Fail(halfway(call.Name, from.path))
			return
		}
		d.change(half, from.node.compressed(d))
		d.move(half, to)
		d.sync()
		d.written(to.path)
		d.later(call, func() { d.removeCompressed(call, from) })
	})
}

func (d *Disk) removeCompressed(call *wire.Call, from place) {
	if d.at(from.path) == from.node {
		d.change(from, nil)
		d.tell(truth.PathRemoved, from.path, "")
		d.notify(from.path)
	}
	call.Reply(&world.Done{})
}

// compressed is the file with the content of another, compressed. Of one that is not known from
// its beginning it has a size only.
func (n *node) compressed(d *Disk) *node {
	n.catchUp()
	to := newFile(nil, n.mode, d.now())
	to.gid = n.gid
	if to.size = n.size / 10; n.size == int64(len(n.data)) {
		var buf bytes.Buffer
		w, err := gzip.NewWriterLevel(&buf, gzip.BestSpeed)
		if err == nil {
			_, err = w.Write(n.data)
		}
		if err == nil {
			err = w.Close()
		}
		if err != nil {
			panic("disk: " + err.Error())
		}
		to.data, to.size = buf.Bytes(), int64(buf.Len())
	}
	return to
}

// removeTree removes some of a tree at first, the rest a little later: an agent that dies in
// between leaves the rest.
func (d *Disk) removeTree(call *wire.Call, req *world.RemoveTree) {
	at, err := d.look(call.Name, req.Path, false)
	switch {
	case err.Has(world.KindNotFound), err == nil && at.node == nil:
		call.Reply(&world.Done{})
		return
	case err == nil && at.dir == nil:
		err = world.Errorf(world.KindRefused, call.Name, "/ is not removed")
	case err == nil && d.mountedWithin(at.path) > 0:
		err = world.Errorf(world.KindRefused, call.Name, "something is mounted in %s", req.Path)
	}
	if err != nil {
		call.Fail(err)
		return
	}
	if n := len(at.node.entries); n > 0 {
		for range call.Draw() % uint64(n+1) {
			first := at.node.entries[0]
			d.change(place{dir: at.node, name: first.name}, nil)
		}
	}
	d.later(call, func() {
		now, err := d.look(call.Name, at.path, false)
		switch {
		case err != nil || now.node == nil:
		case d.mountedWithin(at.path) > 0:
			call.Fail(halfway(call.Name, at.path))
			return
		default:
			d.change(now, nil)
			d.tell(truth.PathRemoved, at.path, "")
			d.notify(at.path)
		}
		call.Reply(&world.Done{})
	})
}

// end answers a call that has nothing to tell.
func (d *Disk) end(call *wire.Call, err *world.Error) {
	if err != nil {
		call.Fail(err)
		return
	}
	call.Reply(&world.Done{})
}

func noSpace(op, p string) *world.Error {
	return world.Errorf(world.KindExhausted, op, "%s: no space left on device", p)
}

// halfway is why a call failed that found its work undone when it went on with it. It may have
// taken effect in part.
func halfway(op, p string) *world.Error {
	return world.Errorf(world.KindInternal, op, "%s has changed meanwhile", p)
}
