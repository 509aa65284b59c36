package disk

import (
	"os"
	"path/filepath"
	"testing"

	"seedlet.dev/world"
)

// The size of a device is counted in sectors of 512 bytes. One that has gone, and what is no size,
// are errors.
func TestSizeOfDevice(t *testing.T) {
	sys := t.TempDir()
	for number, size := range map[string]string{ //ordered: each by itself
		"8:0": "2097152\n", "8:16": "many\n", "8:32": "-1\n", "8:48": "9223372036854775807\n"} {
		if err := os.MkdirAll(filepath.Join(sys, "dev/block", number), 0o755); err != nil {
			t.Fatal(err)
		}
		at := filepath.Join(sys, "dev/block", number, "size")
		if err := os.WriteFile(at, []byte(size), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := sizeOf("8:0", sys); err != nil || got.CapacityBytes != 1<<30 {
		t.Errorf("%+v, %v", got, err)
	}
	for _, number := range []string{"8:16", "8:32", "8:48"} {
		if got, err := sizeOf(number, sys); err == nil {
			t.Errorf("the size of %s is %+v", number, got)
		}
	}
	_, err := sizeOf("8:64", sys)
	if is, ok := err.(*world.Error); !ok || !is.Has(world.KindNotFound) {
		t.Errorf("a device that has gone: %v", err)
	}
	if got, err := measureDevice(sys, sys); err == nil {
		t.Errorf("the size of a directory is %+v", got)
	}
}
