package disk

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"seedlet.dev/world"
)

// readTail reads the end of a file that a container may have created. It checks the type before it
// opens the file: opening a device may have side effects, and opening a pipe may block forever.
func readTail(m *world.ReadTail) (*world.TailRead, error) {
	f, err := openRegular(m.Path, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	start := max(0, info.Size()-m.BytesMax)
	data, err := io.ReadAll(io.NewSectionReader(f, start, m.BytesMax))
	if err != nil {
		return nil, err
	}
	return &world.TailRead{Data: data, Truncated: start > 0}, nil
}

// readInVolume reads a file in a volume. A container may change what it reads at any time, into a
// link, a pipe or an endless file: the kernel resolves the path once, within the volume, and only a
// regular file is opened for reading, and read up to the bound.
func readInVolume(m *world.ReadInVolume) (*world.FilesRead, error) {
	root, err := os.OpenFile(m.Root, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	handle, err := openInRoot(root, m.Path, unix.RESOLVE_IN_ROOT)
	if err != nil {
		return nil, err
	}
	f, err := reopenRegular(handle, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, m.BytesMax+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > m.BytesMax {
		return nil, world.Errorf(world.KindExhausted, "", "%s is larger than %d bytes", m.Path,
			m.BytesMax)
	}
	return &world.FilesRead{Files: []world.File{{Name: filepath.Base(m.Path), Data: data}}}, nil
}

// openRegular opens a regular file, and fails for any other type, including links.
func openRegular(path string, flags int) (*os.File, error) {
	handle, err := os.OpenFile(path, unix.O_PATH|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	return reopenRegular(handle, flags)
}

// openRegularChild is openRegular for reading a name in a directory.
func openRegularChild(dir *os.File, name string) (*os.File, error) {
	handle, err := openChild(dir, name, unix.O_PATH)
	if err != nil {
		return nil, err
	}
	return reopenRegular(handle, os.O_RDONLY)
}

// reopenRegular opens the file of a handle and closes the handle. It opens the file that was
// checked, even if its name has a pipe now.
func reopenRegular(handle *os.File, flags int) (*os.File, error) {
	defer handle.Close()
	info, err := handle.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, world.Errorf(world.KindInvalid, "", "%s is no regular file", handle.Name())
	}
	return os.OpenFile(procPath(handle), flags, 0)
}

// procPath returns a path to an open file, even if its name has another file now.
func procPath(f *os.File) string { return fmt.Sprintf("/proc/self/fd/%d", f.Fd()) }

func statPath(path string) (*world.PathInfo, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	switch mode := info.Mode(); {
	case mode.IsRegular():
		return &world.PathInfo{Kind: world.PathFile, Size: info.Size()}, nil
	case mode.IsDir():
		return &world.PathInfo{Kind: world.PathDirectory}, nil
	case mode&fs.ModeSocket != 0:
		return &world.PathInfo{Kind: world.PathSocket}, nil
	case mode&fs.ModeCharDevice != 0:
		return &world.PathInfo{Kind: world.PathCharDevice}, nil
	case mode&fs.ModeDevice != 0:
		return &world.PathInfo{Kind: world.PathBlockDevice}, nil
	}
	return &world.PathInfo{Kind: world.PathOther}, nil
}
