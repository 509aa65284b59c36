package disk_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"seedlet.dev/world"
)

func (b *bench) watch(path string) {
	b.port.Do(world.Effect{Body: &world.Watch{Path: path}})
	time.Sleep(50 * time.Millisecond) // until it has been placed
	b.quiet()
}

// quiet waits until nothing more is told, and forgets what has been.
func (b *bench) quiet() {
	for {
		time.Sleep(250 * time.Millisecond)
		b.mu.Lock()
		n := len(b.changed)
		b.changed = nil
		b.mu.Unlock()
		if n == 0 {
			return
		}
	}
}

// told fails the test unless a change of the path is told soon after an action.
func (b *bench) told(path, action string, act func() error) {
	b.t.Helper()
	if err := act(); err != nil {
		b.t.Fatalf("%s: %v", action, err)
	}
	for range 200 {
		time.Sleep(10 * time.Millisecond)
		b.mu.Lock()
		changed := b.changed
		b.mu.Unlock()
		if len(changed) > 0 {
			if changed[0] != path {
				b.t.Errorf("%s: told of %s, want %s", action, changed[0], path)
			}
			b.quiet()
			return
		}
	}
	b.t.Errorf("%s: not told of", action)
}

func (b *bench) notTold(action string, act func() error) {
	b.t.Helper()
	if err := act(); err != nil {
		b.t.Fatalf("%s: %v", action, err)
	}
	time.Sleep(300 * time.Millisecond)
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.changed) > 0 {
		b.t.Errorf("%s: told of %v, want nothing", action, b.changed)
	}
	b.changed = nil
}

func TestWatchDirectory(t *testing.T) {
	t.Parallel()
	b, root := newBench(t), t.TempDir()
	dir := filepath.Join(root, "etc/manifests")
	file := filepath.Join(dir, "pod.yaml")
	put := func() error { return os.WriteFile(file, []byte("x"), 0o644) }
	b.watch(dir)

	b.told(dir, "making a parent and the directory at once",
		func() error { return os.MkdirAll(dir, 0o755) })
	b.told(dir, "making a file", put)
	b.told(dir, "writing it", put)
	b.told(dir, "renaming another over it", func() error {
		if err := os.WriteFile(file+".new", nil, 0o644); err != nil {
			return err
		}
		return os.Rename(file+".new", file)
	})
	b.told(dir, "removing it", func() error { return os.Remove(file) })
	b.told(dir, "removing the directory", func() error { return os.Remove(dir) })
	b.told(dir, "making it again", func() error { return os.Mkdir(dir, 0o755) })
	b.told(dir, "making a file in the new one", put)
	b.told(dir, "moving the directory away", func() error { return os.Rename(dir, dir+".old") })
	b.notTold("writing into the old one", func() error {
		return os.WriteFile(filepath.Join(dir+".old", "pod.yaml"), nil, 0o644)
	})
	b.told(dir, "moving it back", func() error { return os.Rename(dir+".old", dir) })
	b.told(dir, "writing into it", put)
	b.told(dir, "removing the parent", func() error {
		return os.RemoveAll(filepath.Join(root, "etc"))
	})
	b.told(dir, "making all of it again", func() error { return os.MkdirAll(dir, 0o755) })
	b.told(dir, "making a file in the newest", put)
}

func TestWatchFile(t *testing.T) {
	t.Parallel()
	b, dir := newBench(t), t.TempDir()
	file := filepath.Join(dir, "pod.yaml")
	b.watch(file)
	b.told(file, "making it", func() error { return os.WriteFile(file, []byte("x"), 0o644) })
	b.told(file, "writing it", func() error { return os.WriteFile(file, []byte("y"), 0o644) })
	b.notTold("writing a neighbour", func() error {
		return os.WriteFile(filepath.Join(dir, "other"), nil, 0o644)
	})
	b.told(file, "saving as editors do", func() error {
		if err := os.Rename(file, file+"~"); err != nil {
			return err
		}
		return os.WriteFile(file, []byte("z"), 0o644)
	})
	b.told(file, "removing it", func() error { return os.Remove(file) })
}

// A file written slowly is told of once it is there, not once for each write.
func TestWatchCollectsChanges(t *testing.T) {
	t.Parallel()
	b, dir := newBench(t), t.TempDir()
	b.watch(dir)
	for range 50 {
		if err := os.WriteFile(filepath.Join(dir, "f"), []byte("x"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(400 * time.Millisecond)
	b.mu.Lock()
	defer b.mu.Unlock()
	if n := len(b.changed); n < 1 || n > 4 {
		t.Errorf("told %d times of 50 writes, want a few", n)
	}
}
