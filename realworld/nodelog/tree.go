package nodelog

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// linksMax bounds the links that are followed one after the other.
const linksMax = 8

// tree is the directory of logs as a file system that one cannot leave. The directory need not be
// there, and may become another one.
type tree struct{ dir string }

// Open opens a regular file or a directory. A link is followed as long as it does not lead out of
// the tree; one with a whole path, as /var/log/containers has them, if that path is below the
// tree's own.
func (t tree) Open(name string) (fs.File, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	root, err := os.OpenRoot(t.dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	for range linksMax {
		// A pipe must not keep us waiting for who writes into it.
		f, err := root.OpenFile(filepath.FromSlash(name), os.O_RDONLY|unix.O_NONBLOCK, 0)
		if err == nil {
			return t.plain(f, name)
		}
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
			return nil, err
		}
		to, linkErr := root.Readlink(filepath.FromSlash(name))
		if linkErr != nil || !filepath.IsAbs(to) {
			return nil, outside(name)
		}
		below, relErr := filepath.Rel(t.dir, to)
		if relErr != nil || !filepath.IsLocal(below) {
			return nil, outside(name)
		}
		name = filepath.ToSlash(below)
	}
	return nil, outside(name)
}

// outside is the error for what the tree does not show. To a client it is not there.
func outside(name string) error {
	return &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
}

// plain lets only regular files and directories pass.
func (t tree) plain(f *os.File, name string) (fs.File, error) {
	info, err := f.Stat()
	if err == nil && !info.IsDir() && !info.Mode().IsRegular() {
		err = &fs.PathError{Op: "open", Path: name, Err: fs.ErrPermission}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
