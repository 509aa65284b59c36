package disk

import (
	"compress/gzip"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// compress makes PATH.gz from a file and then removes the file. The compressed one appears under
// its name only when it is whole and on the disk.
func compress(ctx context.Context, path string) error {
	from, err := openRegular(path, os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		if _, done := os.Lstat(path + ".gz"); done == nil {
			return nil
		}
	}
	if err != nil {
		return err
	}
	defer from.Close()
	dir, base := filepath.Split(path)
	prefix := "." + base + ".gz.new-"
	if err := sweep(dir, prefix); err != nil {
		return err
	}
	to, err := os.CreateTemp(dir, prefix+"*")
	if err != nil {
		return err
	}
	defer os.Remove(to.Name()) // fails once it has been renamed, as it should
	if err := errors.Join(zip(ctx, to, from), to.Close()); err != nil {
		return err
	}
	if err := os.Rename(to.Name(), path+".gz"); err != nil {
		return err
	}
	if err := syncDir(dir); err != nil {
		return halfway(err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return halfway(err)
	}
	return nil
}

// zip writes the content of one file to another, compressed and forced to the disk, and gives it
// the mode of the first.
func zip(ctx context.Context, to, from *os.File) error {
	info, err := from.Stat()
	if err != nil {
		return err
	}
	w := gzip.NewWriter(to)
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		_, err := io.CopyN(w, from, 1<<20)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
	}
	return errors.Join(w.Close(), to.Chmod(info.Mode().Perm()), to.Sync())
}

// sweep removes what an earlier attempt, killed in the middle, has left: it is as large as a log.
func sweep(dir, prefix string) error {
	entries, err := readDir(filepath.Clean(dir))
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), prefix) && entry.Type().IsRegular() {
			err := os.Remove(filepath.Join(dir, entry.Name()))
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}
