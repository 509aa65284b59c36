package disk

import (
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// namesLookedAtMax bounds how many names of a tree mountPoints looks at. The tree of a pod without
// volumes has a dozen; volumes have any number.
const namesLookedAtMax = 256

// mountPoints returns where something is mounted at or below a path without links, but for mounts
// below others, and those that another one has hidden. It asks the kernel about each name instead
// of reading the mount table, which has all mounts of the machine, four for each pod: the kernel
// writes it under a lock that every mount and unmount of the runtime waits for. Unknown are the
// mounts of a tree of too many names, of one that cannot be read, and all before Linux 5.6: only
// the mount table has them.
func mountPoints(path string) (points []string, known bool) {
	parent, err := os.OpenFile(filepath.Dir(path), unix.O_PATH, 0)
	if err != nil {
		return nil, errors.Is(err, unix.ENOENT)
	}
	defer parent.Close()
	s := mountSearch{namesLeft: namesLookedAtMax}
	err = s.look(parent, filepath.Base(path), openMax)
	return s.points, err == nil
}

// isMountPoint reports whether something is mounted at a path without links, if that is known
// without the mount table.
func isMountPoint(path string) (mounted, known bool) {
	parent, err := os.OpenFile(filepath.Dir(path), unix.O_PATH, 0)
	if err != nil {
		return false, errors.Is(err, unix.ENOENT)
	}
	defer parent.Close()
	fd, err := openInMount(parent, filepath.Base(path), unix.O_PATH)
	if err == nil {
		return false, unix.Close(fd) == nil
	}
	return errors.Is(err, unix.EXDEV), isReplaced(err)
}

// mountSearch is a search for mount points in one tree.
type mountSearch struct {
	points    []string
	namesLeft int
}

// look adds the mount points at and below a name, down to a depth. It enters no mount, whose server
// may not answer.
func (s *mountSearch) look(parent *os.File, name string, depthMax int) error {
	if s.namesLeft == 0 || depthMax == 0 {
		return errors.New("too many names")
	}
	s.namesLeft--
	fd, err := openInMount(parent, name, unix.O_RDONLY|unix.O_DIRECTORY)
	switch {
	case errors.Is(err, unix.EXDEV):
		s.points = append(s.points, joinPath(parent.Name(), name))
		return nil
	case isReplaced(err): // or it is no directory, or a link
		return nil
	case err != nil:
		return err
	}
	dir := os.NewFile(uintptr(fd), joinPath(parent.Name(), name))
	defer dir.Close()
	return forEachName(dir, func(child string) error { return s.look(dir, child, depthMax-1) })
}
