package nodetest

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"seedlet.dev/realworld/cleanup"
)

// CgroupRoot returns the cgroupRoot for an agent on the node at dir. Each node has its own, because
// an agent regards all cgroups below it as its pods'.
func CgroupRoot(dir string) string { return "/" + cleanup.BridgeName(dir) }

// RemoveCgroups removes the cgroups below CgroupRoot, which must have no processes. Close of a node
// does so.
func RemoveCgroups(dir string) error {
	var problems []error
	for _, path := range cgroupDirs(dir) {
		problems = append(problems, os.Remove(path))
	}
	return errors.Join(problems...)
}

// cgroupDirs returns the cgroups of a node in every hierarchy, children before their parents.
func cgroupDirs(dir string) []string {
	var found []string
	for _, parent := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/*"} {
		roots, _ := filepath.Glob(parent + CgroupRoot(dir)) // fails only for a malformed pattern
		for _, root := range roots {
			// A directory that cannot be read was removed meanwhile.
			_ = filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
				if err == nil && e.IsDir() {
					found = append(found, path)
				}
				return nil
			})
		}
	}
	slices.Reverse(found)
	return found
}
