package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"seedlet.dev/realworld/cleanup"
)

const (
	guardKind = "cluster"
	dirPrefix = "seedlet-cluster-"

	// staleAge is the minimum age of a lock file that is not held before its owner is regarded as
	// dead: a new lock file is not locked yet.
	staleAge = time.Minute
)

func init() { cleanup.RunGuard(guardKind, sweep) }

// The paths inside a cluster's directory.
func pkiPath(dir string) string  { return filepath.Join(dir, "pki") }
func lockPath(dir string) string { return filepath.Join(dir, "owner.lock") }

// daemons are the programs whose arguments may contain a cluster's directory.
var daemons = append([]string{"etcd"}, programs...)

// leftovers are the existing resources of a cluster, inside and outside its directory.
type leftovers struct {
	dir       string
	procs     []cleanup.Process
	bridge    bool
	dirExists bool // the directory exists
}

func (r leftovers) owns(p cleanup.Process) bool { return p.BelongsTo(r.dir, daemons) }

// Leftovers returns the existing resources of a cluster at dir, one line per process, bridge and
// directory. After Stop there are none.
func Leftovers(dir string) ([]string, error) {
	r, err := findLeftovers(dir)
	if err != nil {
		return nil, err
	}
	return r.Lines(), nil
}

// sweep removes all resources of a cluster at dir, whether or not it was stopped, and dir itself.
func sweep(dir string) error {
	return cleanup.Sweep(func() (cleanup.Leftovers, error) { return findLeftovers(dir) })
}

func findLeftovers(dir string) (r leftovers, err error) {
	r.dir = dir
	if r.procs, err = cleanup.Processes(r.owns); err != nil {
		return r, err
	}
	r.bridge = cleanup.HasBridge(dir)
	_, err = os.Lstat(dir)
	r.dirExists = err == nil
	return r, nil
}

// Lines returns one line for each resource.
func (r leftovers) Lines() []string {
	var lines []string
	for _, p := range r.procs {
		lines = append(lines, fmt.Sprintf("process %d (%s)", p.PID, p.Name))
	}
	if r.bridge {
		lines = append(lines, "bridge "+cleanup.BridgeName(r.dir))
	}
	if r.dirExists {
		lines = append(lines, "directory "+r.dir)
	}
	return lines
}

// Remove removes as many resources as possible in one pass. The directory is last, because the
// others are found by it.
func (r leftovers) Remove() error {
	var problems []error
	for _, p := range r.procs {
		problems = append(problems, p.Kill(r.owns))
	}
	if r.bridge {
		problems = append(problems, cleanup.RemoveBridge(r.dir))
	}
	if len(r.procs) == 0 && errors.Join(problems...) == nil && r.dirExists {
		problems = append(problems, os.RemoveAll(r.dir))
	}
	return errors.Join(problems...)
}

// lockDir locks a directory as long as its owner lives.
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

// sweepStale removes clusters whose owner and guard both died. Clusters that cannot be removed
// remain, which only costs disk space.
func sweepStale(parent string) {
	dirs, _ := filepath.Glob(filepath.Join(parent, dirPrefix+"*")) // the pattern is valid
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
