package disk

import (
	"context"
	"time"

	"seedlet.dev/world"
)

// answerMargin is how long before the deadline of its effect a measurement of many trees ends, so
// that the core gets what was found.
const answerMargin = 2 * time.Second

// measureTrees measures trees one after the other, until shortly before the deadline. Each has an
// equal part of half the time that is left, and those that it was too little for have a part of the
// rest: one large tree takes nothing from the others. What could not be finished says so, with what
// was found.
func measureTrees(ctx context.Context, paths []string) *world.TreesMeasured {
	deadline, has := ctx.Deadline()
	if !has {
		deadline = time.Now().Add(measureTimeMax)
	}
	deadline = deadline.Add(-answerMargin)
	measured := &world.TreesMeasured{Trees: make([]world.TreeMeasured, len(paths))}
	left := make([]int, len(paths)) // the indexes of those to measure
	for i := range paths {
		left[i] = i
	}
	for _, share := range []time.Duration{2, 1} {
		var unfinished []int
		for n, i := range left {
			part := time.Until(deadline) / share / time.Duration(len(left)-n)
			if measured.Trees[i] = measurePart(ctx, paths[i], part); measured.Trees[i].Unfinished {
				unfinished = append(unfinished, i)
			}
		}
		left = unfinished
	}
	return measured
}

// measurePart measures a tree for a while. A tree that cannot be measured at all counts as empty:
// it may be gone.
func measurePart(ctx context.Context, path string, most time.Duration) world.TreeMeasured {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	m := measurement{path: path}
	err := m.run(ctx)
	switch {
	case err == nil:
	case isTooLarge(err) || ctx.Err() != nil:
		m.sum.Unfinished = true
	default:
		return world.TreeMeasured{}
	}
	return m.sum
}
