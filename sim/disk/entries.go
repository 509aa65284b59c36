package disk

// Entry is what a name in a directory leads to.
type Entry struct {
	Name   string
	Size   int64  // of a file
	Target string // of a link
}

// Entries is what is in a directory, in the order of the names; none if there is no such directory.
func (d *Disk) Entries(p string) []Entry {
	var entries []Entry
	if n := d.at(p); n != nil {
		entries = make([]Entry, 0, len(n.entries))
		for _, e := range n.entries {
			e.node.catchUp()
			entries = append(entries, Entry{e.name, e.node.size, e.node.target})
		}
	}
	return entries
}
