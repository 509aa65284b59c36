package disk

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"seedlet.dev/world"
)

// The names that the kubelet's atomic writer uses. Programs that watch a volume know them, and so
// does a kubelet that takes over the node.
const (
	dataLink    = "..data"
	nextLink    = "..data_tmp"
	stampLayout = "..2006_01_02_15_04_05.000000000"
)

var stamped = regexp.MustCompile(`^\.\.\d{4}(_\d\d){5}\.\d+$`)

// dirWriter makes the content of a directory what it is to be. All that it does is within the
// directory: os.Root follows no link out of it.
type dirWriter struct {
	want    *world.WriteDir
	root    *os.Root
	visible []string // names in the directory that readers are to see, in order
}

// writeDir writes the files into a directory that no reader knows, swaps the link that all readers
// go through, and then makes and removes the names that they see. Killed in between, it leaves the
// old content or the new one, and something for the next to clean up.
func writeDir(ctx context.Context, m *world.WriteDir) error {
	visible, err := visibleNames(m.Files)
	if err != nil {
		return err
	}
	if err := makeDir(&world.MakeDir{Path: m.Path, Mode: 0o755}); err != nil {
		return err
	}
	root, err := os.OpenRoot(m.Path)
	if err != nil {
		return err
	}
	defer root.Close()
	w := dirWriter{want: m, root: root, visible: visible}
	if err := w.refuseOthers(); err != nil {
		return err
	}
	current, err := root.Readlink(dataLink)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if !w.isWritten(current) {
		if current, err = w.writeAnew(ctx); err != nil {
			return err
		}
	}
	if err := w.show(ctx, current); err != nil {
		return halfway(err)
	}
	return nil
}

// visibleNames are the first elements of the files' paths, in order. It fails for paths that
// cannot be, alone or together.
func visibleNames(files []world.DirFile) ([]string, error) {
	isFile := map[string]bool{}
	for _, f := range files {
		clean := f.Path != "." && path.Clean(f.Path) == f.Path && !path.IsAbs(f.Path)
		// Cleaned, a path can lead out at its beginning only; names that begin so are hidden.
		if !clean || strings.HasPrefix(f.Path, "..") || strings.ContainsRune(f.Path, 0) {
			return nil, world.Errorf(world.KindInvalid, "", "%q is no path of a file", f.Path)
		}
		if isFile[f.Path] {
			return nil, world.Errorf(world.KindInvalid, "", "%s is there twice", f.Path)
		}
		isFile[f.Path] = true
	}
	var names []string
	for _, f := range files {
		for dir := path.Dir(f.Path); dir != "."; dir = path.Dir(dir) {
			if isFile[dir] {
				return nil, world.Errorf(world.KindInvalid, "", "%s is a file and has %s below it",
					dir, f.Path)
			}
		}
		first, _, _ := strings.Cut(f.Path, "/")
		names = append(names, first)
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// refuseOthers fails if something else has a name that is to be a link.
func (w *dirWriter) refuseOthers() error {
	for _, name := range append([]string{dataLink, nextLink}, w.visible...) {
		target, err := w.root.Readlink(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil && !errors.Is(err, unix.EINVAL) {
			return err
		}
		swapped := name == dataLink || name == nextLink
		if err != nil || !swapped && target != throughData(name) {
			return world.Errorf(world.KindExists, "", "%s is in the way in %s", name, w.root.Name())
		}
	}
	return nil
}

// throughData is where the link of a visible name leads.
func throughData(name string) string { return dataLink + "/" + name }

// fileMode and dirMode are the modes of what is written, with the group's bits if it has one.
func (w *dirWriter) fileMode(mode uint32) fs.FileMode {
	if w.want.GID != nil {
		mode |= groupRead
	}
	return fs.FileMode(mode).Perm()
}

func (w *dirWriter) dirMode() fs.FileMode {
	if w.want.GID != nil {
		return 0o755 | fs.ModeSetgid
	}
	return 0o755
}

// isWritten reports whether a hidden directory has the content, modes and group that are wanted.
// Whatever keeps it from finding out, writing anew mends it.
func (w *dirWriter) isWritten(hidden string) bool {
	if !stamped.MatchString(hidden) {
		return false
	}
	dir, err := w.root.OpenRoot(hidden)
	if err != nil {
		return false
	}
	defer dir.Close()
	here := 0
	err = fs.WalkDir(dir.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		other := entry.IsDir() && info.Mode()&(fs.ModePerm|fs.ModeSetgid) != w.dirMode()
		if other || !w.isOwned(info) {
			return fmt.Errorf("%s is of another mode or group", name)
		}
		if !entry.IsDir() {
			here++
		}
		return nil
	})
	if err != nil || here != len(w.want.Files) {
		return false
	}
	for _, f := range w.want.Files {
		info, err := dir.Lstat(f.Path)
		if err != nil || !info.Mode().IsRegular() || info.Size() != int64(len(f.Data)) ||
			info.Mode().Perm() != w.fileMode(f.Mode) {
			return false
		}
		data, err := dir.ReadFile(f.Path)
		if err != nil || !bytes.Equal(data, f.Data) {
			return false
		}
	}
	return true
}

// isOwned reports whether the group is as it is wanted, if one is.
func (w *dirWriter) isOwned(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return w.want.GID == nil || ok && int64(stat.Gid) == *w.want.GID
}

// writeAnew writes the files into a new hidden directory and swaps the link. It removes what it
// has made if it fails before that.
func (w *dirWriter) writeAnew(ctx context.Context) (hidden string, err error) {
	if hidden, err = w.makeHidden(); err != nil {
		return "", err
	}
	dir, err := w.root.OpenRoot(hidden)
	if err == nil {
		err = errors.Join(w.fill(ctx, dir), dir.Close())
	}
	if err == nil {
		err = w.swap(hidden)
	}
	if err != nil {
		_ = w.root.RemoveAll(hidden) // else the next write does
		return "", err
	}
	return hidden, nil
}

// makeHidden makes a hidden directory with a name that is not taken.
func (w *dirWriter) makeHidden() (string, error) {
	for now := time.Now().UTC(); ; now = now.Add(1) {
		hidden := now.Format(stampLayout)
		err := w.root.Mkdir(hidden, 0o755)
		if !errors.Is(err, fs.ErrExist) {
			return hidden, err
		}
	}
}

// fill writes the files into an empty directory, forced to the disk.
func (w *dirWriter) fill(ctx context.Context, dir *os.Root) error {
	dirs := []string{"."}
	for _, f := range w.want.Files {
		if err := ctx.Err(); err != nil {
			return err
		}
		if parent := path.Dir(f.Path); !slices.Contains(dirs, parent) {
			if err := dir.MkdirAll(parent, 0o755); err != nil {
				return err
			}
			for ; !slices.Contains(dirs, parent); parent = path.Dir(parent) {
				dirs = append(dirs, parent)
			}
		}
		file, err := dir.OpenFile(f.Path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return err
		}
		_, err = file.Write(f.Data)
		if err = errors.Join(err, w.finish(file, w.fileMode(f.Mode))); err != nil {
			return err
		}
	}
	for _, name := range dirs {
		file, err := dir.Open(name)
		if err != nil {
			return err
		}
		if err := w.finish(file, w.dirMode()); err != nil {
			return err
		}
	}
	return nil
}

// finish gives an open file its group and its mode, forces it to the disk and closes it.
func (w *dirWriter) finish(file *os.File, mode fs.FileMode) error {
	var err error
	if w.want.GID != nil {
		err = file.Chown(-1, int(*w.want.GID))
	}
	return errors.Join(err, file.Chmod(mode), file.Sync(), file.Close())
}

// swap makes the link lead to a hidden directory, in one instant.
func (w *dirWriter) swap(hidden string) error {
	err := w.root.Remove(nextLink)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := w.root.Symlink(hidden, nextLink); err != nil {
		return err
	}
	if err := syncDir(w.root.Name()); err != nil {
		return err
	}
	return w.root.Rename(nextLink, dataLink)
}

// show makes the names that readers are to see, and removes those that they are to see no more
// and what an older write has left.
func (w *dirWriter) show(ctx context.Context, current string) error {
	if err := w.shareRoot(); err != nil {
		return err
	}
	for _, name := range w.visible {
		err := w.root.Symlink(throughData(name), name)
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	if err := syncDir(w.root.Name()); err != nil {
		return fmt.Errorf("forcing %s to the disk: %w", w.root.Name(), err)
	}
	entries, err := readDir(w.root.Name())
	if err != nil {
		return err
	}
	for _, entry := range entries {
		name := entry.Name()
		switch {
		case entry.IsDir() && stamped.MatchString(name) && name != current:
			err = removeTree(ctx, filepath.Join(w.root.Name(), name))
		case entry.Type()&fs.ModeSymlink != 0 && w.isLeft(name):
			err = w.root.Remove(name)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// shareRoot gives the directory itself to the group.
func (w *dirWriter) shareRoot() error {
	if w.want.GID == nil {
		return nil
	}
	dir, err := w.root.Open(".")
	if err != nil {
		return err
	}
	s := sharer{gid: int(*w.want.GID), bits: groupRead}
	return errors.Join(s.give(dir), dir.Close())
}

// isLeft reports whether a link is one that an older write made and that is not wanted now.
func (w *dirWriter) isLeft(name string) bool {
	if name == nextLink {
		return true
	}
	target, err := w.root.Readlink(name)
	if err != nil || target != throughData(name) {
		return false
	}
	_, wanted := slices.BinarySearch(w.visible, name)
	return !wanted
}
