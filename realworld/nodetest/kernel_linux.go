package nodetest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// snapshotter chooses how containerd layers images in dir: overlayfs where the kernel and the
// file system below allow it, otherwise plain copies (as inside a container without volumes).
func snapshotter(dir string) string {
	probe := filepath.Join(dir, "overlay-probe")
	defer func() { _ = os.RemoveAll(probe) }() // the sweep takes it otherwise
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
	if err := detach(merged); err != nil {
		return "native"
	}
	return "overlayfs"
}

// detach unmounts one mount point; one that is gone already is success. It does not wait for
// those who still have it open.
func detach(path string) error {
	err := unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("unmounting %s: %w", path, err)
	}
	return nil
}
