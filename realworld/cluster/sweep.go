package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"seedlet.dev/realworld/owned"
)

const (
	guardKind = "cluster"
	dirPrefix = "seedlet-cluster-"

	// staleAge is how old a lock must be before it says something: a new one is not held yet.
	staleAge = time.Minute
)

func init() { owned.BeGuard(guardKind, sweep) }

// The places inside a cluster's directory.
func pkiPath(dir string) string  { return filepath.Join(dir, "pki") }
func lockPath(dir string) string { return filepath.Join(dir, "owner.lock") }

// daemons are the programs that a cluster's directory may appear in the arguments of.
var daemons = append([]string{"etcd"}, programs...)

// remains are what exists of a cluster outside and inside its directory.
type remains struct {
	dir     string
	procs   []owned.Process
	bridge  bool
	present bool // whether the directory is there
}

func (r remains) owns(p owned.Process) bool { return p.On(r.dir, daemons) }

// Leftovers lists what of a cluster at dir still exists: one line per process, bridge and
// directory. An empty list is what a stopped cluster leaves.
func Leftovers(dir string) ([]string, error) {
	r, err := find(dir)
	if err != nil {
		return nil, err
	}
	return r.Lines(), nil
}

// sweep removes whatever a cluster at dir left, whether or not it was stopped, and dir itself.
func sweep(dir string) error {
	return owned.Sweep(func() (owned.Remains, error) { return find(dir) })
}

func find(dir string) (r remains, err error) {
	r.dir = dir
	if r.procs, err = owned.Processes(r.owns); err != nil {
		return r, err
	}
	r.bridge = owned.HasBridge(dir)
	_, err = os.Lstat(dir)
	r.present = err == nil
	return r, nil
}

// Lines are what remains, a line for each.
func (r remains) Lines() []string {
	var lines []string
	for _, p := range r.procs {
		lines = append(lines, fmt.Sprintf("process %d (%s)", p.PID, p.Name))
	}
	if r.bridge {
		lines = append(lines, "bridge "+owned.BridgeName(r.dir))
	}
	if r.present {
		lines = append(lines, "directory "+r.dir)
	}
	return lines
}

// Remove takes away as much as can be in one round. The directory goes last, for the rest is
// found by it.
func (r remains) Remove() error {
	var problems []error
	for _, p := range r.procs {
		problems = append(problems, p.Kill(r.owns))
	}
	if r.bridge {
		problems = append(problems, owned.RemoveBridge(r.dir))
	}
	if len(r.procs) == 0 && errors.Join(problems...) == nil && r.present {
		problems = append(problems, os.RemoveAll(r.dir))
	}
	return errors.Join(problems...)
}

// lockDir marks a directory as one whose owner lives.
func lockDir(dir string) (*os.File, error) {
	lock, err := os.Create(lockPath(dir))
	if err != nil {
		return nil, fmt.Errorf("marking the cluster's directory: %w", err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("marking the cluster's directory: %w", err), lock.Close())
	}
	return lock, nil
}

// sweepStale removes clusters whose owner died together with the guard. Those it cannot remove
// stay: they are in nobody's way but the disk's.
func sweepStale(parent string) {
	dirs, _ := filepath.Glob(filepath.Join(parent, dirPrefix+"*")) // fails only if malformed
	for _, dir := range dirs {
		info, err := os.Lstat(lockPath(dir))
		if err != nil || time.Since(info.ModTime()) < staleAge {
			continue
		}
		lock, err := os.Open(lockPath(dir))
		if err != nil {
			continue
		}
		if syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			_ = sweep(dir)
		}
		_ = lock.Close() // it was never written to
	}
}
