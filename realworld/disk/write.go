package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"seedlet.dev/world"
)

// makeDir creates a directory and its parents. The new directory has the requested mode, whatever
// the umask; an existing directory is unchanged.
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
		return partialFailure(err)
	}
	return nil
}

// makeFile creates an empty file with the requested mode, whatever the umask; an existing file is
// unchanged.
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
		return partialFailure(err)
	}
	return nil
}

// writeFile replaces a file atomically for readers and for the disk: it writes and syncs a new file
// beside the old one, renames it, and syncs the directory. The new file's name begins with a dot,
// so that readers of a configuration directory ignore it if a crash leaves it behind. A volatile
// file is not synced, because that would take as long as all other operations of a pod here.
func writeFile(m *world.WriteFile) error {
	dir, base := filepath.Split(m.Path)
	f, err := os.CreateTemp(dir, temporaryPrefix(base)+"*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // fails after the rename, as intended
	if err := writeContent(f, m); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), m.Path); err != nil || m.Volatile {
		return err
	}
	if err := syncDir(dir); err != nil {
		return partialFailure(fmt.Errorf("forcing %s to the disk: %w", dir, err))
	}
	return nil
}

// temporaryPrefix returns the beginning of the name of a file or link until it gets its place. Of a
// long name a part is enough, so that there is room for a random number.
func temporaryPrefix(name string) string {
	const randomBytes = 20 // of a uint64
	const affixes = len(".") + len(".new-") + randomBytes
	return "." + name[:min(len(name), world.NameBytesMax-affixes)] + ".new-"
}

// writeContent writes the content and the mode of a new file and closes it.
func writeContent(f *os.File, m *world.WriteFile) error {
	_, err := f.Write(m.Data)
	if err == nil {
		err = f.Chmod(fs.FileMode(m.Mode).Perm())
	}
	if err == nil && !m.Volatile {
		err = syncFile(f)
	}
	return errors.Join(err, f.Close())
}

// syncFile forces a file to the disk. Every sync of this package goes through this variable: what a
// sync costs depends on the disk, so tests count them.
var syncFile = (*os.File).Sync

func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(syncFile(dir), dir.Close())
}
