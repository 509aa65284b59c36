package nodetest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// chooseSnapshotter returns the snapshotter for images in dir: overlayfs where the kernel and the
// file system allow it, otherwise native, which copies (as inside a container without volumes).
func chooseSnapshotter(dir string) string {
	probe := filepath.Join(dir, "overlay-probe")
	defer func() { _ = os.RemoveAll(probe) }() // otherwise the sweep removes it
	for _, name := range []string{"lower", "upper", "work", "merged"} {
		if err := os.MkdirAll(filepath.Join(probe, name), 0o700); err != nil {
			return "native"
		}
	}
	options := fmt.Sprintf("lowerdir=%[1]s/lower,upperdir=%[1]s/upper,workdir=%[1]s/work", probe)
	merged := filepath.Join(probe, "merged")
	if err := unix.Mount("overlay", merged, "overlay", 0, options); err != nil {
		return "native"
	}
	if err := Unmount(merged); err != nil {
		return "native"
	}
	return "overlayfs"
}

// Unmount unmounts one mount point lazily: it does not wait for processes that have it open. It
// succeeds if nothing is mounted there.
func Unmount(path string) error {
	err := unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("unmounting %s: %w", path, err)
	}
	return nil
}
