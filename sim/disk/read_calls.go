package disk

import (
	"path"
	"strings"
	"time"

	"seedlet.dev/sim/wire"
	"seedlet.dev/world"
)

// The calls that read.

// readFiles reads a file or the files of a directory. Sometimes it reads the last files of a
// directory a little later, when they may have changed or been removed.
func (d *Disk) readFiles(call *wire.Call, req *world.ReadFiles) {
	n, err := d.lookup(call.Name, req.Path)
	if err == nil && !n.isDir() && n.kind != world.PathFile {
		err = world.Errorf(world.KindInvalid, call.Name,
			"%s is neither a regular file nor a directory", req.Path)
	}
	if err != nil {
		call.Fail(err)
		return
	}
	if !n.isDir() {
		file := readFile(path.Base(req.Path), n, req.BytesMax)
		replyFiles(call, req, &world.FilesRead{Files: []world.File{file}})
		return
	}
	names := d.regularFiles(req.Path, n)
	if len(names) > req.FilesMax {
		call.Fail(world.Errorf(world.KindExhausted, call.Name, "%s has more than %d files",
			req.Path, req.FilesMax))
		return
	}
	if req.SumMax > 0 && d.sumOfSizes(req, names) > req.SumMax {
		call.Fail(world.Errorf(world.KindExhausted, call.Name, "the files of %s have more than %d bytes",
			req.Path, req.SumMax))
		return
	}
	readNow := len(names)
	if call.Draw()%4 == 0 && len(names) > 1 {
		readNow = int(call.Draw() % uint64(len(names)))
	}
	response := &world.FilesRead{Directory: true, Files: []world.File{}}
	readSome := func(names []string) {
		for _, name := range names {
			f := d.nodeAt(req.Path + "/" + name)
			if f != nil && f.kind == world.PathFile {
				response.Files = append(response.Files, readFile(name, f, req.BytesMax))
			}
		}
	}
	readSome(names[:readNow])
	if readNow == len(names) {
		replyFiles(call, req, response)
		return
	}
	d.opts.Agenda.After(call.DurationBetween(100*time.Microsecond, 20*time.Millisecond), func() {
		readSome(names[readNow:])
		replyFiles(call, req, response)
	})
}

// replyFiles completes a read, with documents in place of bytes if the request asks for those.
func replyFiles(call *wire.Call, req *world.ReadFiles, read *world.FilesRead) {
	if req.Documents != nil {
		req.Documents.Convert(read.Files, read.Directory)
	}
	call.Reply(read)
}

// sumOfSizes returns the size of the files of a directory that are not too large to be read.
func (d *Disk) sumOfSizes(req *world.ReadFiles, names []string) (sum int64) {
	for _, name := range names {
		n := d.nodeAt(req.Path + "/" + name)
		if n != nil && n.kind == world.PathFile {
			if n.catchUp(); n.size <= req.BytesMax {
				sum += n.size
			}
		}
	}
	return sum
}

// regularFiles returns the names in a directory that lead to regular files, directly or through a
// link.
func (d *Disk) regularFiles(p string, dir *node) []string {
	var names []string
	for _, e := range dir.entries {
		kind := e.node.kind
		if kind == kindLink {
			if to := d.nodeAt(p + "/" + e.name); to != nil {
				kind = to.kind
			}
		}
		if kind == world.PathFile {
			names = append(names, e.name)
		}
	}
	return names
}

func readFile(name string, n *node, bytesMax int64) world.File {
	if n.catchUp(); n.size > bytesMax {
		return world.File{Name: name, Err: world.Errorf(world.KindExhausted, "ReadFiles",
			"%s is larger than %d bytes", name, bytesMax)}
	}
	return world.File{Name: name, Data: n.readAll()}
}

func (d *Disk) readTail(call *wire.Call, req *world.ReadTail) {
	at, err := d.resolve(call.Name, req.Path, false)
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

func (d *Disk) readInVolume(call *wire.Call, req *world.ReadInVolume) {
	n, err := d.lookupInVolume(call.Name, req)
	switch {
	case err != nil:
	case n.kind != world.PathFile:
		err = world.Errorf(world.KindInvalid, call.Name, "%s is no regular file", req.Path)
	default:
		file := readFile(path.Base(req.Path), n, req.BytesMax)
		if err = file.Err; err == nil {
			call.Reply(&world.FilesRead{Files: []world.File{file}})
			return
		}
	}
	call.Fail(err)
}

// lookupInVolume returns the node at a path, with the volume as the root of all links.
func (d *Disk) lookupInVolume(op string, req *world.ReadInVolume) (*node, *world.Error) {
	root, err := d.resolve(op, req.Root, true)
	if err != nil {
		return nil, err
	}
	at, names := root, strings.Split(req.Path, "/")
	for steps := 0; len(names) > 0 && at.node != nil; steps++ {
		name := names[0]
		names = names[1:]
		if steps > stepsMax {
			return nil, world.Errorf(world.KindInvalid, op, "%s: too many levels of links", req.Path)
		}
		switch {
		case name == ".." && at.path != root.path:
			name = path.Dir(at.path)
		case name == "", name == ".", name == "..":
			continue
		default:
			name = path.Join(at.path, name)
		}
		next, err := d.resolve(op, name, false)
		if err != nil {
			return nil, err
		}
		if next.node == nil || next.node.kind != kindLink {
			at = next
			continue
		}
		if path.IsAbs(next.node.target) {
			at = root
		}
		names = append(strings.Split(next.node.target, "/"), names...)
	}
	if at.node == nil {
		return nil, notFound(op, req.Path)
	}
	return at.node, nil
}

func (d *Disk) statPath(call *wire.Call, req *world.StatPath) {
	n, err := d.lookup(call.Name, req.Path)
	if err != nil {
		call.Fail(err)
		return
	}
	n.catchUp()
	call.Reply(&world.PathInfo{Kind: n.kind, Size: n.size})
}

func (d *Disk) listDir(call *wire.Call, req *world.ListDir) {
	n, err := d.lookupDir(call.Name, req.Path)
	if err != nil {
		call.Fail(err)
		return
	}
	response := &world.DirListed{Entries: make([]world.DirEntry, len(n.entries))}
	for i, e := range n.entries {
		e.node.catchUp()
		response.Entries[i] = world.DirEntry{
			Name: e.name, Directory: e.node.isDir(), Size: e.node.size, ModTime: e.node.modTime,
		}
	}
	call.Reply(response)
}

func (d *Disk) measureFiles(call *wire.Call, req *world.MeasureFiles) {
	measured := &world.FilesMeasured{Sizes: make([]int64, len(req.Paths))}
	for i, p := range req.Paths {
		measured.Sizes[i] = world.NotMeasured
		if n := d.belowWithoutLinks(call.Name, req.Dir, p); n != nil && n.kind == world.PathFile {
			n.catchUp()
			measured.Sizes[i] = n.size
		}
	}
	call.Reply(measured)
}

// belowWithoutLinks returns what is at a path below a directory; nil if it does not exist, or if a
// link leads to it.
func (d *Disk) belowWithoutLinks(call, dir, p string) (n *node) {
	for _, name := range strings.Split(p, "/") {
		dir = path.Join(dir, name)
		at, err := d.resolve(call, dir, false)
		if err != nil || at.node == nil || at.node.kind == kindLink {
			return nil
		}
		n = at.node
	}
	return n
}

func (d *Disk) readLinks(call *wire.Call, req *world.ReadLinks) {
	n, err := d.lookupDir(call.Name, req.Path)
	if err != nil {
		call.Fail(err)
		return
	}
	response := &world.LinksRead{Links: []world.Link{}}
	for _, e := range n.entries {
		if e.node.kind == kindLink {
			response.Links = append(response.Links, world.Link{Name: e.name, Target: e.node.target,
				Dangling: d.nodeAt(req.Path+"/"+e.name) == nil})
		}
	}
	call.Reply(response)
}

// blockSize is the allocation unit of the file system.
const blockSize = 4096

// measureTree excludes the mounts below the root and the nodes that they cover.
func (d *Disk) measureTree(call *wire.Call, req *world.MeasureTree) {
	at, err := d.resolve(call.Name, req.Path, false)
	if err == nil && at.node == nil {
		err = notFound(call.Name, req.Path)
	}
	if err != nil {
		call.Fail(err)
		return
	}
	d.measureLater(call, at.node)
}

// measureTrees measures trees, without the time that it takes.
func (d *Disk) measureTrees(call *wire.Call, req *world.MeasureTrees) {
	measured := &world.TreesMeasured{Trees: make([]world.TreeMeasured, len(req.Paths))}
	for i, p := range req.Paths {
		at, err := d.resolve(call.Name, p, false)
		if err != nil || at.node == nil {
			continue
		}
		if d.Names(p) > MeasurableNames {
			measured.Trees[i].Unfinished = true
			continue
		}
		at.node.measure(&measured.Trees[i])
	}
	call.Reply(measured)
}

func (n *node) measure(sum *world.TreeMeasured) {
	n.catchUp()
	sum.Inodes++
	if n.ownFiles {
		sum.Inodes += n.names
	}
	sum.Bytes += (n.size + blockSize - 1) / blockSize * blockSize
	if n.isDir() {
		sum.Bytes += blockSize
	}
	for _, e := range n.entries {
		if e.node.mountCount == 0 {
			e.node.measure(sum)
		}
	}
}
