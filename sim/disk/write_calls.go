package disk

import (
	"bytes"
	"compress/gzip"
	"path"

	"seedlet.dev/sim/truth"
	"seedlet.dev/sim/wire"
	"seedlet.dev/world"
)

// The calls that change directory entries and files.

func (d *Disk) makeDir(call *wire.Call, req *world.MakeDir) {
	if d.lacksSpace(req.Path, 0) && d.nodeAt(req.Path) == nil {
		call.Fail(noSpace(call.Name, req.Path))
		return
	}
	made, err := d.mkdirAll(call.Name, req.Path, req.Mode)
	if err != nil {
		call.Fail(err)
		return
	}
	if made {
		d.recordMade(req.Path)
	}
	call.Reply(&world.Done{})
}

// makeFile leaves an existing file unchanged. It does not sync.
func (d *Disk) makeFile(call *wire.Call, req *world.MakeFile) {
	at, err := d.resolve(call.Name, req.Path, true)
	if err == nil && at.node == nil {
		at, err = d.resolve(call.Name, req.Path, false)
	}
	switch {
	case err != nil:
	case at.node != nil && at.node.kind != world.PathFile:
		err = world.Errorf(world.KindExists, call.Name, "%s exists and is no file", req.Path)
	case at.node == nil && d.lacksSpace(at.path, 0):
		err = noSpace(call.Name, req.Path)
	case at.node == nil:
		d.setEntry(at, newFile(nil, req.Mode, d.now()))
		d.recordWritten(at.path)
	}
	d.complete(call, err)
}

// makeLink creates a link or replaces an existing link.
func (d *Disk) makeLink(call *wire.Call, req *world.MakeLink) {
	at, err := d.resolve(call.Name, req.Path, false)
	full := d.lacksSpace(req.Path, 0)
	if err.Has(world.KindNotFound) && !full {
		if _, err = d.mkdirAll(call.Name, path.Dir(path.Clean(req.Path)), 0o755); err == nil {
			at, err = d.resolve(call.Name, req.Path, false)
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
		d.setEntry(at, newLink(req.Target, d.now()))
		d.recordWritten(at.path)
	}
	d.complete(call, err)
}

// writeFile replaces a file. Unless the file is volatile it syncs the file and all earlier changes.
func (d *Disk) writeFile(call *wire.Call, req *world.WriteFile) {
	at, err := d.resolve(call.Name, req.Path, false)
	switch {
	case err != nil:
	case d.lacksSpace(at.path, int64(len(req.Data))):
		err = noSpace(call.Name, req.Path)
	default:
		err = checkReplaceable(call.Name, at)
	}
	if err == nil {
		if n := at.node; n != nil && n.mode == req.Mode && n.size == int64(len(req.Data)) &&
			bytes.Equal(n.data, req.Data) {
			d.recordFact(truth.WroteNothing, at.path, "")
		}
		d.setEntry(at, newFile(req.Data, req.Mode, d.now()))
		if !req.Volatile {
			d.sync()
		}
		d.recordWritten(at.path)
	}
	d.complete(call, err)
}

// checkReplaceable returns an error if a file cannot replace what is at a location.
func checkReplaceable(op string, at location) *world.Error {
	switch {
	case at.isMountpoint():
		return world.Errorf(world.KindInternal, op, "%s: device or resource busy", at.path)
	case at.node != nil && at.node.isDir():
		return world.Errorf(world.KindExists, op, "%s is a directory", at.path)
	}
	return nil
}

// rename renames in one step, without a sync.
func (d *Disk) rename(call *wire.Call, req *world.Rename) {
	from, err := d.resolve(call.Name, req.From, false)
	to, targetErr := d.resolve(call.Name, req.To, false)
	if err == nil {
		err = targetErr
	}
	switch {
	case err != nil:
	case from.node == nil:
		err = notFound(call.Name, req.From)
	case from.node == to.node:
		d.complete(call, nil)
		return
	case from.nameMount != to.nameMount:
		err = world.Errorf(world.KindInvalid, call.Name, "%s: invalid cross-device link", req.To)
	case from.isMountpoint():
		err = world.Errorf(world.KindInternal, call.Name, "%s: device or resource busy", req.From)
	case from.node.isDir() && within(to.path, from.path):
		err = world.Errorf(world.KindInvalid, call.Name, "%s is in %s", req.To, req.From)
	case req.Exclusive && to.node != nil:
		err = world.Errorf(world.KindExists, call.Name, "%s: file exists", req.To)
	default:
		err = checkReplaceable(call.Name, to)
	}
	if err == nil {
		d.moveEntry(from, to)
		d.opts.Truth.Add(truth.Fact{Time: d.now(), Kind: truth.PathRenamed, Path: from.path,
			NewPath: to.path})
		d.notify(from.path)
		d.notify(to.path)
	}
	d.complete(call, err)
}

// tempSuffix is the suffix of an unfinished file of Compress.
const tempSuffix = ".tmp"

// compress writes to a temporary file, which is not recorded in the truth log. It then renames that
// file, and removes the original a little later.
func (d *Disk) compress(call *wire.Call, req *world.Compress) {
	from, err := d.resolve(call.Name, req.Path, false)
	to, targetErr := d.resolve(call.Name, req.Path+".gz", false)
	if err == nil {
		err = targetErr
	}
	switch {
	case err != nil:
	case from.node == nil && to.node == nil:
		err = notFound(call.Name, req.Path)
	case from.node == nil:
		d.complete(call, nil)
		return
	case from.node.kind != world.PathFile:
		err = world.Errorf(world.KindInvalid, call.Name, "%s is no regular file", req.Path)
	case d.lacksSpace(to.path, 0):
		err = noSpace(call.Name, req.Path)
	default:
		err = checkReplaceable(call.Name, to)
	}
	if err != nil {
		call.Fail(err)
		return
	}
	temp := to
	temp.path, temp.name = to.path+tempSuffix, to.name+tempSuffix
	d.setEntry(temp, newFile(nil, from.node.mode, d.now()))
	d.continueLater(call, func() {
		if d.nodeAt(from.path) != from.node || d.nodeAt(temp.path) == nil {
			call.Fail(changedMeanwhile(call.Name, from.path))
			return
		}
		d.setEntry(temp, from.node.compressed(d))
		d.moveEntry(temp, to)
		d.sync()
		d.recordWritten(to.path)
		d.continueLater(call, func() { d.removeOriginal(call, from) })
	})
}

func (d *Disk) removeOriginal(call *wire.Call, from location) {
	if d.nodeAt(from.path) == from.node {
		d.setEntry(from, nil)
		d.recordFact(truth.PathRemoved, from.path, "")
		d.notify(from.path)
	}
	call.Reply(&world.Done{})
}

// compressed returns the compressed file of a file. If the file's content is not completely stored
// the result has only a size.
func (n *node) compressed(d *Disk) *node {
	n.catchUp()
	compressed := newFile(nil, n.mode, d.now())
	compressed.gid = n.gid
	if compressed.size = n.size / 10; n.size == int64(len(n.data)) {
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
		compressed.data, compressed.size = buf.Bytes(), int64(buf.Len())
	}
	return compressed
}

// removeTree removes some of a tree first and the rest a little later. If the agent dies in between
// the rest is left.
func (d *Disk) removeTree(call *wire.Call, req *world.RemoveTree) {
	at, err := d.resolve(call.Name, req.Path, false)
	switch {
	case err.Has(world.KindNotFound), at.isNameTooLong(), err == nil && at.node == nil:
		call.Reply(&world.Done{})
		return
	case err == nil && at.dir == nil:
		err = world.Errorf(world.KindRefused, call.Name, "/ is not removed")
	case err == nil && d.countMountsWithin(at.path) > 0:
		err = world.Errorf(world.KindRefused, call.Name, "something is mounted in %s", req.Path)
	}
	if err != nil {
		call.Fail(err)
		return
	}
	if at.node.namesBelow() > 0 {
		d.removeNames(call, req)
		return
	}
	if n := len(at.node.entries); n > 0 {
		for range call.Draw() % uint64(n+1) {
			first := at.node.entries[0]
			d.setEntry(location{dir: at.node, name: first.name}, nil)
		}
	}
	d.continueLater(call, func() {
		current, err := d.resolve(call.Name, at.path, false)
		switch {
		case err != nil || current.node == nil:
		case d.countMountsWithin(at.path) > 0:
			call.Fail(changedMeanwhile(call.Name, at.path))
			return
		default:
			d.setEntry(current, nil)
			d.recordFact(truth.PathRemoved, at.path, "")
			d.notify(at.path)
		}
		call.Reply(&world.Done{})
	})
}

// complete completes a call without a result.
func (d *Disk) complete(call *wire.Call, err *world.Error) {
	if err != nil {
		call.Fail(err)
		return
	}
	call.Reply(&world.Done{})
}

func noSpace(op, p string) *world.Error {
	return world.Errorf(world.KindExhausted, op, "%s: no space left on device", p)
}

// changedMeanwhile is the error of a call whose earlier step has been undone by another user of the
// disk. The call may have taken effect in part.
func changedMeanwhile(op, p string) *world.Error {
	return world.Errorf(world.KindInternal, op, "%s has changed meanwhile", p)
}
