package disk_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"seedlet.dev/world"
)

// Subvolumes of one btrfs share their space, and so are one file system, although each has a device
// number of its own.
func TestBtrfsSubvolumes(t *testing.T) {
	if _, err := exec.LookPath("mkfs.btrfs"); err != nil {
		t.Skip("mkfs.btrfs (Debian's btrfs-progs) is not installed")
	}
	h, dir := newHarness(t), t.TempDir()
	file, mountpoint := filepath.Join(dir, "image"), filepath.Join(dir, "btrfs")
	run := func(command ...string) {
		t.Helper()
		if out, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", command, err, out)
		}
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(file, 128<<20); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(mountpoint, 0o755); err != nil {
		t.Fatal(err)
	}
	run("mkfs.btrfs", "-q", file)
	run("mount", "-o", "loop", file, mountpoint)
	t.Cleanup(func() { run("umount", mountpoint) })
	run("btrfs", "subvolume", "create", filepath.Join(mountpoint, "images"))
	deviceOf := func(path string) uint64 {
		t.Helper()
		body := h.must(&world.MeasureFilesystem{Path: path})
		return body.(*world.FilesystemMeasured).Device
	}
	whole, subvolume := deviceOf(mountpoint), deviceOf(filepath.Join(mountpoint, "images"))
	if whole != subvolume || whole == deviceOf(dir) {
		t.Errorf("devices %x of the file system, %x of a subvolume, %x of the root", whole, subvolume,
			deviceOf(dir))
	}
}
