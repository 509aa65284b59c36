package nodetest

import (
	"context"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	"seedlet.dev/realworld/cleanup"
	"seedlet.dev/realworld/host"
)

const cgroupMounts = "/sys/fs/cgroup"

// CgroupRoot returns the cgroupRoot for an agent on the node at dir. Each node has its own, because
// an agent regards all cgroups below it as its pods'.
func CgroupRoot(dir string) string { return "/" + cleanup.BridgeName(dir) }

// CreateCgroups creates the cgroup CgroupRoot: an agent does not start without its cgroupRoot.
func CreateCgroups(dir string) error {
	return host.CreateCgroup(cgroupMounts, CgroupRoot(dir))
}

// RemoveCgroups removes the cgroups below CgroupRoot, and ends the processes in them: if the agent
// ends while the runtime starts a container, runc may leave a process that the runtime does not
// know.
func RemoveCgroups(dir string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	return host.RemoveCgroup(ctx, cgroupMounts, CgroupRoot(dir))
}

// cgroupDirs returns the cgroups of a node in every hierarchy, children before their parents.
func cgroupDirs(dir string) []string {
	var found []string
	for _, parent := range []string{cgroupMounts, cgroupMounts + "/*"} {
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
