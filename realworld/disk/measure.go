package disk

import (
	"context"

	"golang.org/x/sys/unix"

	"seedlet.dev/world"
)

// linkedMax bounds how many files of several names are remembered while a tree is measured.
const linkedMax = 1_000_000

// measureTree adds up what a tree uses.
func measureTree(ctx context.Context, path string) (*world.TreeMeasured, error) {
	answer := &world.TreeMeasured{}
	seen := map[uint64]bool{} // of the one file system that is walked through, by inode
	w := walk{ctx: ctx, visit: func(f found) error {
		if f.stat.Nlink > 1 && f.stat.Mode&unix.S_IFMT != unix.S_IFDIR {
			if seen[f.stat.Ino] {
				return nil
			}
			if len(seen) == linkedMax {
				return world.Errorf(world.KindExhausted, "", "%s has more than %d files of "+
					"several names", path, linkedMax)
			}
			seen[f.stat.Ino] = true
		}
		answer.Bytes += int64(f.stat.Blocks) * 512
		answer.Inodes++
		return nil
	}}
	if err := w.tree(path); err != nil {
		return nil, err
	}
	return answer, nil
}

// Measure adds up what a tree uses, as the effect MeasureTree does, until the context is done.
func Measure(ctx context.Context, path string) (*world.TreeMeasured, error) {
	return measureTree(ctx, path)
}
