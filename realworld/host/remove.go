package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"seedlet.dev/world"
)

const (
	procsFile = "cgroup.procs"
	// removeRetryInterval is how long killed processes get to exit before the next attempt.
	removeRetryInterval = 10 * time.Millisecond
)

func (p *Port) removeCgroup(ctx context.Context, m *world.RemoveCgroup) error {
	path, err := cgroupDirectory("RemoveCgroup", m.Path, m.Systemd)
	if err != nil {
		return err
	}
	if m.Systemd {
		if err := p.stopSlice(ctx, m); err != nil {
			return err
		}
	}
	return RemoveCgroup(ctx, p.opts.CgroupRoot, path)
}

// CreateCgroup creates a cgroup and its parents in all hierarchies that are mounted below root,
// such as /sys/fs/cgroup. One that exists stays as it is.
func CreateCgroup(root, path string) error {
	hierarchies, err := findHierarchies(root)
	if err != nil {
		return err
	}
	for _, h := range hierarchies {
		if err := h.createCgroup(strings.Trim(path, "/"), func(string) {}); err != nil {
			return err
		}
	}
	return nil
}

// RemoveCgroup kills the processes in a cgroup and below, and removes it, in all hierarchies that
// are mounted below root, such as /sys/fs/cgroup. It tries until it succeeds or the context ends.
func RemoveCgroup(ctx context.Context, root, path string) error {
	hierarchies, err := findHierarchies(root)
	if err != nil {
		return err
	}
	for {
		var remaining error
		for _, h := range hierarchies {
			if err := removeTree(filepath.Join(h.root, path)); err != nil {
				remaining = err
			}
		}
		if remaining == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("removing a cgroup: %w", remaining)
		case <-time.After(removeRetryInterval):
		}
	}
}

// removeTree kills the processes in a cgroup and below, and removes the empty cgroups. It returns
// an error while a cgroup remains: processes need time to exit, and may start others meanwhile.
func removeTree(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var remaining error
	for _, e := range entries {
		if e.IsDir() {
			remaining = errors.Join(remaining, removeTree(filepath.Join(dir, e.Name())))
		}
	}
	if remaining != nil {
		return remaining
	}
	// Only rmdir: the files in the directory are the kernel's and disappear with it.
	err = unix.Rmdir(dir)
	if err == nil || errors.Is(err, unix.ENOENT) {
		return nil
	}
	// cgroup.kill exists in v2 since Linux 5.14. It kills every process, so it must not be used for
	// a cgroup that contains this process.
	if containsSelf(dir) || writeFile(dir, "cgroup.kill", "1") != nil {
		killAll(dir)
	}
	return &fs.PathError{Op: "rmdir", Path: dir, Err: err}
}

// killAll kills the processes of one cgroup. A handle of each process is opened before the cgroup
// is read again, so that a reused pid is never killed.
func killAll(dir string) {
	handles := map[int]*os.Process{}
	for _, pid := range pids(dir) {
		if process, err := os.FindProcess(pid); err == nil {
			handles[pid] = process
		}
	}
	current := pids(dir)
	for pid, process := range handles {
		if slices.Contains(current, pid) {
			_ = process.Kill() // a failure leaves the cgroup, which is reported
		}
		_ = process.Release() // nothing to flush
	}
}

func containsSelf(dir string) bool {
	return slices.Contains(readFields(dir, procsFile), strconv.Itoa(os.Getpid()))
}

// pids returns the processes of a cgroup that can be killed: not this process, not pid 1, and none
// of outer namespaces, whose pid here is zero.
func pids(dir string) []int {
	var found []int
	for _, word := range readFields(dir, procsFile) {
		if pid, err := strconv.Atoi(word); err == nil && pid > 1 && pid != os.Getpid() {
			found = append(found, pid)
		}
	}
	return found
}
