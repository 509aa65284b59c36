package disk

import (
	"path"
	"time"

	"seedlet.dev/sim/wire"
	"seedlet.dev/world"
)

// The calls that look.

// readFiles answers with the content. The files of a directory are not read at one instant: those
// behind a drawn one are read a little later, when they may have changed or gone.
func (d *Disk) readFiles(call *wire.Call, req *world.ReadFiles) {
	n, err := d.find(call.Name, req.Path)
	if err == nil && !n.isDir() && n.kind != world.PathFile {
		err = world.Errorf(world.KindInvalid, call.Name,
			"%s is neither a regular file nor a directory", req.Path)
	}
	if err != nil {
		call.Fail(err)
		return
	}
	if !n.isDir() {
		file := read(path.Base(req.Path), n, req.BytesMax)
		call.Reply(&world.FilesRead{Files: []world.File{file}})
		return
	}
	names := d.regularFiles(req.Path, n)
	if len(names) > req.FilesMax {
		call.Fail(world.Errorf(world.KindExhausted, call.Name, "%s has more than %d files",
			req.Path, req.FilesMax))
		return
	}
	now := len(names)
	if call.Draw()%4 == 0 && len(names) > 1 {
		now = int(call.Draw() % uint64(len(names)))
	}
	answer := &world.FilesRead{Directory: true, Files: []world.File{}}
	readSome := func(names []string) {
		for _, name := range names {
			f := d.at(req.Path + "/" + name)
			if f != nil && f.kind == world.PathFile {
				answer.Files = append(answer.Files, read(name, f, req.BytesMax))
			}
		}
	}
	readSome(names[:now])
	if now == len(names) {
		call.Reply(answer)
		return
	}
	d.opts.Agenda.After(call.Between(100*time.Microsecond, 20*time.Millisecond), func() {
		readSome(names[now:])
		call.Reply(answer)
	})
}

// regularFiles are the names in a directory that lead to regular files, be it by a link.
func (d *Disk) regularFiles(p string, dir *node) []string {
	var names []string
	for _, e := range dir.entries {
		kind := e.node.kind
		if kind == kindLink {
			if to := d.at(p + "/" + e.name); to != nil {
				kind = to.kind
			}
		}
		if kind == world.PathFile {
			names = append(names, e.name)
		}
	}
	return names
}

func read(name string, n *node, bytesMax int64) world.File {
	if n.catchUp(); n.size > bytesMax {
		return world.File{Name: name, Err: world.Errorf(world.KindExhausted, "ReadFiles",
			"%s is larger than %d bytes", name, bytesMax)}
	}
	return world.File{Name: name, Data: n.whole()}
}

func (d *Disk) readTail(call *wire.Call, req *world.ReadTail) {
	at, err := d.look(call.Name, req.Path, false)
	switch {
	case err != nil:
	case at.node == nil:
		err = notFound(call.Name, req.Path)
	case at.node.kind != world.PathFile:
		err = world.Errorf(world.KindInvalid, call.Name, "%s is no regular file", req.Path)
	}
	if err != nil {
		call.Fail(err)
		return
	}
	data := at.node.tail(req.BytesMax)
	call.Reply(&world.TailRead{Data: data, Truncated: int64(len(data)) < at.node.size})
}

func (d *Disk) statPath(call *wire.Call, req *world.StatPath) {
	n, err := d.find(call.Name, req.Path)
	if err != nil {
		call.Fail(err)
		return
	}
	n.catchUp()
	call.Reply(&world.PathInfo{Kind: n.kind, Size: n.size})
}

func (d *Disk) listDir(call *wire.Call, req *world.ListDir) {
	n, err := d.findDir(call.Name, req.Path)
	if err != nil {
		call.Fail(err)
		return
	}
	answer := &world.DirListed{Entries: make([]world.DirEntry, len(n.entries))}
	for i, e := range n.entries {
		e.node.catchUp()
		answer.Entries[i] = world.DirEntry{
			Name: e.name, Directory: e.node.isDir(), Size: e.node.size, ModTime: e.node.modTime,
		}
	}
	call.Reply(answer)
}

func (d *Disk) readLinks(call *wire.Call, req *world.ReadLinks) {
	n, err := d.findDir(call.Name, req.Path)
	if err != nil {
		call.Fail(err)
		return
	}
	answer := &world.LinksRead{Links: []world.Link{}}
	for _, e := range n.entries {
		if e.node.kind == kindLink {
			answer.Links = append(answer.Links, world.Link{Name: e.name, Target: e.node.target,
				Dangling: d.at(req.Path+"/"+e.name) == nil})
		}
	}
	call.Reply(answer)
}

// blockSize is the smallest space that a file takes.
const blockSize = 4096

// measureTree leaves out the mount points below the root: what is hidden there cannot be seen.
func (d *Disk) measureTree(call *wire.Call, req *world.MeasureTree) {
	at, err := d.look(call.Name, req.Path, false)
	if err == nil && at.node == nil {
		err = notFound(call.Name, req.Path)
	}
	if err != nil {
		call.Fail(err)
		return
	}
	answer := &world.TreeMeasured{}
	at.node.measure(answer)
	call.Reply(answer)
}

func (n *node) measure(sum *world.TreeMeasured) {
	n.catchUp()
	sum.Inodes++
	sum.Bytes += (n.size + blockSize - 1) / blockSize * blockSize
	if n.isDir() {
		sum.Bytes += blockSize
	}
	for _, e := range n.entries {
		if e.node.hidden == 0 {
			e.node.measure(sum)
		}
	}
}
