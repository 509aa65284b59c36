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
	hidden, same := d.published(req.Path, payload)
	if err == nil && !same && d.spaceless(req.Path, payload.used()) {
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
	if !same {
		hidden = d.now().UTC().Format("..2006_01_02_15_04_05.") + fmt.Sprint(call.Draw())
		at, _ := d.look(call.Name, path.Join(req.Path, hidden), false)
		d.change(at, payload)
	}
	d.later(call, func() {
		dir := d.at(req.Path)
		if dir == nil || dir.child(hidden) == nil || d.namesFree("", req.Path, payload) != nil {
			call.Fail(halfway(call.Name, req.Path))
			return
		}
		if req.GID != nil {
			d.shareNode(dir, *req.GID, true)
		}
		if d.publish(dir, hidden, payload) {
			d.sync()
			d.written(path.Clean(req.Path))
		}
		d.end(call, nil)
	})
}

// payload is the hidden directory that a WriteDir wants, or why there cannot be one.
func (d *Disk) payload(op string, req *world.WriteDir) (*node, *world.Error) {
	root := newDir(0o755, d.now())
	for _, f := range req.Files {
		names := strings.Split(f.Path, "/")
		bad := strings.HasPrefix(f.Path, "..")
		for _, name := range names {
			bad = bad || name == "" || name == "." || name == ".."
		}
		dir := root
		for _, name := range names[:len(names)-1] {
			if dir.child(name) == nil {
				dir.put(name, newDir(0o755, d.now()))
			}
			dir = dir.child(name)
			bad = bad || !dir.isDir()
		}
		last := names[len(names)-1]
		if bad || dir.child(last) != nil {
			return nil, world.Errorf(world.KindInvalid, op, "%q cannot be a file's path", f.Path)
		}
		dir.put(last, newFile(f.Data, f.Mode, d.now()))
	}
	if req.GID != nil {
		d.share(root, *req.GID, true)
	}
	return root, nil
}

// published returns the name of the hidden directory that is shown, and whether it is a payload.
func (d *Disk) published(p string, payload *node) (hidden string, same bool) {
	at, _ := d.look("", path.Join(p, dataLink), false)
	if at.node == nil || at.node.kind != kindLink {
		return "", false
	}
	old := at.dir.child(at.node.target)
	return at.node.target, old != nil && payload != nil && equal(old, payload)
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

// namesFree says why the files of a payload cannot be shown: something else has their names.
func (d *Disk) namesFree(op, p string, payload *node) *world.Error {
	dir, err := d.findDir(op, p)
	if err != nil {
		return err
	}
	for _, e := range append(payload.entries[:len(payload.entries):len(payload.entries)],
		entry{name: dataLink}) {
		n := dir.child(e.name)
		if n != nil && (n.kind != kindLink || e.name != dataLink && !n.leadsToData()) {
			return world.Errorf(world.KindExists, op, "%s in %s is not the agent's", e.name, p)
		}
	}
	return nil
}

// publish shows a hidden directory, removes what is left of earlier ones, and reports whether
// anything was to be done.
func (d *Disk) publish(dir *node, hidden string, payload *node) (changed bool) {
	show := func(name, target string) {
		if old := dir.child(name); old == nil || old.target != target {
			d.change(place{dir: dir, name: name}, newLink(target, d.now()))
			changed = true
		}
	}
	show(dataLink, hidden)
	for _, e := range payload.entries {
		show(e.name, path.Join(dataLink, e.name))
	}
	for _, e := range slices.Clone(dir.entries) {
		_, wanted := payload.search(e.name)
		earlier := e.name == dataLink+"_tmp" || strings.HasPrefix(e.name, "..2") &&
			e.node.isDir() && e.name != hidden
		if earlier || e.node.leadsToData() && !wanted {
			d.change(place{dir: dir, name: e.name}, nil)
			changed = true
		}
	}
	return changed
}
