package disk_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"seedlet.dev/realworld/disk"
	"seedlet.dev/realworld/porttest"
	"seedlet.dev/world"
)

// watch watches a path, and waits until the watches are placed: requests are carried out in turn,
// so a change of a path that was requested later shows it.
func (h *harness) watch(path string) {
	h.t.Helper()
	dir := h.t.TempDir()
	h.fence = filepath.Join(dir, "fence")
	last := filepath.Join(dir, "last")
	for _, name := range []string{h.fence, last} {
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			h.t.Fatal(err)
		}
	}
	for _, name := range []string{h.fence, path, last} {
		h.port.Do(world.Effect{Body: &world.Watch{Path: name}})
	}
	porttest.Eventually(h.t, "the watches are placed", func() bool {
		touch(h.t, last)
		return h.countChanges(last) > 0
	})
	h.settle()
}

// touch causes exactly one event of inotify, and so one change.
func touch(t *testing.T, path string) {
	t.Helper()
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
}

func (h *harness) countChanges(path string) (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, changed := range h.changes {
		if changed == path {
			n++
		}
	}
	return n
}

// settle waits until all changes so far are delivered, and returns those of the watched path, or of
// paths that are not watched. inotify reports events in their order, so the change of the fence is
// the last one, or delivered with the last ones.
func (h *harness) settle() []string {
	h.t.Helper()
	touch(h.t, h.fence)
	porttest.Eventually(h.t, "the change of the fence is delivered", func() bool {
		return h.countChanges(h.fence) > 0
	})
	h.mu.Lock()
	defer h.mu.Unlock()
	own := func(path string) bool { return filepath.Dir(path) == filepath.Dir(h.fence) }
	changes := slices.DeleteFunc(h.changes, own)
	h.changes = nil
	return changes
}

// expectChange fails the test unless an action causes changes of the path only.
func (h *harness) expectChange(path, action string, act func() error) {
	h.t.Helper()
	if err := act(); err != nil {
		h.t.Fatalf("%s: %v", action, err)
	}
	changes := h.settle()
	other := func(changed string) bool { return changed != path }
	if len(changes) == 0 || slices.ContainsFunc(changes, other) {
		h.t.Errorf("%s: changes %q, want some of %s", action, changes, path)
	}
}

func (h *harness) expectNoChange(action string, act func() error) {
	h.t.Helper()
	if err := act(); err != nil {
		h.t.Fatalf("%s: %v", action, err)
	}
	if changes := h.settle(); len(changes) > 0 {
		h.t.Errorf("%s: changes %q, want none", action, changes)
	}
}

func TestWatchDirectory(t *testing.T) {
	t.Parallel()
	h, root := newHarness(t), t.TempDir()
	dir := filepath.Join(root, "etc/manifests")
	file := filepath.Join(dir, "pod.yaml")
	put := func() error { return os.WriteFile(file, []byte("x"), 0o644) }
	h.watch(dir)

	h.expectChange(dir, "making a parent and the directory at once",
		func() error { return os.MkdirAll(dir, 0o755) })
	h.expectChange(dir, "making a file", put)
	h.expectChange(dir, "writing it", put)
	h.expectChange(dir, "renaming another over it", func() error {
		if err := os.WriteFile(file+".new", nil, 0o644); err != nil {
			return err
		}
		return os.Rename(file+".new", file)
	})
	h.expectChange(dir, "removing it", func() error { return os.Remove(file) })
	h.expectChange(dir, "removing the directory", func() error { return os.Remove(dir) })
	h.expectChange(dir, "making it again", func() error { return os.Mkdir(dir, 0o755) })
	h.expectChange(dir, "making a file in the new one", put)
	h.expectChange(dir, "moving the directory away",
		func() error { return os.Rename(dir, dir+".old") })
	h.expectNoChange("writing into the old one", func() error {
		return os.WriteFile(filepath.Join(dir+".old", "pod.yaml"), nil, 0o644)
	})
	h.expectChange(dir, "moving it back", func() error { return os.Rename(dir+".old", dir) })
	h.expectChange(dir, "writing into it", put)
	h.expectChange(dir, "removing the parent", func() error {
		return os.RemoveAll(filepath.Join(root, "etc"))
	})
	h.expectChange(dir, "making all of it again", func() error { return os.MkdirAll(dir, 0o755) })
	h.expectChange(dir, "making a file in the newest", put)
}

func TestWatchFile(t *testing.T) {
	t.Parallel()
	h, dir := newHarness(t), t.TempDir()
	file := filepath.Join(dir, "pod.yaml")
	h.watch(file)
	h.expectChange(file, "making it", func() error { return os.WriteFile(file, []byte("x"), 0o644) })
	h.expectChange(file, "writing it", func() error { return os.WriteFile(file, []byte("y"), 0o644) })
	h.expectNoChange("writing a neighbour", func() error {
		return os.WriteFile(filepath.Join(dir, "other"), nil, 0o644)
	})
	h.expectChange(file, "saving as editors do", func() error {
		if err := os.Rename(file, file+"~"); err != nil {
			return err
		}
		return os.WriteFile(file, []byte("z"), 0o644)
	})
	h.expectChange(file, "removing it", func() error { return os.Remove(file) })
}

// A file written in many steps is reported once for each period in which changes are collected, not
// once for each write.
func TestWatchCollectsChanges(t *testing.T) {
	t.Parallel()
	h, dir := newHarness(t), t.TempDir()
	h.watch(dir)
	began := time.Now()
	for range 50 {
		if err := os.WriteFile(filepath.Join(dir, "f"), []byte("x"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	changes := h.settle()
	most := 1 + int(time.Since(began)/disk.BatchDelay)
	if n := len(changes); n < 1 || n > most {
		t.Errorf("%d changes for 50 writes, want 1 to %d", n, most)
	}
}
