package disk

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"seedlet.dev/world"
)

// Permission bits of a group that owns a tree: for files, and in addition for directories.
const (
	groupRead      = 0o440
	groupReadWrite = 0o660
	groupDirectory = 0o2110 // setgid: new files in the directory get the group
)

// shareWithGroup gives a group access to a tree. It warns of files that cannot be changed.
func shareWithGroup(ctx context.Context, m *world.ShareWithGroup, warn func(string)) error {
	root, err := statChild(nil, m.Path)
	if err != nil {
		return err
	}
	s := sharer{gid: int(m.GID), bits: groupReadWrite}
	if m.ReadOnly {
		s.bits = groupRead
	}
	switch root.stat.Mode & unix.S_IFMT {
	case unix.S_IFLNK:
		return world.Errorf(world.KindInvalid, "", "%s is a link", m.Path)
	case unix.S_IFDIR:
		mode, _ := s.sharedMode(uint32(root.stat.Mode))
		if m.OnRootMismatch && int(root.stat.Gid) == s.gid && mode == uint32(root.stat.Mode) {
			return nil
		}
	}
	w := walker{ctx: ctx, visit: s.share}
	err = w.walkTree(m.Path)
	if s.refused > 0 {
		warn(fmt.Sprintf("%d files of %s cannot be shared with group %d, such as %s", s.refused, m.Path,
			s.gid, s.refusal))
	}
	if err == nil || s.shared == 0 || ctx.Err() != nil {
		return err // after a deadline the kind already means an unknown outcome
	}
	return partialFailure(err)
}

// sharer gives a group access to files.
type sharer struct {
	gid    int
	bits   uint32 // added to the modes
	shared int    // number of files
	// refused is the number of files that cannot be changed, and refusal why the first one cannot be.
	refused int
	refusal string
}

// sharedMode returns the mode that a file must have; false if it has none, such as a link.
func (s *sharer) sharedMode(mode uint32) (uint32, bool) {
	switch mode & unix.S_IFMT {
	case unix.S_IFLNK:
		return mode, false
	case unix.S_IFDIR:
		return mode | s.bits | groupDirectory, true
	}
	return mode | s.bits, true
}

// share gives the group access to one file. The file is opened first, without reading or writing,
// so that the checked file is the changed one even if a pod replaces it.
func (s *sharer) share(f entry) error {
	file, err := f.open(unix.O_PATH | unix.O_NOFOLLOW)
	if isReplaced(err) && f.parent != nil {
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close()
	if err := s.apply(file); isRefusal(err) {
		if s.refused++; s.refused == 1 {
			s.refusal = fmt.Sprintf("%q: %v", f.path(), err)
		}
		return nil
	} else if err != nil {
		return &os.PathError{Op: "share", Path: f.path(), Err: err}
	}
	s.shared++
	return nil
}

// isRefusal reports whether a file can never be changed, as an immutable one, or one of an NFS
// server with root_squash. It may still be readable for the pod.
func isRefusal(err error) bool {
	return errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.EROFS) ||
		errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EINVAL)
}

// apply changes the group, and then the mode, because changing the group may clear mode bits. The
// mode of a file that refuses the group stays: it would give more rights to another group.
func (s *sharer) apply(file *os.File) error {
	var stat unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &stat); err != nil {
		return err
	}
	regrouped := int(stat.Gid) != s.gid
	if regrouped {
		err := unix.Fchownat(int(file.Fd()), "", -1, s.gid, unix.AT_EMPTY_PATH)
		if err != nil {
			return err
		}
	}
	mode, ok := s.sharedMode(stat.Mode)
	if !ok || !regrouped && mode == stat.Mode {
		return nil
	}
	return unix.Chmod(procPath(file), mode&0o7777)
}
