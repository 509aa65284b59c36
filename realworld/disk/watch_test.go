package disk_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"seedlet.dev/realworld/disk"
	"seedlet.dev/realworld/porttest"
	"seedlet.dev/world"
)

func (h *harness) watch(path string) {
	h.port.Do(world.Effect{Body: &world.Watch{Path: path}})
	time.Sleep(50 * time.Millisecond) // until the watches are placed
	h.drainChanges()
}

// drainChanges waits until no more changes are delivered, and drops those that were.
func (h *harness) drainChanges() {
	for {
		time.Sleep(250 * time.Millisecond)
		h.mu.Lock()
		n := len(h.changes)
		h.changes = nil
		h.mu.Unlock()
		if n == 0 {
			return
		}
	}
}

// expectChange fails the test unless a change of the path is delivered soon after an action.
func (h *harness) expectChange(path, action string, act func() error) {
	h.t.Helper()
	if err := act(); err != nil {
		h.t.Fatalf("%s: %v", action, err)
	}
	for late := time.Now().Add(porttest.Patience); time.Now().Before(late); {
		time.Sleep(10 * time.Millisecond)
		h.mu.Lock()
		changes := h.changes
		h.mu.Unlock()
		if len(changes) > 0 {
			if changes[0] != path {
				h.t.Errorf("%s: change of %s, want %s", action, changes[0], path)
			}
			h.drainChanges()
			return
		}
	}
	h.t.Errorf("%s: no change was delivered", action)
}

func (h *harness) expectNoChange(action string, act func() error) {
	h.t.Helper()
	if err := act(); err != nil {
		h.t.Fatalf("%s: %v", action, err)
	}
	time.Sleep(300 * time.Millisecond)
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.changes) > 0 {
		h.t.Errorf("%s: changes %v, want none", action, h.changes)
	}
	h.changes = nil
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
	time.Sleep(400 * time.Millisecond)
	h.mu.Lock()
	defer h.mu.Unlock()
	most := 1 + int(time.Since(began)/disk.BatchDelay)
	if n := len(h.changes); n < 1 || n > most {
		t.Errorf("%d changes for 50 writes, want 1 to %d", n, most)
	}
}
