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

// makeLink puts a link in the place of a link, or of nothing. A reader of the path never finds it
// missing: the new link is made beside the old one and renamed.
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
	beside := filepath.Join(dir, fmt.Sprintf(".%s.new-%d", base, rand.Uint64()))
	if err := os.Symlink(m.Target, beside); err != nil {
		return err
	}
	if err := os.Rename(beside, m.Path); err != nil {
		return errors.Join(err, os.Remove(beside))
	}
	return nil
}

// readLinks reads the links directly in a directory.
func readLinks(path string) (*world.LinksRead, error) {
	entries, err := readDir(path)
	if err != nil {
		return nil, err
	}
	answer := &world.LinksRead{Links: []world.Link{}}
	for _, entry := range entries {
		if entry.Type()&fs.ModeSymlink == 0 {
			continue
		}
		here := filepath.Join(path, entry.Name())
		target, err := os.Readlink(here)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.EINVAL) {
			continue // gone, or something else, since it was listed
		}
		if err != nil {
			return nil, err
		}
		answer.Links = append(answer.Links, world.Link{
			Name: entry.Name(), Target: target, Dangling: leadsNowhere(here),
		})
	}
	return answer, nil
}

// leadsNowhere reports whether it is certain that nothing is where a link points to.
func leadsNowhere(path string) bool {
	_, err := os.Stat(path)
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) ||
		errors.Is(err, syscall.ELOOP)
}
