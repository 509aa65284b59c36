package disk

import (
	"math/rand/v2"
	"time"

	"seedlet.dev/sim/truth"
)

// writeback is how long the kernel may keep a change in memory only.
const writeback = 30 * time.Second

// journal is what the disk itself may not have yet: the changes of the last half minute, oldest
// first, since the last that was forced. The disk applies changes of names in order, as
// journalling file systems do; the content of a file may come later than its name.
type journal struct {
	rng     *rand.Rand
	changes []change
}

// change is one that can be undone.
type change struct {
	at            time.Time
	path          string
	before, after *node // nil: nothing there
}

// change puts a node at a path and remembers how to undo it.
func (d *Disk) change(p string, n *node) (before *node) {
	j := &d.journal
	old := 0
	for old < len(j.changes) && d.now().Sub(j.changes[old].at) >= writeback {
		old++
	}
	j.changes = append(j.changes[:0], j.changes[old:]...)
	before = d.put(p, n)
	j.changes = append(j.changes, change{at: d.now(), path: p, before: before, after: n})
	return before
}

// sync forces all changes so far.
func (d *Disk) sync() { d.journal.changes = d.journal.changes[:0] }

// PowerLoss leaves what the disk had when the power went: some of the latest changes have never
// been, and of files that were written without being forced some have only their beginning.
func (d *Disk) PowerLoss() {
	j := &d.journal
	for len(j.changes) > 0 && d.now().Sub(j.changes[0].at) >= writeback {
		j.changes = j.changes[1:]
	}
	kept := j.rng.IntN(len(j.changes) + 1)
	for i := len(j.changes) - 1; i >= kept; i-- {
		d.put(j.changes[i].path, j.changes[i].before)
	}
	for _, c := range j.changes[:kept] {
		if c.after == nil || c.after.dir || len(c.after.data) == 0 || d.at(c.path) != c.after {
			continue
		}
		if j.rng.IntN(2) == 0 {
			torn := *c.after
			torn.data = torn.data[:j.rng.IntN(len(torn.data))]
			d.put(c.path, &torn)
		}
	}
	d.sync()
	d.tell(truth.PowerLost, "", "")
}
