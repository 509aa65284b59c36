package disk

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// openChild opens a name in a directory. It follows no link and enters no other mount (EXDEV).
func openChild(parent *os.File, name string, flags int) (*os.File, error) {
	fd, err := openInMount(parent, name, flags)
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) { // or a filter of calls denies it
		return openChildOfOldKernel(parent, name, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC)
	}
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: joinPath(parent.Name(), name), Err: err}
	}
	return os.NewFile(uintptr(fd), joinPath(parent.Name(), name)), nil
}

// openat2 is the system call. Tests replace it.
var openat2 = unix.Openat2

// openInMount is openChild for Linux 5.6 and newer (ENOSYS before), without the path in its errors.
func openInMount(parent *os.File, name string, flags int) (fd int, err error) {
	return openat2(int(parent.Fd()), name, &unix.OpenHow{
		Flags:   uint64(flags | unix.O_NOFOLLOW | unix.O_CLOEXEC),
		Resolve: unix.RESOLVE_NO_XDEV | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_BENEATH,
	})
}

// openChildOfOldKernel is openChild before Linux 5.6, which has no openat2. It compares the mounts
// of the two open files, so it cannot be deceived by a mount that is created meanwhile. Comparing
// devices would not find a bind mount of the same file system.
func openChildOfOldKernel(parent *os.File, name string, flags int) (*os.File, error) {
	path := joinPath(parent.Name(), name)
	fd, err := unix.Openat(int(parent.Fd()), name, flags, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	child := os.NewFile(uintptr(fd), path)
	above, err := mountID(parent)
	if err == nil {
		var own int
		if own, err = mountID(child); err == nil && own != above {
			err = &os.PathError{Op: "open", Path: path, Err: unix.EXDEV}
		}
	}
	if err != nil {
		child.Close()
		return nil, err
	}
	return child, nil
}

// mountID returns the ID of the mount that an open file is in. statx returns it only since Linux
// 5.8.
func mountID(file *os.File) (int, error) {
	info, err := os.Open(fmt.Sprintf("/proc/self/fdinfo/%d", file.Fd()))
	if err != nil {
		return 0, err
	}
	defer info.Close()
	lines := bufio.NewScanner(info)
	for lines.Scan() {
		if id, found := strings.CutPrefix(lines.Text(), "mnt_id:"); found {
			return strconv.Atoi(strings.TrimSpace(id))
		}
	}
	return 0, errors.Join(fmt.Errorf("%s has no mnt_id", info.Name()), lines.Err())
}
