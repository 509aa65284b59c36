package host

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestDataDirs(t *testing.T) {
	top := t.TempDir()
	root, logs := filepath.Join(top, "kubelet"), filepath.Join(top, "log", "pods")
	t.Cleanup(func() { // of the first start; a second one adds none
		if err := unix.Unmount(root, 0); err != nil && err != unix.EINVAL {
			t.Error(err)
		}
	})
	kept := filepath.Join(root, "plugins")
	if err := os.MkdirAll(kept, 0o700); err != nil {
		t.Fatal(err)
	}
	for start := range 2 {
		if err := MakeDataDirs(root, logs); err != nil {
			t.Fatal(err)
		}
		for path, want := range map[string]fs.FileMode{
			logs: 0o750, kept: 0o700, filepath.Join(root, "plugins_registry"): 0o750,
			filepath.Join(root, "device-plugins"): 0o750, filepath.Join(root, "pods"): 0o750,
			filepath.Join(root, "pod-resources"): 0o750, filepath.Join(root, "checkpoints"): 0o700,
		} {
			info, err := os.Stat(path)
			if err != nil || !info.IsDir() || info.Mode().Perm() != want {
				t.Errorf("start %d: %s: %v, %v, want mode %v", start, path, info, err, want)
			}
		}
		mount, err := mountOf(root)
		if err != nil || !isShared(mount) {
			t.Errorf("start %d: mounts below the root directory do not propagate: %+v, %v", start, mount,
				err)
		}
	}
}

func TestDataDirThatIsAFile(t *testing.T) {
	top := t.TempDir()
	writeFiles(t, top, map[string]string{"kubelet": "x"})
	if err := MakeDataDirs(filepath.Join(top, "kubelet"), filepath.Join(top, "logs")); err == nil {
		t.Error("no error")
	}
}
