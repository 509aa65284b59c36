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

// dataLink is the name of the link that WriteDir replaces to replace all files at once.
const dataLink = "..data"

// pathMax is the kernel's PATH_MAX: no process can open a longer path.
const pathMax = 4096

// writeDir creates the hidden directory first and publishes it a little later. It syncs nothing.
func (d *Disk) writeDir(call *wire.Call, req *world.WriteDir) {
	payload, err := d.payload(call.Name, req)
	hidden, isCurrent := d.currentPayload(req.Path, payload)
	if err == nil && !isCurrent && d.lacksSpace(req.Path, payload.usedBytes()) {
		err = noSpace(call.Name, req.Path)
	}
	made := false
	if err == nil {
		made, err = d.mkdirAll(call.Name, req.Path, world.WriteDirMode)
	}
	if err == nil {
		err = d.checkDataLink(call.Name, req.Path)
	}
	if err != nil {
		call.Fail(err)
		return
	}
	if made {
		d.recordMade(req.Path)
	}
	if !isCurrent {
		hidden = d.now().UTC().Format("..2006_01_02_15_04_05.") + fmt.Sprint(call.Draw())
		at, _ := d.resolve(call.Name, path.Join(req.Path, hidden), false)
		d.setEntry(at, payload)
	}
	d.continueLater(call, func() {
		dir := d.nodeAt(req.Path)
		if dir == nil || dir.child(hidden) == nil || d.checkDataLink("", req.Path) != nil {
			call.Fail(changedMeanwhile(call.Name, req.Path))
			return
		}
		if req.GID != nil {
			d.shareNode(dir, *req.GID, true)
		}
		if d.publish(dir, hidden, payload) {
			d.recordWritten(path.Clean(req.Path))
		}
		d.complete(call, nil)
	})
}

// payload returns the hidden directory for a WriteDir, or an error if its paths are invalid.
func (d *Disk) payload(op string, req *world.WriteDir) (*node, *world.Error) {
	root := newDir(0o755, d.now())
	for _, f := range req.Files {
		names := strings.Split(f.Path, "/")
		bad := strings.HasPrefix(f.Path, "..") || len(f.Path) >= pathMax
		for _, name := range names {
			bad = bad || name == "" || name == "." || name == ".." || len(name) > world.NameBytesMax
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
		file := newFile(f.Bytes(), f.Mode, d.now())
		if f.UID != nil {
			file.uid = *f.UID
		}
		dir.put(last, file)
	}
	if req.GID != nil {
		d.share(root, *req.GID, true)
	}
	return root, nil
}

// currentPayload returns the name of the published hidden directory, and whether its content equals
// a payload.
func (d *Disk) currentPayload(p string, payload *node) (hidden string, isCurrent bool) {
	at, _ := d.resolve("", path.Join(p, dataLink), false)
	if at.node == nil || at.node.kind != kindLink {
		return "", false
	}
	current := at.dir.child(at.node.target)
	return at.node.target, current != nil && payload != nil && equalTrees(current, payload)
}

// isFileLink reports whether a node is the link of a file that WriteDir has published.
func (n *node) isFileLink() bool {
	return n.kind == kindLink && strings.HasPrefix(n.target, dataLink+"/")
}

// equalTrees compares two trees without their modification times.
func equalTrees(a, b *node) bool {
	return a.kind == b.kind && a.mode == b.mode && a.uid == b.uid && a.gid == b.gid &&
		bytes.Equal(a.data, b.data) && slices.EqualFunc(a.entries, b.entries, func(a, b entry) bool {
		return a.name == b.name && equalTrees(a.node, b.node)
	})
}

// checkDataLink returns an error if something else stands in the place of the data link.
func (d *Disk) checkDataLink(op, p string) *world.Error {
	dir, err := d.lookupDir(op, p)
	if err != nil {
		return err
	}
	if n := dir.child(dataLink); n != nil && n.kind != kindLink {
		return world.Errorf(world.KindExists, op, "%s in %s is not the agent's", dataLink, p)
	}
	return nil
}

// publish makes a hidden directory visible and removes earlier ones. It reports whether it changed
// anything.
func (d *Disk) publish(dir *node, hidden string, payload *node) (changed bool) {
	setLink := func(name, target string) {
		if old := dir.child(name); old == nil || old.target != target {
			d.setEntry(location{dir: dir, name: name}, newLink(target, d.now()))
			changed = true
		}
	}
	setLink(dataLink, hidden)
	for _, e := range payload.entries {
		if old := dir.child(e.name); old == nil || old.isFileLink() {
			setLink(e.name, path.Join(dataLink, e.name))
		}
	}
	for _, e := range slices.Clone(dir.entries) {
		_, desired := payload.search(e.name)
		stale := e.name == dataLink+"_tmp" || strings.HasPrefix(e.name, "..2") &&
			e.node.isDir() && e.name != hidden
		if stale || e.node.isFileLink() && !desired {
			d.setEntry(location{dir: dir, name: e.name}, nil)
			changed = true
		}
	}
	return changed
}
