package disk

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"github.com/moby/sys/mountinfo"

	"seedlet.dev/world"
)

// answerMargin is how long before the deadline of its effect a measurement of many trees ends, so
// that the core gets what was found.
const answerMargin = 2 * time.Second

// measureTrees measures trees, until shortly before the deadline. Those of pods have the mount
// points of their volumes, of which the server may be gone: they are known from the mount table.
func measureTrees(ctx context.Context, request *world.MeasureTrees) *world.TreesMeasured {
	deadline, has := ctx.Deadline()
	if !has {
		deadline = time.Now().Add(measureTimeMax)
	}
	deadline = deadline.Add(-answerMargin)
	table, err := mountTable("/")
	if err != nil {
		table = nil // the walks notice mounts when they get there
	}
	return &world.TreesMeasured{Trees: shareTime(request,
		func() time.Duration { return time.Until(deadline) },
		func(path string, most time.Duration) world.TreeMeasured {
			return measurePart(ctx, path, table, most)
		})}
}

// skipMounts has the walk of a tree not look at the mount points below its root.
func (w *walker) skipMounts(root string, table []*mountinfo.Info) {
	if len(table) == 0 {
		return
	}
	resolved, err := inMountTable(root)
	if err != nil {
		return // it is gone, or the walk says why not
	}
	w.mounts, w.mountNames = map[string]bool{}, map[string]bool{}
	for _, m := range table {
		if below, is := strings.CutPrefix(m.Mountpoint, resolved+"/"); is {
			w.mounts[root+"/"+below], w.mountNames[filepath.Base(below)] = true, true
		}
	}
}

// shareTime measures trees one after the other in the time that is left. Each owner has an equal
// part of half of that, and of this each of its trees; those for which it was not enough share the
// rest in the same way: one large tree takes nothing from the others. A tree that was not finished
// is measured again from its beginning. What could not be finished says so, with what was found.
func shareTime(request *world.MeasureTrees, left func() time.Duration,
	measure func(path string, most time.Duration) world.TreeMeasured) []world.TreeMeasured {
	trees := make([]world.TreeMeasured, len(request.Paths))
	waiting := byOwner(request)
	for _, rounds := range []time.Duration{2, 1} {
		var unfinished [][]int
		rest := left() - left()/rounds // for the next round
		for n, own := range waiting {
			after := left() - (left()-rest)/time.Duration(len(waiting)-n) // what is left for others
			var again []int
			for k, i := range own {
				part := (left() - after) / time.Duration(len(own)-k)
				if trees[i] = measure(request.Paths[i], part); trees[i].Unfinished {
					again = append(again, i)
				}
			}
			if again != nil {
				unfinished = append(unfinished, again)
			}
		}
		waiting = unfinished
	}
	return trees
}

// byOwner returns the indexes of the trees of each owner.
func byOwner(request *world.MeasureTrees) [][]int {
	var all [][]int
	positions := map[string]int{}
	for i := range request.Paths {
		owner := ""
		if i < len(request.Owners) {
			owner = request.Owners[i]
		}
		at, known := positions[owner]
		if !known {
			at = len(all)
			positions[owner] = at
			all = append(all, nil)
		}
		all[at] = append(all[at], i)
	}
	return all
}

// measurePart measures a tree for a while. One that does not exist is empty. One that cannot be
// measured is unfinished, as it may have any size.
func measurePart(ctx context.Context, path string, table []*mountinfo.Info,
	most time.Duration) world.TreeMeasured {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	m := measurement{path: path, mounts: table}
	err := m.run(ctx)
	switch {
	case err == nil:
	case errors.Is(err, fs.ErrNotExist):
		return world.TreeMeasured{}
	default:
		m.sum.Unfinished = true
	}
	return m.sum
}
