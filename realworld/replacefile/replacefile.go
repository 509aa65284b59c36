// Package replacefile replaces files of the agent's own: its record of panics, its kubeconfig and
// the serving certificate that it signs itself. Files of pods and of the machine are written by
// package disk, at the core's request, with modes and syncs of their own.
//
// The contract: readers see the old content or the new, and so does an agent after a crash of the
// machine. Which of both is not known then, since the directory is not forced to the disk.
package replacefile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Write replaces a file. Only its owner may read it. Directories that are missing are made with the
// given mode. The new file's name begins with a dot until it has its place.
func Write(path string, data []byte, dirMode fs.FileMode) error {
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
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
