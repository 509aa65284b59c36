// Package cgroup reads the usage of cgroups, v1 and v2, into the types of cAdvisor.
//
// cAdvisor's own handlers are not used. They keep the layout of /sys/fs/cgroup in globals, so that
// v2 could not be tested on a v1 machine, and they parse dozens of files into maps where a dozen
// numbers of hundreds of cgroups are needed. The results are the same; a test compares them with
// cAdvisor's.
//
// The contract: a Reader is for one goroutine at a time. A cgroup that does not exist is
// fs.ErrNotExist. A missing or malformed file leaves its numbers zero, and a group of numbers (Cpu,
// Memory) without any file is nil. Paths are relative to the root of the hierarchy, as in
// /proc/PID/cgroup.
//
// Start reading at Reader and Usage, then unified.go and legacy.go for the two versions, detail.go,
// spec.go, and tree.go for the places of pods' cgroups.
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
	unified bool // v2; otherwise v1, or the hybrid layout, where v1 has the controllers
	buf     []byte
	devices map[device]string
}

// Roots are the mount points of the kernel's file systems: "/sys/fs/cgroup", "/proc" and "/sys",
// except in tests.
type Roots struct {
	Cgroup, Proc, Sys string
}

// New returns a reader. It fails if no cgroup hierarchy is mounted.
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

// controllers are the controllers whose files are read. Cgroup v1 has a hierarchy or a link for
// each.
var controllers = []string{cpuacct, cpu, memory, pids, blkio}

const (
	cpuacct = "cpuacct"
	cpu     = "cpu"
	memory  = "memory"
	pids    = "pids"
	blkio   = "blkio"
)

// Usage returns the usage of a cgroup and its descendants: CPU, memory, swap, threads, and pressure
// stall times.
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

// machinePressure reads the pressure stall times of the machine, where the root cgroup has none.
func (r *Reader) machinePressure(s *model.ContainerStats) {
	d, err := openDir(r, filepath.Join(r.roots.Proc, "pressure"))
	if err != nil {
		return // the kernel keeps no PSI
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

// dirOf returns the directory of a cgroup in the hierarchy of a controller.
func (r *Reader) dirOf(controller, path string) string {
	if r.unified {
		return filepath.Join(r.roots.Cgroup, filepath.Clean("/"+path))
	}
	return filepath.Join(r.roots.Cgroup, controller, filepath.Clean("/"+path))
}

// eachDir calls do with the directory of a cgroup in each hierarchy in which it exists.
func (r *Reader) eachDir(path string, do func(controller string, d *dir)) error {
	found := false
	for _, controller := range controllers {
		d, err := openDir(r, r.dirOf(controller, path))
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
