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

// hierarchy is one cgroup hierarchy. cgroup v1 has one for each controller or group of controllers,
// and cgroups of the same name in all of them belong together.
type hierarchy struct {
	root    string
	unified bool // the single hierarchy of cgroup v2
}

// findHierarchies returns the hierarchies that are mounted at a root: one of cgroup v2, or those of
// cgroup v1 in its directories. In the hybrid layout one of these is of v2 and has no controllers,
// so cgroups are created there without limits.
func findHierarchies(root string) ([]hierarchy, error) {
	if hasFile(root, "cgroup.controllers") {
		return []hierarchy{{root, true}}, nil
	}
	entries, err := os.ReadDir(root)
	if err != nil {
		return nil, fmt.Errorf("looking for cgroups: %w", err)
	}
	var found []hierarchy
	for _, e := range entries {
		dir := filepath.Join(root, e.Name())
		// Links such as "cpu" to "cpu,cpuacct" are other names of a listed directory.
		if e.IsDir() && hasFile(dir, procsFile) {
			found = append(found, hierarchy{dir, false})
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("looking for cgroups: no hierarchy in %s", root)
	}
	return found, nil
}

func hasFile(dir, file string) bool {
	_, err := os.Lstat(filepath.Join(dir, file))
	return err == nil
}

// cgroupDirectory returns a cgroup's directory relative to the root of a hierarchy, by the rules of
// the cgroup driver.
func cgroupDirectory(op, path string, systemd bool) (string, error) {
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

// createCgroup creates a cgroup and its parents.
func (h hierarchy) createCgroup(path string, onCreate func(string)) error {
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
		onCreate(dir)
		if h.unified {
			continue // in v2, a cgroup without CPUs of its own has its parent's
		}
		if err := inheritCPUs(parent, dir); err != nil {
			return err
		}
	}
	return nil
}

// enableControllers enables every controller of a cgroup for its children. A controller that cannot
// be enabled leads to an error when a limit needs it.
func enableControllers(dir string) {
	var missing []string
	enabled := readFields(dir, "cgroup.subtree_control")
	for _, controller := range readFields(dir, "cgroup.controllers") {
		if !slices.Contains(enabled, controller) {
			missing = append(missing, "+"+controller)
		}
	}
	if len(missing) == 0 ||
		writeFile(dir, "cgroup.subtree_control", strings.Join(missing, " ")) == nil {
		return
	}
	for _, controller := range missing { // the kernel accepts a list entirely or not at all
		_ = writeFile(dir, "cgroup.subtree_control", controller)
	}
}

func readFields(dir, file string) []string {
	data, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		return nil
	}
	return strings.Fields(string(data))
}

// inheritCPUs sets the CPUs and memory nodes of a new cgroup to those of its parent. In v1 both are
// empty at first, and no process can enter the cgroup.
func inheritCPUs(parent, dir string) error {
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		own, ownErr := os.ReadFile(filepath.Join(dir, file))
		inherited, err := os.ReadFile(filepath.Join(parent, file))
		if ownErr != nil || err != nil || len(strings.TrimSpace(string(own))) > 0 {
			continue
		}
		if err := writeFile(dir, file, strings.TrimSpace(string(inherited))); err != nil {
			return err
		}
	}
	return nil
}

// writeFile writes a value to a cgroup's file in one call, as the kernel requires.
func writeFile(dir, file, value string) error {
	f, err := os.OpenFile(filepath.Join(dir, file), os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return fmt.Errorf("setting %s: %w", file, err)
	}
	defer func() { _ = f.Close() }() // the write has accepted or rejected the value
	if _, err := f.WriteString(value); err != nil {
		return fmt.Errorf("setting %s to %q: %w", file, value, err)
	}
	return nil
}

func (p *Port) listCgroups(m *world.ListCgroups) (*world.CgroupsListed, error) {
	path, err := cgroupDirectory("ListCgroups", m.Path, m.Systemd)
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
