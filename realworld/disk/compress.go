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

// compress writes PATH.gz from a file and then removes the file. The compressed file appears under
// its name only when it is complete and durable.
func compress(ctx context.Context, path string) error {
	from, err := openRegular(path, os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		if _, statErr := os.Lstat(path + ".gz"); statErr == nil {
			return nil
		}
	}
	if err != nil {
		return err
	}
	defer from.Close()
	dir, base := filepath.Split(path)
	prefix := "." + base + ".gz.new-"
	if err := removeLeftovers(dir, prefix); err != nil {
		return err
	}
	to, err := os.CreateTemp(dir, prefix+"*")
	if err != nil {
		return err
	}
	defer os.Remove(to.Name()) // fails after the rename, as intended
	if err := errors.Join(gzipFile(ctx, to, from), to.Close()); err != nil {
		return err
	}
	if err := os.Rename(to.Name(), path+".gz"); err != nil {
		return err
	}
	if err := syncDir(dir); err != nil {
		return partialFailure(err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return partialFailure(err)
	}
	return nil
}

// gzipFile writes the compressed content of one file to another durably, and copies the mode.
func gzipFile(ctx context.Context, to, from *os.File) error {
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
	return errors.Join(w.Close(), to.Chmod(info.Mode().Perm()), syncFile(to))
}

// removeLeftovers removes the temporary file of an earlier attempt that was killed: it may be as
// large as a log.
func removeLeftovers(dir, prefix string) error {
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
