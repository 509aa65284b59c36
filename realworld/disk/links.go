package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"

	"seedlet.dev/world"
)

// makeLink creates a link or replaces one. The path always exists for readers: the new link is
// created beside the old one and renamed.
func makeLink(m *world.MakeLink) error {
	dir, base := filepath.Dir(m.Path), filepath.Base(m.Path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	err := os.Symlink(m.Target, m.Path)
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	old, err := os.Readlink(m.Path)
	switch {
	case errors.Is(err, syscall.EINVAL):
		return world.Errorf(world.KindExists, "", "%s exists and is no link", m.Path)
	case err != nil:
		return err
	case old == m.Target:
		return nil
	}
	temporary := filepath.Join(dir, fmt.Sprint(temporaryPrefix(base), rand.Uint64()))
	if err := os.Symlink(m.Target, temporary); err != nil {
		return err
	}
	if err := os.Rename(temporary, m.Path); err != nil {
		return errors.Join(err, os.Remove(temporary))
	}
	return nil
}

// readLinks reads the links directly in a directory.
func readLinks(path string) (*world.LinksRead, error) {
	entries, err := readDir(path)
	if err != nil {
		return nil, err
	}
	result := &world.LinksRead{Links: []world.Link{}}
	for _, entry := range entries {
		if entry.Type()&fs.ModeSymlink == 0 {
			continue
		}
		linkPath := filepath.Join(path, entry.Name())
		target, err := os.Readlink(linkPath)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.EINVAL) {
			continue // removed or replaced since it was listed
		}
		if err != nil {
			return nil, err
		}
		result.Links = append(result.Links, world.Link{
			Name: entry.Name(), Target: target, Dangling: isDangling(linkPath),
		})
	}
	return result, nil
}

// isDangling reports whether a link's target certainly does not exist.
func isDangling(path string) bool {
	_, err := os.Stat(path)
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) ||
		errors.Is(err, syscall.ELOOP)
}
