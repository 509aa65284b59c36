package disk

import (
	"iter"

	"seedlet.dev/world"
)

// Entry is what a name in a directory leads to.
type Entry struct {
	Name   string
	Size   int64  // of a file
	Target string // of a link
}

// Usage is what a tree takes, as MeasureTree says.
func (d *Disk) Usage(p string) int64 {
	sum := &world.TreeMeasured{}
	if at, err := d.look("", p, false); err == nil && at.node != nil {
		at.node.measure(sum)
	}
	return sum.Bytes
}

// Entries is what is in a directory, in the order of the names; none if there is no such directory.
func (d *Disk) Entries(p string) iter.Seq[Entry] {
	return func(yield func(Entry) bool) {
		n := d.at(p)
		if n == nil {
			return
		}
		for _, e := range n.entries {
			e.node.catchUp()
			if !yield(Entry{e.name, e.node.size, e.node.target}) {
				return
			}
		}
	}
}
