package disk

import (
	"context"
	"os"

	"golang.org/x/sys/unix"

	"seedlet.dev/world"
)

// What a group that owns a tree may do, in permission bits: of files, and of directories as well.
const (
	groupRead      = 0o440
	groupReadWrite = 0o660
	groupEnter     = 0o2110 // what is made in a directory is the group's too
)

// shareWithGroup gives a tree to a group.
func shareWithGroup(ctx context.Context, m *world.ShareWithGroup) error {
	root, err := look(nil, m.Path)
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
		mode, _ := s.wanted(uint32(root.stat.Mode))
		if m.OnRootMismatch && int(root.stat.Gid) == s.gid && mode == uint32(root.stat.Mode) {
			return nil
		}
	}
	w := walk{ctx: ctx, visit: s.share}
	err = w.tree(m.Path)
	if err == nil || s.shared == 0 || ctx.Err() != nil {
		return err // of a deadline that has passed the kind says that the outcome is unknown
	}
	return halfway(err)
}

// sharer gives files to a group.
type sharer struct {
	gid    int
	bits   uint32 // that modes gain
	shared int    // files so far
}

// wanted is the mode that one has to become; false if it has none, as a link.
func (s *sharer) wanted(mode uint32) (uint32, bool) {
	switch mode & unix.S_IFMT {
	case unix.S_IFLNK:
		return mode, false
	case unix.S_IFDIR:
		return mode | s.bits | groupEnter, true
	}
	return mode | s.bits, true
}

// share gives one file to the group. It is opened first, without reading or writing, so that what
// is looked at is what is changed, whatever a pod puts in its place.
func (s *sharer) share(f found) error {
	file, err := f.open(unix.O_PATH | unix.O_NOFOLLOW)
	if changed(err) && f.parent != nil {
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close()
	if err := s.give(file); err != nil {
		return &os.PathError{Op: "share", Path: f.path(), Err: err}
	}
	s.shared++
	return nil
}

// give changes the group, and then the mode, as changing the group may take bits from it.
func (s *sharer) give(file *os.File) error {
	var stat unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &stat); err != nil {
		return err
	}
	given := int(stat.Gid) != s.gid
	if given {
		err := unix.Fchownat(int(file.Fd()), "", -1, s.gid, unix.AT_EMPTY_PATH)
		if err != nil {
			return err
		}
	}
	mode, ok := s.wanted(stat.Mode)
	if !ok || !given && mode == stat.Mode {
		return nil
	}
	return unix.Chmod(procPath(file), mode&0o7777)
}
