package disk

import (
	"context"
	"errors"
	"io/fs"
	"time"

	"seedlet.dev/world"
)

// answerMargin is how long before the deadline of its effect a measurement of many trees ends, so
// that the core gets what was found.
const answerMargin = 2 * time.Second

// measureTrees measures trees, until shortly before the deadline.
func measureTrees(ctx context.Context, paths []string) *world.TreesMeasured {
	deadline, has := ctx.Deadline()
	if !has {
		deadline = time.Now().Add(measureTimeMax)
	}
	deadline = deadline.Add(-answerMargin)
	return &world.TreesMeasured{Trees: shareTime(paths,
		func() time.Duration { return time.Until(deadline) },
		func(path string, most time.Duration) world.TreeMeasured {
			return measurePart(ctx, path, most)
		})}
}

// shareTime measures trees one after the other in the time that is left. Each has an equal part of
// half of that, and those for which it was not enough have a part of the rest: one large tree takes
// nothing from the others. A tree that was not finished is measured again from its beginning. What
// could not be finished says so, with what was found.
func shareTime(paths []string, left func() time.Duration,
	measure func(path string, most time.Duration) world.TreeMeasured) []world.TreeMeasured {
	trees := make([]world.TreeMeasured, len(paths))
	waiting := make([]int, len(paths)) // the indexes of those to measure
	for i := range paths {
		waiting[i] = i
	}
	for _, rounds := range []time.Duration{2, 1} {
		var unfinished []int
		rest := left() - left()/rounds // for the next round
		for n, i := range waiting {
			part := (left() - rest) / time.Duration(len(waiting)-n)
			if trees[i] = measure(paths[i], part); trees[i].Unfinished {
				unfinished = append(unfinished, i)
			}
		}
		waiting = unfinished
	}
	return trees
}

// measurePart measures a tree for a while. One that does not exist is empty. One that cannot be
// measured is unfinished, as it may have any size.
func measurePart(ctx context.Context, path string, most time.Duration) world.TreeMeasured {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	m := measurement{path: path}
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
