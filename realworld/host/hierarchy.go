package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"seedlet.dev/world"
)

// hierarchy is one tree of cgroups. With version 1 there is one for each controller or group of
// controllers, and cgroups of one name in all of them belong together.
type hierarchy struct {
	root    string
	unified bool // the only one, of version 2
}

// findHierarchies looks for what is mounted at a root: one hierarchy of version 2, or in its
// directories those of version 1. In the hybrid layout one of these is of version 2, and gets
// nothing but the cgroups' names: the controllers are elsewhere.
func findHierarchies(root string) ([]hierarchy, error) {
	if has(root, "cgroup.controllers") {
		return []hierarchy{{root, true}}, nil
	}
	entries, err := os.ReadDir(root)
	if err != nil {
		return nil, fmt.Errorf("looking for cgroups: %w", err)
	}
	var found []hierarchy
	for _, e := range entries {
		dir := filepath.Join(root, e.Name())
		// Links, as "cpu" to "cpu,cpuacct", are other names for what is there already.
		if e.IsDir() && has(dir, procsFile) {
			found = append(found, hierarchy{dir, false})
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("looking for cgroups: no hierarchy in %s", root)
	}
	return found, nil
}

func has(dir, file string) bool {
	_, err := os.Lstat(filepath.Join(dir, file))
	return err == nil
}

// directory is where a cgroup is, relative to the root of a hierarchy, by the driver's rules.
func directory(op, path string, systemd bool) (string, error) {
	if !fs.ValidPath(path) || path == "." {
		return "", world.Errorf(world.KindInvalid, op, "%q is no path of a cgroup", path)
	}
	if !systemd {
		return path, nil
	}
	if _, err := sliceName(op, path); err != nil {
		return "", err
	}
	return sliceDirectory(path), nil
}

// make makes a cgroup and its parents.
func (h hierarchy) make(path string, made func(string)) error {
	dir := h.root
	for _, name := range strings.Split(path, "/") {
		parent := dir
		dir = filepath.Join(dir, name)
		if h.unified {
			enableControllers(parent)
		}
		err := os.Mkdir(dir, 0o755)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("making a cgroup: %w", err)
		}
		made(dir)
		if h.unified {
			continue // no CPUs of its own means those of the parent there
		}
		if err := inheritCPUs(parent, dir); err != nil {
			return err
		}
	}
	return nil
}

// enableControllers lets the children of a cgroup use every controller that it has itself. One
// that cannot be enabled is missed when a limit needs it.
func enableControllers(dir string) {
	var missing []string
	enabled := words(dir, "cgroup.subtree_control")
	for _, controller := range words(dir, "cgroup.controllers") {
		if !slices.Contains(enabled, controller) {
			missing = append(missing, "+"+controller)
		}
	}
	if len(missing) == 0 || write(dir, "cgroup.subtree_control", strings.Join(missing, " ")) == nil {
		return
	}
	for _, controller := range missing { // the kernel takes all of a list or nothing
		_ = write(dir, "cgroup.subtree_control", controller)
	}
}

func words(dir, file string) []string {
	data, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		return nil
	}
	return strings.Fields(string(data))
}

// inheritCPUs gives a new cgroup the CPUs and memory nodes of its parent. With version 1 it has
// none at first, and no process can enter it.
func inheritCPUs(parent, dir string) error {
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		own, ownErr := os.ReadFile(filepath.Join(dir, file))
		inherited, err := os.ReadFile(filepath.Join(parent, file))
		if ownErr != nil || err != nil || len(strings.TrimSpace(string(own))) > 0 {
			continue
		}
		if err := write(dir, file, strings.TrimSpace(string(inherited))); err != nil {
			return err
		}
	}
	return nil
}

// write gives a cgroup's file a value, in one call, as the kernel wants it.
func write(dir, file, value string) error {
	f, err := os.OpenFile(filepath.Join(dir, file), os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return fmt.Errorf("setting %s: %w", file, err)
	}
	defer func() { _ = f.Close() }() // the value has been taken or refused by the write
	if _, err := f.WriteString(value); err != nil {
		return fmt.Errorf("setting %s to %q: %w", file, value, err)
	}
	return nil
}

func (p *Port) listCgroups(m *world.ListCgroups) (*world.CgroupsListed, error) {
	path, err := directory("ListCgroups", m.Path, m.Systemd)
	if err != nil {
		return nil, err
	}
	hierarchies, err := findHierarchies(p.opts.CgroupRoot)
	if err != nil {
		return nil, err
	}
	listed := &world.CgroupsListed{Names: []string{}}
	for _, h := range hierarchies {
		entries, err := os.ReadDir(filepath.Join(h.root, path))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("listing cgroups: %w", err)
		}
		for _, e := range entries {
			if !e.IsDir() {
				continue
			}
			name := e.Name()
			if m.Systemd {
				name = cgroupName(m.Path, name)
			}
			listed.Names = append(listed.Names, name)
		}
	}
	slices.Sort(listed.Names)
	listed.Names = slices.Compact(listed.Names)
	return listed, nil
}
