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

// change is one that can be undone: of a name in a directory, or of a node's content.
type change struct {
	at            time.Time
	dir           *node // nil: of content
	name          string
	before, after *node // nil: nothing there
	fresh         bool  // the content of after is as new as its name
	joined        bool  // never without the change before it

	node *node
	was  content
}

func (c *change) undo() {
	if c.dir == nil {
		c.node.content = c.was
		return
	}
	c.dir.put(c.name, c.before)
}

// change puts a new node at a place, or nothing, and remembers how to undo it.
func (d *Disk) change(at place, n *node) {
	d.note(change{dir: at.dir, name: at.name, before: at.dir.child(at.name), after: n,
		fresh: n != nil})
	at.dir.put(at.name, n)
	at.dir.modTime = d.now()
}

// move gives what is at a place another name, in one step.
func (d *Disk) move(from, to place) {
	n := from.dir.child(from.name)
	d.change(to, n)
	d.journal.changes[len(d.journal.changes)-1].fresh = false
	d.change(from, nil)
	d.journal.changes[len(d.journal.changes)-1].joined = true
}

// alter gives a node another content.
func (d *Disk) alter(n *node, to content) {
	d.note(change{node: n, was: n.content})
	n.content = to
}

func (d *Disk) note(c change) {
	j := &d.journal
	old := 0
	for old < len(j.changes) && d.now().Sub(j.changes[old].at) >= writeback {
		old++
	}
	c.at = d.now()
	j.changes = append(append(j.changes[:0], j.changes[old:]...), c)
}

// sync forces all changes so far.
func (d *Disk) sync() { d.journal.changes = d.journal.changes[:0] }

// PowerLoss leaves what the disk had when the power went: nothing is mounted, some of the latest
// changes have never been, and of files that were written without being forced some have only
// their beginning.
func (d *Disk) PowerLoss() {
	for _, m := range d.mounts {
		m.on.hidden--
		d.tell(truth.Unmounted, m.path, truth.CauseReboot)
	}
	d.mounts = nil
	j := &d.journal
	for len(j.changes) > 0 && d.now().Sub(j.changes[0].at) >= writeback {
		j.changes = j.changes[1:]
	}
	kept := j.rng.IntN(len(j.changes) + 1)
	for kept > 0 && kept < len(j.changes) && j.changes[kept].joined {
		kept--
	}
	for i := len(j.changes) - 1; i >= kept; i-- {
		j.changes[i].undo()
	}
	for _, c := range j.changes[:kept] {
		if !c.fresh || len(c.after.data) == 0 || c.dir.child(c.name) != c.after {
			continue
		}
		if j.rng.IntN(2) == 0 {
			c.after.data = c.after.data[:j.rng.IntN(len(c.after.data))]
			c.after.size = int64(len(c.after.data))
		}
	}
	d.sync()
	d.tell(truth.PowerLost, "", "")
}
