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

// Spec returns the limits of a cgroup and its creation time.
func (r *Reader) Spec(path string) model.ContainerSpec {
	spec := model.ContainerSpec{CreationTime: r.Created(path)}
	if r.unified {
		d, err := openDir(r, r.dirOf("", path))
		if err == nil {
			d.unifiedSpec(&spec)
			d.close()
		}
	} else {
		_ = r.eachDir(path, func(controller string, d *dir) { // without a hierarchy there is no spec
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
		spec.Cpu.Limit = 2 + (weight-1)*262142/9999 // converted to shares
	}
	quota, period, ok := bytes.Cut(d.read("cpu.max"), []byte(" "))
	if ok {
		spec.HasCpu = true
		spec.Cpu.Period, _ = parseNumber(period)
		if string(quota) != "max" {
			spec.Cpu.Quota, _ = parseNumber(quota)
		}
	}
	if limit, ok := d.number("memory.max"); ok {
		spec.HasMemory = true
		spec.Memory.Limit = limit
		spec.Memory.SwapLimit = d.numberOr("memory.swap.max", 0)
		spec.Memory.Reservation = d.numberOr("memory.min", 0)
	}
}

func (d *dir) legacySpec(controller string, spec *model.ContainerSpec) {
	switch controller {
	case cpu:
		spec.HasCpu = true
		spec.Cpu.Limit = d.numberOr("cpu.shares", 0)
		spec.Cpu.Period = d.numberOr("cpu.cfs_period_us", 0)
		spec.Cpu.Quota = d.numberOr("cpu.cfs_quota_us", 0) // -1 means no quota
	case memory:
		spec.HasMemory = true
		spec.Memory.Limit = d.numberOr("memory.limit_in_bytes", 0)
		spec.Memory.SwapLimit = d.numberOr("memory.memsw.limit_in_bytes", 0)
		spec.Memory.Reservation = d.numberOr("memory.soft_limit_in_bytes", 0)
	}
}

// Created returns the creation time of a cgroup, for the root the boot time; zero if it cannot be
// determined. The kernel does not record it, so it is the oldest time of the directory and its
// files. The directory's time changes with its children, a file's when it is read again after a
// long time.
func (r *Reader) Created(path string) time.Time {
	boot := BootTime(r.roots.Proc)
	if isRoot(path) {
		return boot
	}
	var oldest time.Time
	for _, controller := range controllers {
		dir := r.dirOf(controller, path)
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

// BootTime returns the boot time in PROC/stat; zero if it is missing.
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

// fields returns the words of each line of a file.
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

// Limits returns the limits of memory and swap of a cgroup in bytes. No limit is a very large
// number.
func (r *Reader) Limits(path string) (memoryBytes, swapBytes uint64) {
	d, err := openDir(r, r.dirOf(memory, path))
	if err != nil {
		return math.MaxUint64, math.MaxUint64
	}
	defer d.close()
	if r.unified {
		return d.numberOr("memory.max", math.MaxUint64), d.numberOr("memory.swap.max", math.MaxUint64)
	}
	memoryBytes = d.numberOr("memory.limit_in_bytes", math.MaxUint64)
	both := d.numberOr("memory.memsw.limit_in_bytes", math.MaxUint64)
	if both >= math.MaxInt64-1<<20 {
		return memoryBytes, math.MaxUint64
	}
	return memoryBytes, both - min(both, memoryBytes)
}

// IsUnified reports whether the controllers belong to v2.
func (r *Reader) IsUnified() bool { return r.unified }
