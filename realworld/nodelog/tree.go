package nodelog

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// linksMax bounds the symbolic links that are followed one after the other.
const linksMax = 8

// logTree is the directory of logs as a file system that no path leads out of. The directory need
// not exist, and may be replaced.
type logTree struct{ dir string }

// Open opens a regular file or a directory. A symbolic link is followed if its target is inside the
// tree. An absolute target, as the links in /var/log/containers have, must be below the tree's own
// path.
func (t logTree) Open(name string) (fs.File, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	root, err := os.OpenRoot(t.dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	for range linksMax {
		// Without O_NONBLOCK, opening a named pipe would wait for a writer.
		f, err := root.OpenFile(filepath.FromSlash(name), os.O_RDONLY|unix.O_NONBLOCK, 0)
		if err == nil {
			return t.checkType(f, name)
		}
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
			return nil, err
		}
		to, linkErr := root.Readlink(filepath.FromSlash(name))
		if linkErr != nil || !filepath.IsAbs(to) {
			return nil, notFound(name)
		}
		below, relErr := filepath.Rel(t.dir, to)
		if relErr != nil || !filepath.IsLocal(below) {
			return nil, notFound(name)
		}
		name = filepath.ToSlash(below)
	}
	return nil, notFound(name)
}

// notFound returns the error for a path that the tree does not serve: to a client it does not
// exist.
func notFound(name string) error {
	return &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
}

// checkType closes a file that is neither a regular file nor a directory, and returns an error.
func (t logTree) checkType(f *os.File, name string) (fs.File, error) {
	info, err := f.Stat()
	if err == nil && !info.IsDir() && !info.Mode().IsRegular() {
		err = &fs.PathError{Op: "open", Path: name, Err: fs.ErrPermission}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
