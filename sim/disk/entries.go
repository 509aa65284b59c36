package disk

import (
	"iter"

	"seedlet.dev/world"
)

// Entry is an entry of a directory.
type Entry struct {
	Name   string
	Size   int64  // of a file
	Target string // of a link
}

// Usage returns the disk usage of a tree in bytes, as MeasureTree does.
func (d *Disk) Usage(p string) int64 {
	sum := &world.TreeMeasured{}
	if at, err := d.resolve("", p, false); err == nil && at.node != nil {
		at.node.measure(sum)
	}
	return sum.Bytes
}

// Entries returns the entries of a directory, sorted by name; none if the directory does not exist.
func (d *Disk) Entries(p string) iter.Seq[Entry] {
	return func(yield func(Entry) bool) {
		n := d.nodeAt(p)
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
