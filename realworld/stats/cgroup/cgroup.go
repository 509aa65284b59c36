// Package cgroup reads what cgroups use, of version 1 and of version 2, into the types of cAdvisor.
//
// cAdvisor's own handlers are not used: they keep what they have found out about /sys/fs/cgroup in
// globals, so that version 2 could not be tested on a machine of version 1, and they read dozens of
// files and make maps of them where a dozen numbers are wanted, of hundreds of cgroups. What is
// made of the files is the same, and a test holds it against cAdvisor's.
//
// The contract: a Reader is for one goroutine at a time. A cgroup that is not there is
// fs.ErrNotExist; a file that is not there, or makes no sense, leaves its numbers zero, and a whole
// group of numbers (Cpu, Memory) that nothing is known of is nil. Paths are names from the root of
// the hierarchy, as in /proc/PID/cgroup.
//
// Start reading at Reader and Usage, then unified.go and legacy.go for the two versions, detail.go,
// spec.go, and tree.go for where the cgroups of pods are.
package cgroup

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/google/cadvisor/lib/model"
)

// Reader reads cgroups. It is for one goroutine at a time.
type Reader struct {
	roots   Roots
	unified bool // version 2; else 1, or the hybrid of both, where 1 has the controllers
	buf     []byte
	devices map[device]string
}

// Roots are where the kernel tells of itself: "/sys/fs/cgroup", "/proc" and "/sys", but for tests.
type Roots struct {
	Cgroup, Proc, Sys string
}

// New makes a reader. It fails where there are no cgroups.
func New(roots Roots) (*Reader, error) {
	r := &Reader{roots: roots, buf: make([]byte, 16<<10), devices: map[device]string{}}
	if _, err := os.Lstat(filepath.Join(roots.Cgroup, "cgroup.controllers")); err == nil {
		r.unified = true
		return r, nil
	}
	for _, controller := range controllers {
		if _, err := os.Stat(filepath.Join(roots.Cgroup, controller)); err == nil {
			return r, nil
		}
	}
	return nil, fmt.Errorf("looking for cgroups: no hierarchy in %s", roots.Cgroup)
}

// controllers are those that numbers are read from. Version 1 has a hierarchy or a link for each.
var controllers = []string{cpuacct, cpu, memory, pids, blkio}

const (
	cpuacct = "cpuacct"
	cpu     = "cpu"
	memory  = "memory"
	pids    = "pids"
	blkio   = "blkio"
)

// Usage is what a cgroup and all below it use: processors, memory, swap, threads, and how long it
// has waited for them.
func (r *Reader) Usage(path string) (*model.ContainerStats, error) {
	s := &model.ContainerStats{Timestamp: time.Now()}
	read := r.legacyUsage
	if r.unified {
		read = r.unifiedUsage
	}
	if err := read(path, s); err != nil {
		return nil, fmt.Errorf("reading the cgroup %s: %w", path, err)
	}
	if s.Memory != nil {
		s.Memory.WorkingSet = s.Memory.Usage - min(s.Memory.Usage, s.Memory.TotalInactiveFile)
	}
	if isRoot(path) {
		r.machinePressure(s)
	}
	return s, nil
}

// machinePressure is what the whole machine waits for, where the root cgroup does not tell.
func (r *Reader) machinePressure(s *model.ContainerStats) {
	d, err := openDir(r, filepath.Join(r.roots.Proc, "pressure"))
	if err != nil {
		return // the kernel does not count it
	}
	defer d.close()
	if s.Cpu != nil {
		d.pressure(cpu, &s.Cpu.PSI)
	}
	if s.Memory != nil {
		d.pressure(memory, &s.Memory.PSI)
	}
	if s.DiskIo == nil {
		s.DiskIo = &model.DiskIoStats{}
	}
	d.pressure("io", &s.DiskIo.PSI)
}

func isRoot(path string) bool { return filepath.Clean("/"+path) == "/" }

// in is the directory of a cgroup, of the hierarchy that has a controller.
func (r *Reader) in(controller, path string) string {
	if r.unified {
		return filepath.Join(r.roots.Cgroup, filepath.Clean("/"+path))
	}
	return filepath.Join(r.roots.Cgroup, controller, filepath.Clean("/"+path))
}

// each calls do with the directory of a cgroup in each hierarchy where it has one.
func (r *Reader) each(path string, do func(controller string, d *dir)) error {
	found := false
	for _, controller := range controllers {
		d, err := openDir(r, r.in(controller, path))
		if err != nil {
			continue
		}
		found = true
		do(controller, d)
		d.close()
	}
	if !found {
		return fs.ErrNotExist
	}
	return nil
}
