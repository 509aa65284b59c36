package host

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// What the agent needs of the machine's cgroups, and what it sets for its own process.

// The controllers without which pods cannot be limited. Those of v1 are the kubelet's
// (validateSystemRequirements in pkg/kubelet/cm/container_manager_linux.go).
var (
	controllersV1 = []string{"cpu", "cpuacct", "cpuset", "memory"}
	controllersV2 = []string{"cpu", "memory", "pids"}
)

// CheckControllers returns an error that names the controllers that are missing below root, which
// is "/sys/fs/cgroup" except in tests.
func CheckControllers(root string) error {
	hierarchies, err := findHierarchies(root)
	if err != nil {
		return err
	}
	needed, found := controllersV1, []string(nil)
	if hierarchies[0].unified {
		needed, found = controllersV2, readFields(root, "cgroup.controllers")
	} else {
		for _, h := range hierarchies {
			found = append(found, strings.Split(filepath.Base(h.root), ",")...)
		}
	}
	var missing []string
	for _, name := range needed {
		if !slices.Contains(found, name) {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("%s: cgroup controllers are missing: %s", root, strings.Join(missing, ", "))
	}
	return nil
}

// HasCgroup reports whether a hierarchy below root has a cgroup, given as a directory.
func HasCgroup(root, dir string) bool {
	hierarchies, err := findHierarchies(root)
	return err == nil && slices.ContainsFunc(hierarchies, func(h hierarchy) bool {
		return hasFile(h.root, dir)
	})
}

// LackingControllers returns those of some controllers that a cgroup, given as a directory, does
// not have, in their order. In v1 it has those in whose hierarchies it exists.
func LackingControllers(root, dir string, controllers []string) []string {
	hierarchies, err := findHierarchies(root)
	if err != nil {
		return controllers
	}
	var has []string
	for _, h := range hierarchies {
		switch {
		case h.unified:
			has = readFields(filepath.Join(root, dir), "cgroup.controllers")
		case hasFile(h.root, dir):
			has = append(has, strings.Split(filepath.Base(h.root), ",")...)
		}
	}
	return slices.DeleteFunc(slices.Clone(controllers), func(name string) bool {
		return slices.Contains(has, name)
	})
}

// SetOOMScoreAdj sets how early the kernel ends this process if memory is short. Proc is "/proc"
// except in tests.
func SetOOMScoreAdj(proc string, score int32) error {
	return writeFile(filepath.Join(proc, "self"), "oom_score_adj", fmt.Sprint(score))
}

// SetOpenFiles sets how many files this process may have open.
func SetOpenFiles(files int64) error {
	limit := unix.Rlimit{Cur: uint64(files), Max: uint64(files)}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return os.NewSyscallError("setrlimit", err)
	}
	return nil
}
