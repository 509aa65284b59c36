package disk

import (
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"seedlet.dev/world"
)

// readTail reads the end of a file that a container may have put there. It looks before it opens:
// opening a device may set it going, and opening a pipe may wait for ever.
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
	begin := max(0, info.Size()-m.BytesMax)
	data, err := io.ReadAll(io.NewSectionReader(f, begin, m.BytesMax))
	if err != nil {
		return nil, err
	}
	return &world.TailRead{Data: data, Truncated: begin > 0}, nil
}

// openRegular opens a regular file, and fails for anything else, a link included.
func openRegular(path string, flags int) (*os.File, error) {
	at, err := os.OpenFile(path, unix.O_PATH|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	defer at.Close()
	info, err := at.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, world.Errorf(world.KindInvalid, "", "%s is no regular file", path)
	}
	return os.OpenFile(procPath(at), flags, 0)
}

// procPath is a path that leads to an open file, wherever its name leads by now.
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
