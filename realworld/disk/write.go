package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"seedlet.dev/world"
)

// makeDir makes a directory and its parents. The new directory has the mode that was asked for,
// whatever the umask; one that exists is left as it is.
func makeDir(m *world.MakeDir) error {
	if info, err := os.Stat(m.Path); err == nil {
		if !info.IsDir() {
			return world.Errorf(world.KindExists, "", "%s exists and is no directory", m.Path)
		}
		return nil
	}
	mode := fs.FileMode(m.Mode).Perm()
	if err := os.MkdirAll(m.Path, mode); err != nil {
		return err
	}
	if err := os.Chmod(m.Path, mode); err != nil {
		return halfway(err)
	}
	return nil
}

// makeFile makes an empty file with the mode that was asked for, whatever the umask; one that
// exists is left as it is.
func makeFile(m *world.MakeFile) error {
	mode := fs.FileMode(m.Mode).Perm()
	f, err := os.OpenFile(m.Path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if errors.Is(err, fs.ErrExist) {
		if info, err := os.Stat(m.Path); err != nil || !info.Mode().IsRegular() {
			return world.Errorf(world.KindExists, "", "%s exists and is no file", m.Path)
		}
		return nil
	}
	if err != nil {
		return err
	}
	if err := errors.Join(f.Chmod(mode), f.Close()); err != nil {
		return halfway(err)
	}
	return nil
}

// writeFile replaces a file in the one way that is atomic for readers and for the disk: a new
// file beside it, forced to the disk, renamed over it, and the directory forced to the disk too.
// The new file's name begins with a dot, so that no reader of a configuration directory takes
// what a crash leaves behind for a file of its own. A volatile one is not forced: that would take
// as long as all else that a pod needs here.
func writeFile(m *world.WriteFile) error {
	dir, base := filepath.Split(m.Path)
	f, err := os.CreateTemp(dir, "."+base+".new-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // fails once it has been renamed, as it should
	if err := fill(f, m); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), m.Path); err != nil || m.Volatile {
		return err
	}
	if err := syncDir(dir); err != nil {
		return halfway(fmt.Errorf("forcing %s to the disk: %w", dir, err))
	}
	return nil
}

// fill writes the content and the mode of a new file and closes it.
func fill(f *os.File, m *world.WriteFile) error {
	_, err := f.Write(m.Data)
	if err == nil {
		err = f.Chmod(fs.FileMode(m.Mode).Perm())
	}
	if err == nil && !m.Volatile {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
