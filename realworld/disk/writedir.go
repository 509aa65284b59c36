package disk

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"seedlet.dev/world"
)

// The names of the kubelet's atomic writer. Programs that watch a volume rely on them, as does a
// kubelet that takes over the node.
const (
	dataLink        = "..data"
	nextLink        = "..data_tmp"
	timestampLayout = "..2006_01_02_15_04_05.000000000"
)

var timestamped = regexp.MustCompile(`^\.\.\d{4}(_\d\d){5}\.\d+$`)

// dirWriter writes the desired content of a directory. It stays within the directory: os.Root
// follows no link out of it.
//
// Containers may be able to write into the directory. So what is there is compared with what is
// desired, and never read further than that (written.go).
//
// Nothing is synced: a ConfigMap may have tens of thousands of keys, and after a power loss no
// container runs before its volumes were compared and written again. The kubelet does not sync them
// either.
type dirWriter struct {
	desired *world.WriteDir
	root    *os.Root
	visible []string // names that readers see, in order
}

// writeDir writes the files into a hidden directory, swaps the link that all readers go through,
// and then creates and removes the visible names. If it is killed in between, the directory has the
// old or the new content, and leftovers that the next write removes.
func writeDir(ctx context.Context, m *world.WriteDir) error {
	visible, err := visibleNames(m.Files)
	if err != nil {
		return err
	}
	if err := makeDir(&world.MakeDir{Path: m.Path, Mode: world.WriteDirMode}); err != nil {
		return err
	}
	root, err := os.OpenRoot(m.Path)
	if err != nil {
		return err
	}
	defer root.Close()
	w := dirWriter{desired: m, root: root, visible: visible}
	if err := w.checkConflicts(); err != nil {
		return err
	}
	current, err := root.Readlink(dataLink)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if !w.isWritten(ctx, current) {
		if current, err = w.writeNew(ctx); err != nil {
			return err
		}
	}
	if err := w.publish(ctx, current); err != nil {
		return partialFailure(err)
	}
	return nil
}

// visibleNames returns the first elements of the files' paths, in order. It fails for paths that
// are invalid, alone or together.
func visibleNames(files []world.DirFile) ([]string, error) {
	isFile := map[string]bool{}
	for _, f := range files {
		clean := f.Path != "." && path.Clean(f.Path) == f.Path && !path.IsAbs(f.Path)
		// A cleaned path can only escape at its beginning; names that begin with dots are hidden.
		if !clean || strings.HasPrefix(f.Path, "..") || strings.ContainsRune(f.Path, 0) {
			return nil, world.Errorf(world.KindInvalid, "", "%q is no path of a file", f.Path)
		}
		if len(f.Path) >= unix.PathMax { // no process could open the file
			return nil, world.Errorf(world.KindInvalid, "", "%q... is longer than %d bytes",
				f.Path[:100], unix.PathMax)
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

// checkConflicts returns an error if one of the data links is something else.
func (w *dirWriter) checkConflicts() error {
	for _, name := range []string{dataLink, nextLink} {
		_, err := w.root.Readlink(name)
		if errors.Is(err, unix.EINVAL) {
			return world.Errorf(world.KindExists, "", "%s is in the way in %s", name, w.root.Name())
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// visibleTarget returns the target of a visible name's link.
func visibleTarget(name string) string { return dataLink + "/" + name }

// fileMode and dirMode return the modes of written files, with the bits for the group if there is
// one.
func (w *dirWriter) fileMode(mode uint32) fs.FileMode {
	if w.desired.GID != nil {
		mode |= groupRead
	}
	return fs.FileMode(mode).Perm()
}

func (w *dirWriter) dirMode() fs.FileMode {
	if w.desired.GID != nil {
		return 0o755 | fs.ModeSetgid
	}
	return 0o755
}

// unchangedID is the ID of a user or group that chown(2) leaves as it is.
const unchangedID = -1

// cleanupTimeMax bounds the removal of a new directory after a failure.
const cleanupTimeMax = 10 * time.Second

// writeNew writes the files into a new hidden directory and swaps the link. If it fails before the
// swap, it removes the directory.
func (w *dirWriter) writeNew(ctx context.Context) (hidden string, err error) {
	if hidden, err = w.makeHidden(); err != nil {
		return "", err
	}
	dir, err := w.root.OpenRoot(hidden)
	if err == nil {
		err = errors.Join(w.writeFiles(ctx, dir), dir.Close())
	}
	if err == nil {
		err = w.swapDataLink(hidden)
	}
	if err != nil {
		// The deadline may have passed. If this fails, the next write removes the directory.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeMax)
		defer cancel()
		_ = removeTree(ctx, filepath.Join(w.root.Name(), hidden))
		return "", err
	}
	return hidden, nil
}

// makeHidden creates a hidden directory with an unused name.
func (w *dirWriter) makeHidden() (string, error) {
	for now := time.Now().UTC(); ; now = now.Add(1) {
		hidden := now.Format(timestampLayout)
		err := w.root.Mkdir(hidden, 0o755)
		if !errors.Is(err, fs.ErrExist) {
			return hidden, err
		}
	}
}

// writeFiles writes the files into an empty directory.
func (w *dirWriter) writeFiles(ctx context.Context, dir *os.Root) error {
	dirs := directoriesOf(w.desired.Files)
	for _, name := range dirs[1:] {
		if err := dir.Mkdir(name, 0o755); err != nil {
			return err
		}
	}
	for _, f := range w.desired.Files {
		if err := ctx.Err(); err != nil {
			return err
		}
		file, err := dir.OpenFile(f.Path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return err
		}
		_, err = file.Write(f.Bytes())
		if err = errors.Join(err, w.finishFile(file, f.UID, w.fileMode(f.Mode))); err != nil {
			return err
		}
	}
	for _, name := range dirs {
		file, err := dir.Open(name)
		if err != nil {
			return err
		}
		if err := w.finishFile(file, nil, w.dirMode()); err != nil {
			return err
		}
	}
	return nil
}

// directoriesOf returns the directories of files, from the root ".", parents first.
func directoriesOf(files []world.DirFile) []string {
	dirs, known := []string{"."}, map[string]bool{".": true}
	for _, f := range files {
		for dir := path.Dir(f.Path); !known[dir]; dir = path.Dir(dir) {
			known[dir] = true
			dirs = append(dirs, dir)
		}
	}
	slices.Sort(dirs[1:]) // a parent is a prefix of its children
	return dirs
}

// finishFile sets the owner, the group and the mode of an open file, and closes it.
func (w *dirWriter) finishFile(file *os.File, owner *int64, mode fs.FileMode) error {
	uid, gid := unchangedID, unchangedID
	if owner != nil {
		uid = int(*owner)
	}
	if w.desired.GID != nil {
		gid = int(*w.desired.GID)
	}
	var err error
	if uid != unchangedID || gid != unchangedID {
		err = file.Chown(uid, gid)
	}
	return errors.Join(err, file.Chmod(mode), file.Close())
}

// swapDataLink points the data link at a hidden directory, atomically.
func (w *dirWriter) swapDataLink(hidden string) error {
	err := w.root.Remove(nextLink)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := w.root.Symlink(hidden, nextLink); err != nil {
		return err
	}
	return w.root.Rename(nextLink, dataLink)
}

// publish creates the visible names that are missing, and removes obsolete names and the leftovers
// of older writes.
func (w *dirWriter) publish(ctx context.Context, current string) error {
	if err := w.shareRoot(); err != nil {
		return err
	}
	for _, name := range w.visible {
		// What else stands there stays, as with the kubelet: it may be the mount point of a volume
		// that is nested in this one.
		err := w.root.Symlink(visibleTarget(name), name)
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return w.removeObsolete(ctx, current)
}

// removeObsolete removes obsolete names and the leftovers of older writes. It looks at a bounded
// number of names: a container may have created any number of its own, and a leftover does no harm.
func (w *dirWriter) removeObsolete(ctx context.Context, current string) error {
	dir, err := os.Open(w.root.Name())
	if err != nil {
		return err
	}
	defer dir.Close()
	entries, err := dir.ReadDir(entriesMax)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	for _, entry := range entries {
		name := entry.Name()
		switch {
		case entry.IsDir() && timestamped.MatchString(name) && name != current:
			err = removeTree(ctx, filepath.Join(w.root.Name(), name))
		case entry.Type()&fs.ModeSymlink != 0 && w.isObsolete(name):
			err = w.root.Remove(name)
		default:
			err = ctx.Err()
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// shareRoot gives the group access to the directory itself.
func (w *dirWriter) shareRoot() error {
	if w.desired.GID == nil {
		return nil
	}
	dir, err := w.root.Open(".")
	if err != nil {
		return err
	}
	s := sharer{gid: int(*w.desired.GID), bits: groupRead}
	return errors.Join(s.apply(dir), dir.Close())
}

// isObsolete reports whether a link was created by an older write and is not desired now.
func (w *dirWriter) isObsolete(name string) bool {
	if name == nextLink {
		return true
	}
	target, err := w.root.Readlink(name)
	if err != nil || target != visibleTarget(name) {
		return false
	}
	_, desired := slices.BinarySearch(w.visible, name)
	return !desired
}
