package disk

import (
	"bytes"
	"fmt"
	"path"
	"slices"
	"strings"

	"seedlet.dev/sim/wire"
	"seedlet.dev/world"
)

// dataLink is the link that is replaced to replace all files of a WriteDir in one instant.
const dataLink = "..data"

// writeDir makes the hidden directory first and has the files lead into it a little later.
func (d *Disk) writeDir(call *wire.Call, req *world.WriteDir) {
	payload, err := d.payload(call.Name, req)
	if err == nil && d.spaceless(req.Path) && !d.published(req.Path, payload) {
		err = noSpace(call.Name, req.Path)
	}
	made := false
	if err == nil {
		made, err = d.mkdirAll(call.Name, req.Path, 0o755)
	}
	if err == nil {
		err = d.namesFree(call.Name, req.Path, payload)
	}
	if err != nil {
		call.Fail(err)
		return
	}
	if made {
		d.made(req.Path)
	}
	if d.published(req.Path, payload) {
		d.end(call, nil)
		return
	}
	hidden := d.now().UTC().Format("..2006_01_02_15_04_05.") + fmt.Sprint(call.Draw())
	at, _ := d.look(call.Name, path.Join(req.Path, hidden), false)
	d.change(at, payload)
	d.later(call, func() {
		dir := d.at(req.Path)
		if dir == nil || dir.child(hidden) != payload || d.namesFree("", req.Path, payload) != nil {
			call.Fail(halfway(call.Name, req.Path))
			return
		}
		d.publish(dir, hidden, payload)
		d.sync()
		d.written(path.Clean(req.Path))
		d.end(call, nil)
	})
}

// payload is the hidden directory that a WriteDir wants, or why there cannot be one.
func (d *Disk) payload(op string, req *world.WriteDir) (*node, *world.Error) {
	gid, readable := int64(0), uint32(0)
	if req.GID != nil {
		gid, readable = *req.GID, 0o040
	}
	root := newDir(0o755, d.now())
	root.gid = gid
	for _, f := range req.Files {
		names := strings.Split(f.Path, "/")
		bad := strings.HasPrefix(f.Path, "..")
		for _, name := range names {
			bad = bad || name == "" || name == "." || name == ".."
		}
		dir := root
		for _, name := range names[:len(names)-1] {
			if dir.child(name) == nil {
				below := newDir(0o755, d.now())
				below.gid = gid
				dir.put(name, below)
			}
			dir = dir.child(name)
			bad = bad || !dir.isDir()
		}
		last := names[len(names)-1]
		if bad || dir.child(last) != nil {
			return nil, world.Errorf(world.KindInvalid, op, "%q cannot be a file's path", f.Path)
		}
		file := newFile(f.Data, f.Mode|readable, d.now())
		file.gid = gid
		dir.put(last, file)
	}
	return root, nil
}

// published reports whether a directory shows a payload already, and nothing that was shown by
// an earlier one.
func (d *Disk) published(p string, payload *node) bool {
	old := d.at(path.Join(p, dataLink))
	if old == nil || !equal(old, payload) {
		return false
	}
	for _, e := range d.at(p).entries {
		if _, ok := payload.search(e.name); e.node.leadsToData() && !ok {
			return false
		}
	}
	return !slices.ContainsFunc(payload.entries, func(e entry) bool {
		shown := d.at(p).child(e.name)
		return shown == nil || shown.target != path.Join(dataLink, e.name)
	})
}

// leadsToData reports whether a node is the link of a file of a WriteDir.
func (n *node) leadsToData() bool {
	return n.kind == kindLink && strings.HasPrefix(n.target, dataLink+"/")
}

// equal compares two trees but for their times.
func equal(a, b *node) bool {
	return a.kind == b.kind && a.mode == b.mode && a.gid == b.gid && bytes.Equal(a.data, b.data) &&
		slices.EqualFunc(a.entries, b.entries, func(a, b entry) bool {
			return a.name == b.name && equal(a.node, b.node)
		})
}

// namesFree says why the files of a payload cannot be shown: links are replaced, nothing else is.
func (d *Disk) namesFree(op, p string, payload *node) *world.Error {
	dir, err := d.findDir(op, p)
	if err != nil {
		return err
	}
	for _, e := range payload.entries {
		if n := dir.child(e.name); n != nil && n.kind != kindLink {
			return world.Errorf(world.KindExists, op, "%s in %s is not the agent's", e.name, p)
		}
	}
	return nil
}

// publish shows a payload in place of an earlier one, and removes what is left of that.
func (d *Disk) publish(dir *node, hidden string, payload *node) {
	show := func(name string, n *node) { d.change(place{dir: dir, name: name}, n) }
	show(dataLink, newLink(hidden, d.now()))
	for _, e := range payload.entries {
		target := path.Join(dataLink, e.name)
		if old := dir.child(e.name); old == nil || old.target != target {
			show(e.name, newLink(target, d.now()))
		}
	}
	for _, e := range slices.Clone(dir.entries) {
		_, wanted := payload.search(e.name)
		old := strings.HasPrefix(e.name, "..") && e.name != dataLink && e.name != hidden
		if old || e.node.leadsToData() && !wanted {
			show(e.name, nil)
		}
	}
}
