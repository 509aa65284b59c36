package disk

import (
	"path"
	"time"

	"seedlet.dev/sim/truth"
	"seedlet.dev/sim/wire"
	"seedlet.dev/world"
)

// Trees of so many names that the calls that walk them take minutes.

// How fast a walk is, and for how long a measurement walks, as the real port's (measureTimeMax).
const (
	namesMeasuredPerSecond = 50_000
	namesRemovedPerSecond  = 25_000
	measureTimeMax         = time.Minute
)

// GrowTree makes a directory the top of a deep tree with a number of names, each of an empty file
// of its own, limited by the free inodes, or all of one. The tree itself is not stored.
func (d *Disk) GrowTree(p string, names int64, ownFiles bool) {
	if d.nodeAt(p) == nil {
		d.CreateSpecial(p, world.PathDirectory)
	}
	n := d.nodeAt(p)
	if n == nil || !n.isDir() {
		panic("disk: " + p + " is no directory")
	}
	if _, inodes := d.Room(p); ownFiles && names > n.names {
		names = n.names + min(names-n.names, inodes)
	}
	to := n.content
	to.modTime, to.names, to.ownFiles = d.now(), names, ownFiles
	d.setContent(n, to)
	d.recordFact(truth.TreeGrown, path.Clean(p), "")
}

// Names returns the number of names in the trees of GrowTree at and below a path.
func (d *Disk) Names(p string) int64 {
	at, err := d.resolve("", p, false)
	if err != nil || at.node == nil {
		return 0
	}
	return at.node.namesBelow()
}

// namesBelow sums the names of GrowTree, without those of other mounts.
func (n *node) namesBelow() int64 {
	sum := n.names
	for _, e := range n.entries {
		if e.node.mountCount == 0 {
			sum += e.node.namesBelow()
		}
	}
	return sum
}

// MeasurableNames is the number of names of the largest tree that can be measured.
const MeasurableNames = int64(namesMeasuredPerSecond * measureTimeMax / time.Second)

// measureLater completes a measurement after the time that it takes: none for a small tree. The
// measurement of a tree that takes too long is not finished.
func (d *Disk) measureLater(call *wire.Call, n *node) {
	names := n.namesBelow()
	complete := func() {
		response := &world.TreeMeasured{Unfinished: names > MeasurableNames}
		n.measure(response)
		call.Reply(response)
	}
	if names == 0 {
		complete()
		return
	}
	takes := time.Duration(min(names, MeasurableNames)) * time.Second / namesMeasuredPerSecond
	d.opts.Agenda.After(takes, func() {
		if d.decideToContinue(call) {
			complete()
		}
	})
}

// removeNames removes the names of a tree, second by second, and then the tree itself. A call that
// ends early, at its deadline or with the agent, leaves the rest.
func (d *Disk) removeNames(call *wire.Call, req *world.RemoveTree) {
	d.opts.Agenda.After(time.Second, func() {
		at, err := d.resolve(call.Name, req.Path, false)
		switch {
		case call.HasPortDied():
		case call.IsPastDeadline():
			call.Fail(world.Errorf(world.KindTimeout, call.Name, "gave up after its deadline"))
		case err == nil && at.node != nil && at.node.removeSome(namesRemovedPerSecond) == 0:
			d.removeNames(call, req)
		default:
			d.removeTree(call, req)
		}
	})
}

// removeSome removes at most a number of the names of GrowTree, and returns how many more it could
// have removed.
func (n *node) removeSome(most int64) int64 {
	removed := min(n.names, most)
	n.names -= removed
	most -= removed
	for _, e := range n.entries {
		if most > 0 {
			most = e.node.removeSome(most)
		}
	}
	return most
}
