// Package replacefile replaces files of the agent's own: its record of panics, its kubeconfig and
// the serving certificate that it signs itself. Files of pods and of the machine are written by
// package disk, at the core's request, with modes and syncs of their own.
//
// The contract: readers see the old content or the new, and so does an agent after a crash of the
// machine. Which of both is not known then, since the directory is not forced to the disk. A link
// is replaced, but by WriteThrough. A file that is mounted by itself cannot be replaced: it is
// written, and may be torn by a crash.
package replacefile

import (
	"errors"
	"fmt"
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

// WriteThrough replaces a file as Write does. If it is a link, that stays, and the file to which it
// refers is replaced, or made: the directories must be those of an administrator. What is no
// regular file, such as a device, is refused.
func WriteThrough(path string, data []byte, dirMode fs.FileMode) error {
	target, err := resolve(path)
	if err != nil {
		return err
	}
	return write(target, data, 0o600, dirMode)
}

// linksMax is how many links are followed, as by the kernel.
const linksMax = 40

// resolve returns the file to which a path refers, which need not exist.
func resolve(path string) (string, error) {
	for range linksMax {
		info, err := os.Lstat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist), err == nil && info.Mode().IsRegular():
			return path, nil
		case err != nil:
			return "", err
		case info.Mode()&fs.ModeSymlink == 0:
			return "", fmt.Errorf("%s is no regular file: %v", path, info.Mode().Type())
		}
		link, err := os.Readlink(path)
		if err != nil {
			return "", err
		}
		if !filepath.IsAbs(link) {
			dir, err := filepath.EvalSymlinks(filepath.Dir(path))
			if err != nil {
				return "", err
			}
			link = filepath.Join(dir, link)
		}
		path = link
	}
	return "", fmt.Errorf("%s: %w", path, unix.ELOOP)
}

func write(path string, data []byte, mode, dirMode fs.FileMode) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, dirMode); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+".new-*")
	if err != nil {
		return err
	}
	err = fill(f, data, mode)
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err == nil {
		return nil
	}
	err = errors.Join(err, os.Remove(f.Name()))
	if !errors.Is(err, unix.EBUSY) { // the file is a mount point
		return err
	}
	mounted, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	return fill(mounted, data, mode)
}

// fill gives an open file its mode and then its content, and closes it.
func fill(f *os.File, data []byte, mode fs.FileMode) error {
	err := f.Chmod(mode)
	if err == nil {
		_, err = f.Write(data)
	}
	return errors.Join(err, f.Sync(), f.Close())
}
