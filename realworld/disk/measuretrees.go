package disk

import (
	"context"

	"seedlet.dev/world"
)

// measureTrees measures trees one after the other. One that cannot be finished in time takes no
// time from the others but its own.
func measureTrees(ctx context.Context, paths []string) *world.TreesMeasured {
	measured := &world.TreesMeasured{Trees: make([]world.TreeMeasured, len(paths))}
	for i, path := range paths {
		if ctx.Err() != nil {
			measured.Trees[i].Unfinished = true
			continue
		}
		if sum, err := measureTree(ctx, path); err == nil {
			measured.Trees[i] = *sum
		} else if ctx.Err() != nil {
			measured.Trees[i].Unfinished = true
		}
	}
	return measured
}
