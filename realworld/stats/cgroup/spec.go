package cgroup

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/google/cadvisor/lib/model"
)

// Spec is what a cgroup may use, and since when it exists.
func (r *Reader) Spec(path string) model.ContainerSpec {
	spec := model.ContainerSpec{CreationTime: r.Created(path)}
	if r.unified {
		d, err := openDir(r, r.in("", path))
		if err == nil {
			d.unifiedSpec(&spec)
			d.close()
		}
	} else {
		_ = r.each(path, func(controller string, d *dir) { // without any there is nothing to say
			d.legacySpec(controller, &spec)
		})
	}
	if isRoot(path) {
		if info, err := ReadMemInfo(r.roots.Proc); err == nil {
			spec.HasMemory = true
			spec.Memory = model.MemorySpec{Limit: info.Total, SwapLimit: info.SwapTotal}
		}
	}
	return spec
}

func (d *dir) unifiedSpec(spec *model.ContainerSpec) {
	if weight, ok := d.number("cpu.weight"); ok && weight > 0 && weight <= 10000 {
		spec.HasCpu = true
		spec.Cpu.Limit = 2 + (weight-1)*262142/9999 // as shares
	}
	quota, period, ok := bytes.Cut(d.read("cpu.max"), []byte(" "))
	if ok {
		spec.HasCpu = true
		spec.Cpu.Period, _ = number(period)
		if string(quota) != "max" {
			spec.Cpu.Quota, _ = number(quota)
		}
	}
	if limit, ok := d.number("memory.max"); ok {
		spec.HasMemory = true
		spec.Memory.Limit = limit
		spec.Memory.SwapLimit = d.or("memory.swap.max", 0)
		spec.Memory.Reservation = d.or("memory.min", 0)
	}
}

func (d *dir) legacySpec(controller string, spec *model.ContainerSpec) {
	switch controller {
	case cpu:
		spec.HasCpu = true
		spec.Cpu.Limit = d.or("cpu.shares", 0)
		spec.Cpu.Period = d.or("cpu.cfs_period_us", 0)
		spec.Cpu.Quota = d.or("cpu.cfs_quota_us", 0) // -1 is none
	case memory:
		spec.HasMemory = true
		spec.Memory.Limit = d.or("memory.limit_in_bytes", 0)
		spec.Memory.SwapLimit = d.or("memory.memsw.limit_in_bytes", 0)
		spec.Memory.Reservation = d.or("memory.soft_limit_in_bytes", 0)
	}
}

// Created is since when a cgroup exists, for the root since when the machine runs; zero if that
// cannot be seen. The kernel does not keep that time: it is the oldest that it shows. That of the
// directory changes with the cgroups in it, that of a file when it is read again after a long time.
func (r *Reader) Created(path string) time.Time {
	boot := BootTime(r.roots.Proc)
	if isRoot(path) {
		return boot
	}
	var oldest time.Time
	for _, controller := range controllers {
		dir := r.in(controller, path)
		for _, name := range []string{"", "cgroup.procs", "cgroup.events", "cgroup.clone_children"} {
			info, err := os.Stat(filepath.Join(dir, name))
			if err == nil && (oldest.IsZero() || info.ModTime().Before(oldest)) {
				oldest = info.ModTime()
			}
		}
		if !oldest.IsZero() {
			break
		}
	}
	if oldest.Before(boot) && !oldest.IsZero() {
		return boot
	}
	return oldest
}

// BootTime is since when the machine runs, by PROC/stat; zero if it does not say.
func BootTime(proc string) time.Time {
	lines, err := fields(filepath.Join(proc, "stat"))
	if err != nil {
		return time.Time{}
	}
	for _, line := range lines {
		if len(line) == 2 && line[0] == "btime" {
			if seconds, err := strconv.ParseInt(line[1], 10, 64); err == nil {
				return time.Unix(seconds, 0)
			}
		}
	}
	return time.Time{}
}

// fields are the words of each line of a file.
func fields(path string) ([][]string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var lines [][]string
	for line := range strings.Lines(string(data)) {
		lines = append(lines, strings.Fields(line))
	}
	return lines, nil
}

// Limits are how much memory and swap a cgroup may have in bytes; none is a very large number.
func (r *Reader) Limits(path string) (memoryBytes, swapBytes uint64) {
	d, err := openDir(r, r.in(memory, path))
	if err != nil {
		return math.MaxUint64, math.MaxUint64
	}
	defer d.close()
	if r.unified {
		return d.or("memory.max", math.MaxUint64), d.or("memory.swap.max", math.MaxUint64)
	}
	memoryBytes = d.or("memory.limit_in_bytes", math.MaxUint64)
	both := d.or("memory.memsw.limit_in_bytes", math.MaxUint64)
	if both >= math.MaxInt64-1<<20 {
		return memoryBytes, math.MaxUint64
	}
	return memoryBytes, both - min(both, memoryBytes)
}

// Unified says whether the controllers are those of version 2.
func (r *Reader) Unified() bool { return r.unified }
