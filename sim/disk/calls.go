package disk

import (
	"path"
	"time"

	"seedlet.dev/sim/truth"
	"seedlet.dev/sim/wire"
	"seedlet.dev/world"
)

// readFiles answers with the content. The files of a directory are not read at one instant: those
// behind a drawn one are read a little later, when they may have changed or gone.
func (d *Disk) readFiles(call *wire.Call, req *world.ReadFiles) {
	n, err := d.find(call.Name, req.Path)
	if err != nil {
		call.Fail(err)
		return
	}
	if !n.dir {
		call.Reply(&world.FilesRead{Files: []world.File{read(n, req.BytesMax)}})
		return
	}
	var files []*node
	for _, c := range n.children {
		if !c.dir {
			files = append(files, c)
		}
	}
	if len(files) > req.FilesMax {
		call.Fail(world.Errorf(world.KindExhausted, call.Name, "%s has more than %d files",
			req.Path, req.FilesMax))
		return
	}
	now := len(files)
	if call.Draw()%4 == 0 && len(files) > 1 {
		now = int(call.Draw() % uint64(len(files)))
	}
	answer := &world.FilesRead{Directory: true, Files: []world.File{}}
	for _, f := range files[:now] {
		answer.Files = append(answer.Files, read(f, req.BytesMax))
	}
	if now == len(files) {
		call.Reply(answer)
		return
	}
	d.opts.Agenda.After(call.Between(100*time.Microsecond, 20*time.Millisecond), func() {
		for _, f := range files[now:] {
			if f = d.at(path.Join(req.Path, f.name)); f != nil && !f.dir {
				answer.Files = append(answer.Files, read(f, req.BytesMax))
			}
		}
		call.Reply(answer)
	})
}

func read(n *node, bytesMax int64) world.File {
	if int64(len(n.data)) > bytesMax {
		return world.File{Name: n.name, Err: world.Errorf(world.KindExhausted, "ReadFiles",
			"%s is larger than %d bytes", n.name, bytesMax)}
	}
	return world.File{Name: n.name, Data: n.data}
}

func (d *Disk) listDir(call *wire.Call, req *world.ListDir) {
	n, err := d.find(call.Name, req.Path)
	if err == nil && !n.dir {
		err = world.Errorf(world.KindInvalid, call.Name, "%s: not a directory", req.Path)
	}
	if err != nil {
		call.Fail(err)
		return
	}
	answer := &world.DirListed{Entries: make([]world.DirEntry, len(n.children))}
	for i, c := range n.children {
		answer.Entries[i] = world.DirEntry{Name: c.name, Directory: c.dir, ModTime: c.modTime}
	}
	call.Reply(answer)
}

func (d *Disk) makeDir(call *wire.Call, req *world.MakeDir) {
	if d.full && d.at(req.Path) == nil {
		call.Fail(noSpace(call, req.Path))
		return
	}
	made, err := d.mkdirAll(call.Name, req.Path, req.Mode)
	if err != nil {
		call.Fail(err)
		return
	}
	if made {
		d.tell(truth.PathMade, path.Clean(req.Path), "")
		d.notify(path.Clean(req.Path))
	}
	call.Reply(&world.Done{})
}

// writeFile replaces a file and forces it to the disk, and with it all that was changed before.
func (d *Disk) writeFile(call *wire.Call, req *world.WriteFile) {
	dir, err := d.find(call.Name, path.Dir(req.Path))
	switch old := d.at(req.Path); {
	case err != nil:
	case !dir.dir:
		err = world.Errorf(world.KindInvalid, call.Name, "%s: not a directory", req.Path)
	case d.full:
		err = noSpace(call, req.Path)
	case old != nil && old.dir:
		err = world.Errorf(world.KindExists, call.Name, "%s is a directory", req.Path)
	}
	if err != nil {
		call.Fail(err)
		return
	}
	p := path.Clean(req.Path)
	d.change(p, &node{name: path.Base(p), mode: req.Mode, modTime: d.now(), data: req.Data})
	d.sync()
	d.tell(truth.PathWritten, p, "")
	d.notify(p)
	call.Reply(&world.Done{})
}

// removeTree removes some of a tree at first, the rest a little later: an agent that dies in
// between leaves the rest.
func (d *Disk) removeTree(call *wire.Call, req *world.RemoveTree) {
	p := path.Clean(req.Path)
	n, err := d.find(call.Name, p)
	switch {
	case err.Has(world.KindNotFound):
		call.Reply(&world.Done{})
		return
	case err == nil && p == "/":
		err = world.Errorf(world.KindRefused, call.Name, "/ is not removed")
	}
	if err != nil {
		call.Fail(err)
		return
	}
	if len(n.children) > 0 {
		for range call.Draw() % uint64(len(n.children)+1) {
			d.change(path.Join(p, n.children[0].name), nil)
		}
	}
	d.opts.Agenda.After(call.Between(100*time.Microsecond, 10*time.Millisecond), func() {
		if call.GivesUp() {
			return
		}
		if d.at(p) != nil {
			d.change(p, nil)
			d.tell(truth.PathRemoved, p, "")
			d.notify(p)
		}
		call.Reply(&world.Done{})
	})
}

func noSpace(call *wire.Call, p string) *world.Error {
	return world.Errorf(world.KindExhausted, call.Name, "%s: no space left on device", p)
}
