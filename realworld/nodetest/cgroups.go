package nodetest

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"seedlet.dev/realworld/owned"
)

// CgroupRoot is the cgroup below which an agent on the node at dir makes those of its pods, as its
// configuration calls it. It is the node's own: an agent takes what is there for its pods'.
func CgroupRoot(dir string) string { return "/" + owned.BridgeName(dir) }

// RemoveCgroups removes what is left below CgroupRoot, as no process is in it any more. A node
// that is closed has done so.
func RemoveCgroups(dir string) error {
	var problems []error
	for _, path := range cgroupDirs(dir) {
		problems = append(problems, os.Remove(path))
	}
	return errors.Join(problems...)
}

// cgroupDirs are the cgroups of a node in every hierarchy, those within others first.
func cgroupDirs(dir string) []string {
	var found []string
	for _, parent := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/*"} {
		roots, _ := filepath.Glob(parent + CgroupRoot(dir)) // fails only if it is malformed
		for _, root := range roots {
			// What cannot be read has just gone.
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
