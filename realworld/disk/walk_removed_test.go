package disk

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"seedlet.dev/world"
)

// largeFile is what a tenant has beside the directories that it removes.
const largeFile = 1 << 20

// A chain of directories, deeper than the walk keeps open, that is removed while the walk is at its
// end: the walk goes on, or finds no way back.
func TestRemovedChainIsNoFailure(t *testing.T) {
	root := t.TempDir()
	chain := filepath.Join(root, "chain")
	dir := chain
	for i := range openMax + 5 {
		dir = filepath.Join(dir, strconv.Itoa(i))
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "leaf"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	w := walker{ctx: t.Context(), visit: func(f entry) error {
		if f.name == "leaf" {
			return os.RemoveAll(chain)
		}
		return nil
	}}
	if err := w.walkTree(root); err != nil && !isTooLarge(err) {
		t.Errorf("the walk has ended with %v", err)
	}
}

// A directory that is removed while it is read has no names left: the walk goes on.
func TestRemovedDirectoryIsEmpty(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "dir")
	for i := range 3 {
		if err := os.MkdirAll(filepath.Join(dir, strconv.Itoa(i)), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	visited := 0
	w := walker{ctx: t.Context(), visit: func(f entry) error {
		if visited++; visited == 1 {
			return os.RemoveAll(dir)
		}
		return nil
	}}
	if err := w.walkTree(root); err != nil {
		t.Errorf("the walk has failed after %d visits: %v", visited, err)
	}
}

// A tenant that removes directories all the time never counts as one that uses nothing.
func TestTreeOfRemovedDirectoriesCounts(t *testing.T) {
	root := t.TempDir()
	large := make([]byte, largeFile)
	if err := os.WriteFile(filepath.Join(root, "a-large"), large, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			dir := filepath.Join(root, "chain")
			for i := range 40 {
				dir = filepath.Join(dir, strconv.Itoa(i))
			}
			_ = os.MkdirAll(dir, 0o700)
			_ = os.RemoveAll(filepath.Join(root, "chain"))
		}
	}()
	for range 60 {
		if _, err := measureTree(t.Context(), root, measureTimeMax); err != nil {
			t.Fatal(err)
		}
		deadline, stop := context.WithTimeout(t.Context(), time.Minute)
		tree := measureTrees(deadline, &world.MeasureTrees{Paths: []string{root}}).Trees[0]
		if stop(); tree.Bytes == 0 && !tree.Unfinished {
			t.Fatalf("the tree counts as %+v", tree)
		}
	}
	cancel()
	<-done
}

// A directory of many names that is closed on the way down is not read to its end when there is no
// time left.
func TestNamesOfClosedDirectory(t *testing.T) {
	root := t.TempDir()
	for i := range 3000 { // several times what is read at once
		if err := os.WriteFile(filepath.Join(root, strconv.Itoa(i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	dir, err := os.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w := walker{ctx: ctx, levels: []level{{dir: dir, path: root}}, open: 1}
	if err := w.closeOldest(); !errors.Is(err, context.Canceled) || len(w.levels[0].names) != 0 {
		t.Errorf("%d names were read: %v", len(w.levels[0].names), err)
	}
}
