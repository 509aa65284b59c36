package disk

import (
	"path"
	"slices"
	"strings"
	"time"

	"seedlet.dev/world"
)

// node is a file or a directory. A file's content is replaced with its node, never changed in it,
// so that whoever holds a node holds what was there.
type node struct {
	name     string
	dir      bool
	mode     uint32
	modTime  time.Time
	data     []byte  // of a file
	children []*node // of a directory, by name
}

func (n *node) child(name string) *node {
	if i, ok := n.search(name); ok {
		return n.children[i]
	}
	return nil
}

func (n *node) search(name string) (int, bool) {
	return slices.BinarySearchFunc(n.children, name, func(c *node, name string) int {
		return strings.Compare(c.name, name)
	})
}

// split cuts an absolute path into the names on the way.
func split(p string) []string {
	p = strings.Trim(path.Clean(p), "/")
	if p == "" {
		return nil
	}
	return strings.Split(p, "/")
}

// find looks a path up: what is there, or why nothing can be.
func (d *Disk) find(op, p string) (*node, *world.Error) {
	if !path.IsAbs(p) {
		return nil, world.Errorf(world.KindInvalid, op, "%q is not an absolute path", p)
	}
	n := d.root
	for _, name := range split(p) {
		if !n.dir {
			return nil, world.Errorf(world.KindInvalid, op, "%s: not a directory", p)
		}
		if n = n.child(name); n == nil {
			return nil, world.Errorf(world.KindNotFound, op, "%s: no such file or directory", p)
		}
	}
	return n, nil
}

// at returns what is at a path, nil if nothing is.
func (d *Disk) at(p string) *node {
	n, _ := d.find("", p)
	return n
}

// put places a node at a path whose directory exists, or takes away what is there if it is nil,
// and returns what was there before. Every change of the tree goes through here.
func (d *Disk) put(p string, n *node) (before *node) {
	dir, name := d.at(path.Dir(p)), path.Base(p)
	i, exists := dir.search(name)
	if exists {
		before = dir.children[i]
	}
	switch {
	case n == nil && exists:
		dir.children = slices.Delete(dir.children, i, i+1)
	case n != nil && exists:
		dir.children[i] = n
	case n != nil:
		dir.children = slices.Insert(dir.children, i, n)
	}
	dir.modTime = d.now()
	return before
}

// mkdirAll makes a directory and its parents, and reports whether it was not there.
func (d *Disk) mkdirAll(op, p string, mode uint32) (made bool, err *world.Error) {
	n, here := d.root, "/"
	for _, name := range split(p) {
		here = path.Join(here, name)
		next := n.child(name)
		switch {
		case next == nil:
			next = &node{name: name, dir: true, mode: mode, modTime: d.now()}
			d.change(here, next)
			made = true
		case !next.dir && here == path.Clean(p):
			return made, world.Errorf(world.KindExists, op, "%s exists and is no directory", p)
		case !next.dir:
			return made, world.Errorf(world.KindInvalid, op, "%s: not a directory", here)
		}
		n = next
	}
	return made, nil
}

// walk calls visit with every path below a directory, parents first, in the order of the names.
func (n *node) walk(here string, visit func(string, *node)) {
	for _, c := range n.children {
		p := path.Join(here, c.name)
		visit(p, c)
		c.walk(p, visit)
	}
}
