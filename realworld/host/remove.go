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
	"time"

	"golang.org/x/sys/unix"

	"seedlet.dev/world"
)

const (
	procsFile = "cgroup.procs"
	// removeRetry is how long a killed process is given to be gone.
	removeRetry = 10 * time.Millisecond
)

func (p *Port) removeCgroup(ctx context.Context, m *world.RemoveCgroup) error {
	path, err := directory("RemoveCgroup", m.Path, m.Systemd)
	if err != nil {
		return err
	}
	hierarchies, err := findHierarchies(p.opts.CgroupRoot)
	if err != nil {
		return err
	}
	if m.Systemd {
		if err := p.stopSlice(ctx, m); err != nil {
			return err
		}
	}
	for {
		var left error
		for _, h := range hierarchies {
			if err := removeTree(filepath.Join(h.root, path)); err != nil {
				left = err
			}
		}
		if left == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("removing a cgroup: %w", left)
		case <-time.After(removeRetry):
		}
	}
}

// removeTree kills what is in a cgroup and below, and removes what is empty. It returns an error
// while something is left: processes take their time to end, and may start others meanwhile.
func removeTree(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var left error
	for _, e := range entries {
		if e.IsDir() {
			left = errors.Join(left, removeTree(filepath.Join(dir, e.Name())))
		}
	}
	if left != nil {
		return left
	}
	// Only rmdir: the files in it are the kernel's and go with it.
	err = unix.Rmdir(dir)
	if err == nil || errors.Is(err, unix.ENOENT) {
		return nil
	}
	// cgroup.kill is of version 2 since Linux 5.14. It spares nobody, and so is not for a cgroup
	// that this very process is in.
	if holdsSelf(dir) || write(dir, "cgroup.kill", "1") != nil {
		killAll(dir)
	}
	return &fs.PathError{Op: "rmdir", Path: dir, Err: err}
}

// killAll kills the processes of one cgroup. A handle is taken on each before it is looked for
// again, so that a pid that has been used again meanwhile is never hit.
func killAll(dir string) {
	handles := map[int]*os.Process{}
	for _, pid := range pids(dir) {
		if process, err := os.FindProcess(pid); err == nil {
			handles[pid] = process
		}
	}
	still := pids(dir)
	for pid, process := range handles {
		if slices.Contains(still, pid) {
			_ = process.Kill() // if it has failed, the cgroup cannot be removed, which is told
		}
		_ = process.Release() // it has nothing to lose
	}
}

func holdsSelf(dir string) bool {
	return slices.Contains(words(dir, procsFile), strconv.Itoa(os.Getpid()))
}

// pids are the processes of a cgroup that can be killed: not this one, nor the first of all, nor
// those of outer namespaces, whose number here is zero.
func pids(dir string) []int {
	var found []int
	for _, word := range words(dir, procsFile) {
		if pid, err := strconv.Atoi(word); err == nil && pid > 1 && pid != os.Getpid() {
			found = append(found, pid)
		}
	}
	return found
}
