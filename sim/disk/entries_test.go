package disk

import (
	"path"
	"slices"
	"testing"

	"seedlet.dev/world"
)

// The reported size of a file includes the bytes that its writer has to append before a read.
func TestEntriesCatchUpWithWriters(t *testing.T) {
	w := newWorld(1, nil)
	log := w.disk.Open("/logs/0.log")
	log.BeforeRead(func() { log.Append([]byte("x"), 10) })
	w.disk.Link("/logs/link", "0.log")
	for _, size := range []int64{10, 20} {
		want := []Entry{{Name: "0.log", Size: size}, {Name: "link", Target: "0.log"}}
		if got := slices.Collect(w.disk.Entries("/logs")); !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	}
	if got := slices.Collect(w.disk.Entries("/none")); got != nil {
		t.Errorf("entries %v of a missing directory", got)
	}
}

func TestExclusiveRename(t *testing.T) {
	w := newWorld(1, nil)
	w.disk.Write("/a", []byte("a"))
	w.disk.Write("/b", []byte("b"))
	move := &world.Rename{From: "/a", To: "/b", Exclusive: true}
	if _, err := w.Call(move); !err.Has(world.KindExists) {
		t.Errorf("over another: %v, want Exists", err)
	}
	move.To = "/c"
	if _, err := w.Call(move); err != nil {
		t.Error(err)
	}
	for file, want := range map[string]string{"/b": "b", "/c": "a"} {
		if got, _ := w.disk.Read(file); string(got) != want {
			t.Errorf("%s has %q, want %q", file, got, want)
		}
	}
}

// A file takes the size that its process sets; in a tmpfs the size is limited by the free space.
func TestResize(t *testing.T) {
	w := newWorld(1, nil)
	if _, err := w.Call(&world.MountMemory{Path: "/memory", BytesMax: 64 << 10}); err != nil {
		t.Fatal(err)
	}
	disk, memory := w.disk.Open("/disk/a"), w.disk.Open("/memory/a")
	for _, c := range []struct {
		file  *File
		to    int64
		usage int64 // usage of the file's directory
	}{
		{disk, 1 << 20, 1<<20 + blockSize}, {disk, 5000, 3 * blockSize}, {disk, 0, blockSize},
		{memory, 1 << 20, 64<<10 + blockSize}, {memory, 8192, 3 * blockSize},
		{memory, 1 << 20, 64<<10 + blockSize},
	} {
		c.file.Resize(c.to)
		if got := w.disk.Usage(path.Dir(c.file.path)); got != c.usage {
			t.Errorf("%s resized to %d: its directory uses %d, want %d", c.file.path, c.to, got,
				c.usage)
		}
	}
	if got := w.facts[len(w.facts)-1]; got != "FileSized /memory/a" {
		t.Errorf("the last fact is %q", got)
	}
}
