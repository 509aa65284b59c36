package disk

import (
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"seedlet.dev/sim/truth"
)

// writebackDelay is how long the kernel may keep a change in memory only.
const writebackDelay = 30 * time.Second

// journal holds the changes that may not be on the disk yet: those since the last sync and not
// older than writebackDelay, oldest first. As in a journalling file system, changes of directory
// entries reach the disk in order; the content of a file may reach it after its entry.
type journal struct {
	rng     *rand.Rand
	entries []journalEntry
}

// journalEntry is a change that can be undone: of a directory entry, or of a node's content.
type journalEntry struct {
	at              time.Time
	dir             *node // nil: a change of content
	name            string
	before, after   *node // nil: no entry
	unsyncedContent bool  // the files at and below after may be incomplete on the disk
	withPrevious    bool  // reaches the disk together with the entry before it

	node       *node
	oldContent content
}

func (c *journalEntry) undo() {
	if c.dir == nil {
		c.node.content = c.oldContent
		return
	}
	c.dir.put(c.name, c.before)
}

// setEntry sets a directory entry to a node, or removes it if n is nil, and logs the change.
func (d *Disk) setEntry(at location, n *node) {
	d.logChange(journalEntry{dir: at.dir, name: at.name, before: at.dir.child(at.name), after: n,
		unsyncedContent: n != nil})
	at.dir.put(at.name, n)
	at.dir.modTime = d.now()
}

// moveEntry renames a directory entry in one step.
func (d *Disk) moveEntry(from, to location) {
	n := from.dir.child(from.name)
	d.setEntry(to, n)
	d.journal.entries[len(d.journal.entries)-1].unsyncedContent = false
	d.setEntry(from, nil)
	d.journal.entries[len(d.journal.entries)-1].withPrevious = true
}

// setContent sets the content of a node.
func (d *Disk) setContent(n *node, to content) {
	d.logChange(journalEntry{node: n, oldContent: n.content})
	n.content = to
}

func (d *Disk) logChange(c journalEntry) {
	j := &d.journal
	old := 0
	for old < len(j.entries) && d.now().Sub(j.entries[old].at) >= writebackDelay {
		old++
	}
	c.at = d.now()
	j.entries = append(append(j.entries[:0], j.entries[old:]...), c)
}

// sync makes all changes so far durable.
func (d *Disk) sync() { d.journal.entries = d.journal.entries[:0] }

// LosePower restores the durable state of the disk: nothing is mounted, some of the latest changes
// are undone, and some files that were not synced are truncated.
func (d *Disk) LosePower() {
	for _, m := range d.mounts {
		m.covered.mountCount--
		d.recordFact(truth.Unmounted, m.path, truth.CauseReboot)
	}
	d.mounts = nil
	for _, p := range slices.Sorted(maps.Keys(d.held)) {
		d.releaseDevice(p, truth.CauseReboot)
	}
	j := &d.journal
	for len(j.entries) > 0 && d.now().Sub(j.entries[0].at) >= writebackDelay {
		j.entries = j.entries[1:]
	}
	durable := j.rng.IntN(len(j.entries) + 1)
	for durable > 0 && durable < len(j.entries) && j.entries[durable].withPrevious {
		durable--
	}
	for i := len(j.entries) - 1; i >= durable; i-- {
		j.entries[i].undo()
	}
	for _, c := range j.entries[:durable] {
		if c.unsyncedContent && c.dir.child(c.name) == c.after {
			j.tear(c.after)
		}
	}
	d.sync()
	d.recordFact(truth.PowerLost, "", "")
}

// tear truncates some of the files at and below a node that has not been synced. What is in an
// unsynced directory is not synced either.
func (j *journal) tear(n *node) {
	for _, e := range n.entries {
		j.tear(e.node)
	}
	if len(n.data) > 0 && j.rng.IntN(2) == 0 {
		n.data = n.data[:j.rng.IntN(len(n.data))]
		n.size = int64(len(n.data))
	}
}
