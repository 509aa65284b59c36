// Package replacefile replaces files of the agent's own: its record of panics, its kubeconfig and
// the serving certificate that it signs itself. Files of pods and of the machine are written by
// package disk, at the core's request, with modes and syncs of their own.
//
// The contract: readers see the old content or the new, and so does an agent after a crash of the
// machine. Which of both is not known then, since the directory is not forced to the disk. A link
// stays, and what it refers to is replaced, so the directories must be those of an administrator. A
// file that is mounted by itself cannot be replaced: it is written, and may be torn by a crash.
package replacefile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Write replaces a file. Only its owner may read it. Directories that are missing are made with the
// given mode. The new file's name begins with a dot until it has its place.
func Write(path string, data []byte, dirMode fs.FileMode) error {
	return write(path, data, 0o600, dirMode)
}

// WritePublic replaces a file as Write does. Every user may read it.
func WritePublic(path string, data []byte, dirMode fs.FileMode) error {
	return write(path, data, 0o644, dirMode)
}

func write(path string, data []byte, mode, dirMode fs.FileMode) error {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, dirMode); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+".new-*")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = errors.Join(f.Chmod(mode), f.Sync())
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err == nil {
		return nil
	}
	err = errors.Join(err, os.Remove(f.Name()))
	if errors.Is(err, unix.EBUSY) { // the file is a mount point
		return os.WriteFile(path, data, mode)
	}
	return err
}
