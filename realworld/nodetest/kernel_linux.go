package nodetest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"unsafe"

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

// removeBridge takes a bridge down and deletes it. By ioctl, because iproute2 need not be there.
func removeBridge(name string) error {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("removing bridge %s: %w", name, err)
	}
	defer func() { _ = unix.Close(socket) }() // nothing was written to it
	request, err := unix.NewIfreq(name)
	if err != nil {
		return fmt.Errorf("removing bridge %s: %w", name, err)
	}
	if err := unix.IoctlIfreq(socket, unix.SIOCGIFFLAGS, request); err != nil {
		if errors.Is(err, unix.ENODEV) {
			return nil
		}
		return fmt.Errorf("removing bridge %s: %w", name, err)
	}
	request.SetUint16(request.Uint16() &^ unix.IFF_UP)
	if err := unix.IoctlIfreq(socket, unix.SIOCSIFFLAGS, request); err != nil {
		return fmt.Errorf("taking bridge %s down: %w", name, err)
	}
	text, err := unix.BytePtrFromString(name)
	if err != nil {
		return fmt.Errorf("removing bridge %s: %w", name, err)
	}
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(socket), unix.SIOCBRDELBR,
		uintptr(unsafe.Pointer(text)))
	if errno != 0 && errno != unix.ENXIO {
		return fmt.Errorf("removing bridge %s: %w", name, errno)
	}
	return nil
}
