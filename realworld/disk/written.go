package disk

import (
	"bytes"
	"context"
	"io"
	"io/fs"
	"os"
	"path"
	"syscall"

	"golang.org/x/sys/unix"

	"seedlet.dev/world"
)

// isWritten reports whether a hidden directory has the desired content, modes and owners. If that
// cannot be determined it reports false, and the content is written again.
func (w *dirWriter) isWritten(ctx context.Context, hidden string) bool {
	if !timestamped.MatchString(hidden) {
		return false
	}
	dir, err := w.root.OpenRoot(hidden)
	if err != nil {
		return false
	}
	defer dir.Close()
	c := comparison{ctx: ctx, writer: w}
	for path, desired := range desiredTree(w.desired.Files) { //ordered: all have to be equal
		if !c.isEqualDir(dir, path, desired) {
			return false
		}
	}
	return true
}

// comparison compares a hidden directory with the desired files. Containers may have written it, so
// its cost is bounded by the desired files: it ends at the first name that should not be there, and
// opens and reads only regular files of the desired size.
type comparison struct {
	ctx    context.Context
	writer *dirWriter
}

// desiredTree returns the desired names in each desired directory, each with its file; a directory
// has none.
func desiredTree(files []world.DirFile) map[string]map[string]*world.DirFile {
	tree := map[string]map[string]*world.DirFile{}
	for _, dir := range directoriesOf(files) {
		tree[dir] = map[string]*world.DirFile{}
		if dir != "." {
			tree[path.Dir(dir)][path.Base(dir)] = nil
		}
	}
	for i := range files {
		tree[path.Dir(files[i].Path)][path.Base(files[i].Path)] = &files[i]
	}
	return tree
}

// isEqualDir reports whether a directory has the desired names, and nothing else.
func (c *comparison) isEqualDir(root *os.Root, path string,
	desired map[string]*world.DirFile) bool {
	dir, err := root.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
	if err != nil {
		return false
	}
	defer dir.Close()
	info, err := dir.Stat()
	if err != nil || !c.writer.hasOwner(info, nil) ||
		info.Mode()&(fs.ModePerm|fs.ModeSetgid) != c.writer.dirMode() {
		return false
	}
	found := 0
	err = forEachName(dir, func(name string) error {
		file, ok := desired[name]
		found++
		if !ok || c.ctx.Err() != nil || !c.isEqual(dir, name, file) {
			return fs.ErrInvalid
		}
		return nil
	})
	return err == nil && found == len(desired)
}

// isEqual reports whether a name in a directory is a directory or has the desired content.
func (c *comparison) isEqual(dir *os.File, name string, desired *world.DirFile) bool {
	if desired == nil {
		f, err := statChild(dir, name)
		return err == nil && f.stat.Mode&unix.S_IFMT == unix.S_IFDIR
	}
	file, err := openRegularChild(dir, name)
	if err != nil {
		return false
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil || info.Size() != int64(len(desired.Data)+len(desired.Text)) ||
		!c.writer.hasOwner(info, desired.UID) ||
		info.Mode().Perm() != c.writer.fileMode(desired.Mode) {
		return false
	}
	// The file may grow meanwhile.
	data, err := io.ReadAll(io.LimitReader(file, info.Size()+1))
	return err == nil && bytes.Equal(data, desired.Bytes())
}

// hasOwner reports whether a file has the desired owner, which is the agent's user without one, and
// the desired group, if there is one.
func (w *dirWriter) hasOwner(info fs.FileInfo, owner *int64) bool {
	uid := int64(os.Geteuid())
	if owner != nil {
		uid = *owner
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int64(stat.Uid) == uid &&
		(w.desired.GID == nil || int64(stat.Gid) == *w.desired.GID)
}
