package disk

import (
	"testing"

	"seedlet.dev/world"
)

// While a file system is full, writes to it fail, and those to others do not.
func TestFileSystemThatFills(t *testing.T) {
	w := newWorld(1, nil)
	noted := 0
	w.disk.opts.Fills, w.disk.opts.NoteFull = true, func() { noted++ }
	w.disk.opts.Filesystems = []Filesystem{{Path: "/", CapacityBytes: 100 * blockSize, Inodes: 20},
		{Path: "/images", CapacityBytes: 100 * blockSize, Inodes: 20}}
	w.mustCall(t, &world.MakeDir{Path: "/pods", Mode: 0o755})
	w.mustCall(t, &world.MountMemory{Path: "/pods/memory", Mode: 0o755})
	f := w.disk.Open("/pods/a")
	f.Resize(10 * blockSize)
	if f.Resize(1000 * blockSize); f.Size() < 80*blockSize || f.Size() > 100*blockSize {
		t.Errorf("a file has %d bytes of a disk of %d", f.Size(), 100*blockSize)
	}
	if free := w.disk.Filesystem("/").AvailableBytes; free != 0 || noted != 0 {
		t.Errorf("%d bytes are left, noted %d", free, noted)
	}
	write := func(p string) *world.Error {
		_, err := w.Call(&world.WriteFile{Path: p, Data: []byte("x"), Mode: 0o644})
		return err
	}
	if err := write("/pods/b"); !err.Has(world.KindExhausted) || noted == 0 {
		t.Errorf("a write to a full disk: %v, noted %d", err, noted)
	}
	w.mustCall(t, &world.WriteFile{Path: "/pods/memory/b", Data: []byte("x"), Mode: 0o644})
	w.mustCall(t, &world.MakeDir{Path: "/images/b", Mode: 0o755})
	if f.Resize(0); write("/pods/b") != nil {
		t.Error("a write to a disk that has space again fails")
	}
	w.disk.GrowTree("/pods/tree", 1000, true)
	if n := w.disk.Names("/pods/tree"); n == 0 || n > 20 {
		t.Errorf("a tree has %d files of a disk of 20", n)
	}
	if err := write("/pods/c"); !err.Has(world.KindExhausted) {
		t.Errorf("a write to a disk without inodes: %v", err)
	}
	w.disk.opts.Fills = false
	w.mustCall(t, &world.WriteFile{Path: "/pods/c", Data: []byte("x"), Mode: 0o644})
}
