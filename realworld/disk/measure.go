package disk

import (
	"context"
	"errors"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"seedlet.dev/world"
)

// hardLinksMax bounds how many files with several names are remembered while a tree is measured.
const hardLinksMax = 1_000_000

// measureTimeMax bounds one measurement. It is less than the deadline of the effect, so that the
// core receives what was found.
const measureTimeMax = time.Minute

// manyNames is the number of names from which a measurement without a result in time is the tree's
// fault. A disk that reads fewer names in measureTimeMax is sick, and says nothing about the tree.
const manyNames = 10_000

// measureTree sums the usage of a tree. For a tree that is too large it returns the usage that it
// has found. A walk that began late, as it waited for those of other pods, and so has less than
// the time it may take until the deadline of the effect, says nothing about the tree.
func measureTree(ctx context.Context, path string, most time.Duration) (*world.TreeMeasured,
	error) {
	within, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	m := measurement{path: path}
	err := m.run(within)
	if isOfTree(ctx, err, m.names) {
		m.sum.Unfinished = true
		return &m.sum, nil
	}
	if err != nil {
		return nil, err
	}
	return &m.sum, nil
}

// isOfTree reports whether an error is the tree's fault: it is too large, or many of its names were
// looked at in all of the time that one measurement may take, although the effect has time left.
func isOfTree(effect context.Context, err error, names int) bool {
	return isTooLarge(err) ||
		errors.Is(err, context.DeadlineExceeded) && effect.Err() == nil && names >= manyNames
}

// isTooLarge reports whether the walk itself has found a tree too large. An error of the kernel
// that is KindExhausted, such as EMFILE, says nothing about the tree.
func isTooLarge(err error) bool {
	worldErr, ok := errors.AsType[*world.Error](err)
	return ok && worldErr.Has(world.KindExhausted)
}

// Measure sums the usage of a tree, as the effect MeasureTree does, until the context is done.
func Measure(ctx context.Context, path string) (*world.TreeMeasured, error) {
	m := measurement{path: path}
	if err := m.run(ctx); err != nil {
		return nil, err
	}
	return &m.sum, nil
}

// measurement measures one tree.
type measurement struct {
	path   string
	mounts []*mountinfo.Info // the mount table; nil: it is not looked at
	sum    world.TreeMeasured
	names  int             // that were looked at: on the way down a deep tree none is visited
	seen   map[uint64]bool // files with several names, by inode: a walk stays in one file system
}

func (m *measurement) run(ctx context.Context) error {
	m.seen = map[uint64]bool{}
	w := walker{ctx: ctx, visit: m.add}
	w.skipMounts(m.path, m.mounts)
	defer func() { m.names = w.looked }()
	return w.walkTree(m.path)
}

// add adds the usage of one file or directory.
func (m *measurement) add(f entry) error {
	if f.stat.Nlink > 1 && f.stat.Mode&unix.S_IFMT != unix.S_IFDIR {
		if m.seen[f.stat.Ino] {
			return nil
		}
		if len(m.seen) == hardLinksMax {
			return world.Errorf(world.KindExhausted, "", "%s has more than %d files of "+
				"several names", m.path, hardLinksMax)
		}
		m.seen[f.stat.Ino] = true
	}
	m.sum.Bytes += int64(f.stat.Blocks) * 512
	m.sum.Inodes++
	return nil
}
