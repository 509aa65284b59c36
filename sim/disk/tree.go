package disk

import (
	"path"
	"slices"
	"strings"
	"time"

	"seedlet.dev/world"
)

// node is an inode: a file, a directory, a link or a special file. A node can be visible at several
// paths through mounts. It does not know its name, so an open file stays the same when it is
// renamed or removed.
type node struct {
	kind world.PathKind
	content
	target     string  // of a link
	entries    []entry // of a directory, by name
	mountCount int     // number of mounts on the node
	sequence   uint64  // of the block device that a link is the path of, see LinkDevice
	beforeRead func()  // see File.BeforeRead
}

// content is the mutable part of a node. Data is the end of the file: a larger file starts with
// zeros that are not stored. Data is never modified in place, so responses can share it.
type content struct {
	mode     uint32 // permission bits, setGroupID, and the sticky bit
	uid      int64  // agentUID, unless WriteDir sets another
	gid      int64
	modTime  time.Time
	data     []byte
	size     int64
	names    int64 // of a directory: names below it that are not stored, see GrowTree
	ownFiles bool  // each of the names is a file
}

// entry is a directory entry.
type entry struct {
	name string
	node *node
}

// kindLink is never reported, because StatPath follows links.
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

// child returns the node of a directory entry, without the mounts that cover it.
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

// put sets a directory entry to a node, or removes it if the node is nil. It returns the node
// before.
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

// location is the result of resolving a path.
type location struct {
	path string // with links resolved
	dir  *node  // the parent directory; nil for the root
	name string
	node *node // the visible node; nil if the path does not exist

	// The mounts that the directory entry and the node are in; nil for the disk itself.
	nameMount, nodeMount *mount
}

// isMountpoint reports whether a mount covers the location.
func (p location) isMountpoint() bool { return p.nameMount != p.nodeMount }

// isNameTooLong reports whether no directory can hold the name of the location.
func (p location) isNameTooLong() bool { return len(p.name) > world.NameBytesMax }

// linksMax is the kernel's limit on links in one path.
const linksMax = 40

// resolve resolves a path, and the link at its end if follow is set. A missing last element is not
// an error, a missing parent is one.
func (d *Disk) resolve(op, p string, follow bool) (location, *world.Error) {
	if !path.IsAbs(p) {
		return location{}, world.Errorf(world.KindInvalid, op, "%q is not an absolute path", p)
	}
	requested := p
	p = path.Clean(p)
	for range linksMax {
		at, rest := d.descend(p)
		switch {
		case at.isNameTooLong():
			return at, world.Errorf(world.KindInvalid, op, "%s: file name too long", requested)
		case at.node == nil && rest != "":
			return at, notFound(op, requested)
		case at.node != nil && at.node.kind == kindLink && (follow || rest != ""):
			to := at.node.target
			if !path.IsAbs(to) {
				to = path.Join(path.Dir(at.path), to)
			}
			p = path.Join(to, rest)
		case rest != "":
			return at, world.Errorf(world.KindInvalid, op, "%s: not a directory", requested)
		default:
			return at, nil
		}
	}
	return location{}, world.Errorf(world.KindInvalid, op, "%s: too many levels of links", requested)
}

// descend walks a clean path through directories. It stops at a link, a file or a missing entry,
// and returns the rest of the path.
func (d *Disk) descend(p string) (at location, rest string) {
	at = location{path: "/", node: d.root}
	for start := 1; start < len(p); {
		end := len(p)
		if i := strings.IndexByte(p[start:], '/'); i >= 0 {
			end = start + i
		}
		covered := at.node.child(p[start:end])
		at = location{path: p[:end], dir: at.node, name: p[start:end], nameMount: at.nodeMount}
		at.node, at.nodeMount = d.visibleNode(covered, at.nameMount)
		if start = end + 1; at.node == nil || !at.node.isDir() {
			return at, p[min(start, len(p)):]
		}
	}
	return at, ""
}

// lookup returns the node at a path, following links, or an error if the path does not exist.
func (d *Disk) lookup(op, p string) (*node, *world.Error) {
	at, err := d.resolve(op, p, true)
	if err == nil && at.node == nil {
		err = notFound(op, p)
	}
	return at.node, err
}

// nodeAt returns the node at a path, following links, and nil if the path does not exist.
func (d *Disk) nodeAt(p string) *node {
	n, _ := d.lookup("", p)
	return n
}

// lookupDir returns the directory at a path, following links.
func (d *Disk) lookupDir(op, p string) (*node, *world.Error) {
	n, err := d.lookup(op, p)
	if err == nil && !n.isDir() {
		return nil, world.Errorf(world.KindInvalid, op, "%s: not a directory", p)
	}
	return n, err
}

// mkdirAll creates a directory and its missing parents, and reports whether it created the
// directory.
func (d *Disk) mkdirAll(op, p string, mode uint32) (made bool, err *world.Error) {
	at, err := d.resolve(op, p, true)
	if err.Has(world.KindNotFound) {
		if _, err = d.mkdirAll(op, path.Dir(path.Clean(p)), mode); err == nil {
			at, err = d.resolve(op, p, true)
		}
	}
	if err == nil && at.node == nil {
		// A dangling link occupies the name.
		at, err = d.resolve(op, p, false)
	}
	switch {
	case err != nil:
		return false, err
	case at.node == nil:
		d.setEntry(at, newDir(mode, d.now()))
		return true, nil
	case !at.node.isDir():
		return false, world.Errorf(world.KindExists, op, "%s exists and is no directory", p)
	}
	return false, nil
}

// walk calls visit for every path below a directory in sorted order, parents first.
func (d *Disk) walk(here string, n *node, in *mount, visit func(string, *node)) {
	for _, e := range n.entries {
		p := path.Join(here, e.name)
		seen, seenIn := d.visibleNode(e.node, in)
		visit(p, seen)
		d.walk(p, seen, seenIn, visit)
	}
}

func notFound(op, p string) *world.Error {
	return world.Errorf(world.KindNotFound, op, "%s: no such file or directory", p)
}
