package disk

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// The text of a name is held until it is visited, and the array of all names of a directory until
// the last one is: a directory below may be read for a long time meanwhile.
func TestNamesThatAreHeld(t *testing.T) {
	dir := t.TempDir()
	for i := range 3 {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint("file", i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	w := walker{ctx: t.Context(), visit: func(entry) error { return nil }}
	defer w.close()
	root, err := statChild(nil, dir)
	if err != nil {
		t.Fatal(err)
	}
	w.mount = root.stat.Mnt_id
	if err := w.enter(root); err != nil {
		t.Fatal(err)
	}
	own := w.held
	if err := w.step(); err != nil { // reads the names
		t.Fatal(err)
	}
	array := w.levels[0].names
	for i := range array {
		if err := w.step(); err != nil {
			t.Fatal(err)
		}
		want := own + (len(array)-1-i)*len("file0") + len(array)*nameBytes
		if i == len(array)-1 {
			want = own
		}
		if array[i] != "" || w.held != want {
			t.Errorf("after %d names, %d bytes are held, want %d; the array has %q", i+1, w.held, want,
				array[i])
		}
	}
	if w.levels[0].names != nil {
		t.Error("the array is held")
	}
}
