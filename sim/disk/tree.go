package disk

import (
	"path"
	"slices"
	"strings"
	"time"

	"seedlet.dev/world"
)

// node is what a name leads to: a file, a directory, a link or something else. One node can be
// seen at several paths, through mounts. It has no name of its own, so that whoever holds it, as
// a process that writes its log, goes on with it when it has been renamed or removed.
type node struct {
	kind world.PathKind
	content
	target  string  // of a link
	entries []entry // of a directory, by name
	hidden  int     // how many mounts are on it
	grow    func()  // has a File's writer catch up
}

// content is what can change of a node without another taking its name. The data is the end of
// it: a file may be larger than what is known of it, and begins with zeros then. Data is never
// changed in place, so that an answer can hold it.
type content struct {
	mode    uint32 // permission bits, and setGroupID
	gid     int64
	modTime time.Time
	data    []byte
	size    int64
}

// entry is a name in a directory.
type entry struct {
	name string
	node *node
}

// kindLink is never told: StatPath follows links.
const kindLink world.PathKind = "Link"

func (n *node) isDir() bool { return n.kind == world.PathDirectory }

func newDir(mode uint32, now time.Time) *node {
	return &node{kind: world.PathDirectory, content: content{mode: mode, modTime: now}}
}

func newFile(data []byte, mode uint32, now time.Time) *node {
	return &node{kind: world.PathFile,
		content: content{mode: mode, modTime: now, data: data, size: int64(len(data))}}
}

func newLink(target string, now time.Time) *node {
	return &node{kind: kindLink, content: content{mode: 0o777, modTime: now}, target: target}
}

// child returns what is at a name in a directory, under what may be mounted there.
func (n *node) child(name string) *node {
	if i, ok := n.search(name); ok {
		return n.entries[i].node
	}
	return nil
}

func (n *node) search(name string) (int, bool) {
	return slices.BinarySearchFunc(n.entries, name, func(e entry, name string) int {
		return strings.Compare(e.name, name)
	})
}

// put has a name in a directory lead to a node, or to nothing, and returns where it led before.
func (n *node) put(name string, to *node) (before *node) {
	i, exists := n.search(name)
	if exists {
		before = n.entries[i].node
	}
	switch {
	case to == nil && exists:
		n.entries = slices.Delete(n.entries, i, i+1)
	case to != nil && exists:
		n.entries[i].node = to
	case to != nil:
		n.entries = slices.Insert(n.entries, i, entry{name, to})
	}
	return before
}

// place is where a path leads.
type place struct {
	path string // without links
	dir  *node  // the directory with the last name in it; nil for the root
	name string
	node *node // what is seen there; nil if nothing is

	// The mounts that the name and the node are in; nil for the disk itself.
	nameIn, nodeIn *mount
}

// isMountpoint reports whether something is mounted at the path itself.
func (p place) isMountpoint() bool { return p.nameIn != p.nodeIn }

// linksMax is how many links the kernel follows in one path.
const linksMax = 40

// look follows a path, and the link that it ends at if follow says so. Nothing at its end is no
// error, nothing on its way is one.
func (d *Disk) look(op, p string, follow bool) (place, *world.Error) {
	if !path.IsAbs(p) {
		return place{}, world.Errorf(world.KindInvalid, op, "%q is not an absolute path", p)
	}
	asked := p
	p = path.Clean(p)
	for range linksMax {
		at, rest := d.descend(p)
		switch {
		case at.node == nil && rest != "":
			return at, notFound(op, asked)
		case at.node != nil && at.node.kind == kindLink && (follow || rest != ""):
			to := at.node.target
			if !path.IsAbs(to) {
				to = path.Join(path.Dir(at.path), to)
			}
			p = path.Join(to, rest)
		case rest != "":
			return at, world.Errorf(world.KindInvalid, op, "%s: not a directory", asked)
		default:
			return at, nil
		}
	}
	return place{}, world.Errorf(world.KindInvalid, op, "%s: too many levels of links", asked)
}

// descend goes down a clean path as far as it leads through directories. What it stops at, with
// the rest of the path, is a link, a file, or nothing.
func (d *Disk) descend(p string) (at place, rest string) {
	at = place{path: "/", node: d.root}
	for start := 1; start < len(p); {
		end := len(p)
		if i := strings.IndexByte(p[start:], '/'); i >= 0 {
			end = start + i
		}
		under := at.node.child(p[start:end])
		at = place{path: p[:end], dir: at.node, name: p[start:end], nameIn: at.nodeIn}
		at.node, at.nodeIn = d.top(under, at.nameIn)
		if start = end + 1; at.node == nil || !at.node.isDir() {
			return at, p[min(start, len(p)):]
		}
	}
	return at, ""
}

// find looks a path up, following links: what is there, or why nothing is.
func (d *Disk) find(op, p string) (*node, *world.Error) {
	at, err := d.look(op, p, true)
	if err == nil && at.node == nil {
		err = notFound(op, p)
	}
	return at.node, err
}

// at returns what is at a path, nil if nothing is.
func (d *Disk) at(p string) *node {
	n, _ := d.find("", p)
	return n
}

// findDir looks a directory up.
func (d *Disk) findDir(op, p string) (*node, *world.Error) {
	n, err := d.find(op, p)
	if err == nil && !n.isDir() {
		return nil, world.Errorf(world.KindInvalid, op, "%s: not a directory", p)
	}
	return n, err
}

// mkdirAll makes a directory and its parents, and reports whether it was not there.
func (d *Disk) mkdirAll(op, p string, mode uint32) (made bool, err *world.Error) {
	at, err := d.look(op, p, true)
	if err.Has(world.KindNotFound) {
		if _, err = d.mkdirAll(op, path.Dir(path.Clean(p)), mode); err == nil {
			at, err = d.look(op, p, true)
		}
	}
	if err == nil && at.node == nil {
		// A link that leads nowhere takes the name all the same.
		at, err = d.look(op, p, false)
	}
	switch {
	case err != nil:
		return false, err
	case at.node == nil:
		d.change(at, newDir(mode, d.now()))
		return true, nil
	case !at.node.isDir():
		return false, world.Errorf(world.KindExists, op, "%s exists and is no directory", p)
	}
	return false, nil
}

// walk calls visit with every path below a directory, parents first, in the order of the names.
func (d *Disk) walk(here string, n *node, in *mount, visit func(string, *node)) {
	for _, e := range n.entries {
		p := path.Join(here, e.name)
		seen, seenIn := d.top(e.node, in)
		visit(p, seen)
		d.walk(p, seen, seenIn, visit)
	}
}

func notFound(op, p string) *world.Error {
	return world.Errorf(world.KindNotFound, op, "%s: no such file or directory", p)
}
