package host

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"seedlet.dev/world"
)

// cpuPeriodDefault is the kernel's default, in microseconds.
const cpuPeriodDefault = 100_000

func (p *Port) setCgroup(ctx context.Context, m *world.SetCgroup) (any, error) {
	path, err := cgroupDirectory("SetCgroup", m.Path, m.Systemd)
	if err != nil {
		return nil, err
	}
	if m.CPUQuota < 0 || m.MemoryBytes < 0 || m.PidsMax < 0 || m.CPUPeriod > math.MaxInt64 ||
		m.MemoryMin < 0 || m.MemoryLow < 0 {
		return nil, world.Errorf(world.KindInvalid, "SetCgroup", "a limit below zero: %+v", *m)
	}
	hierarchies, err := findHierarchies(p.opts.CgroupRoot)
	if err != nil {
		return nil, err
	}
	exists := func(h hierarchy) bool { return hasFile(h.root, path) }
	if m.Existing && !slices.ContainsFunc(hierarchies, exists) {
		return nil, world.Errorf(world.KindNotFound, "SetCgroup", "cgroup %q does not exist", m.Path)
	}
	set := *m
	above := boundByUsage(&set, hierarchies, path)
	if err := p.applyLimits(ctx, hierarchies, path, &set); err != nil {
		return nil, err
	}
	if above != nil {
		return above, nil
	}
	return &world.Done{}, nil
}

// boundByUsage applies AboveUsage and NotBelowUsage: it replaces the memory limit of a request by
// the one that the cgroup may have with its usage. It returns the answer that says so; nil if the
// limit is set as requested.
func boundByUsage(m *world.SetCgroup, hierarchies []hierarchy,
	path string) *world.CgroupAboveLimit {
	if m.MemoryBytes == 0 || !m.AboveUsage && !m.NotBelowUsage {
		return nil
	}
	limit, usage := m.MemoryBytes, memoryUsage(hierarchies, path)
	switch {
	case m.AboveUsage:
		limit = max(limit, usage)
	case usage >= limit:
		if has := memoryLimit(hierarchies, path); has == 0 || has > limit {
			limit = has
		}
	}
	if limit == m.MemoryBytes {
		return nil
	}
	m.MemoryBytes = limit
	return &world.CgroupAboveLimit{UsageBytes: usage, LimitBytes: limit}
}

// applyLimits creates a cgroup that need not exist, and sets its limits.
func (p *Port) applyLimits(ctx context.Context, hierarchies []hierarchy, path string,
	m *world.SetCgroup) error {
	unified := hierarchies[0].unified
	limits := limitsOf(m, unified)
	if m.Systemd {
		if err := p.setSlice(ctx, m, unified); err != nil {
			return err
		}
		// systemd knows no huge pages, and makes no cgroup in a hierarchy that it does not manage.
		if limits = hugePageLimits(m, unified); len(limits) == 0 {
			return nil
		}
	}
	for _, h := range hierarchies {
		if m.Existing {
			break
		}
		if err := h.createCgroup(path, p.onCreate); err != nil {
			return err
		}
	}
	return setLimits(hierarchies, path, limits)
}

// memoryUsage returns the memory that a cgroup uses, in bytes; zero if it does not exist.
func memoryUsage(hierarchies []hierarchy, path string) int64 {
	return readAmount(hierarchies, path, "memory.current", "memory.usage_in_bytes")
}

// memoryLimit returns the memory limit of a cgroup, in bytes; zero without one.
func memoryLimit(hierarchies []hierarchy, path string) int64 {
	n := readAmount(hierarchies, path, "memory.max", "memory.limit_in_bytes")
	if n >= unlimitedV1 {
		return 0
	}
	return n
}

// unlimitedV1 is less than what a cgroup v1 without a limit of memory has: the largest number of
// pages.
const unlimitedV1 = 1 << 62

// readAmount returns the number in the first of the files that a cgroup has; zero if there is none.
func readAmount(hierarchies []hierarchy, path string, files ...string) int64 {
	for _, h := range hierarchies {
		for _, file := range files {
			if fields := readFields(filepath.Join(h.root, path), file); len(fields) == 1 {
				if n, err := strconv.ParseInt(fields[0], 10, 64); err == nil {
					return n
				}
			}
		}
	}
	return 0
}

// limit is a value for a file of a cgroup.
type limit struct {
	file, value string
	// isDefault: the value is that of a new cgroup, so the file may be missing.
	isDefault bool
	// isOptional: without the controller there is nothing to limit.
	isOptional bool
}

// limitsOf returns the limits of a cgroup, in the order in which they are set.
func limitsOf(m *world.SetCgroup, unified bool) []limit {
	limits := limitsV1(m)
	if unified {
		limits = limitsV2(m)
	}
	limits = append(limits, hugePageLimits(m, unified)...)
	if m.Existing {
		limits = slices.DeleteFunc(limits, func(l limit) bool { return l.isDefault })
	}
	return limits
}

// hugePageLimits returns the limits for huge pages, those that are used and those that are
// reserved: without the second a pod could reserve all of the machine, and get what it uses beyond
// the first as SIGBUS. A kernel may have huge pages without their controller, or one before 5.7.
func hugePageLimits(m *world.SetCgroup, unified bool) []limit {
	suffix, unlimited := ".limit_in_bytes", "-1"
	if unified {
		suffix, unlimited = ".max", "max"
	}
	var limits []limit
	for _, pages := range m.HugePages {
		l := limit{value: formatInt(pages.MaxBytes), isOptional: true}
		if pages.MaxBytes < 0 {
			l.value, l.isDefault = unlimited, true
		}
		for _, of := range []string{"", ".rsvd"} {
			l.file = "hugetlb." + world.HugePageSizeName(pages.SizeBytes) + of + suffix
			limits = append(limits, l)
		}
	}
	return limits
}

// setLimits writes the limits to the hierarchies that have their files.
func setLimits(hierarchies []hierarchy, path string, limits []limit) error {
	for _, l := range limits {
		dir := ""
		for _, h := range hierarchies {
			if d := filepath.Join(h.root, path); hasFile(d, l.file) {
				dir = d
				break
			}
		}
		if dir == "" {
			if l.isDefault || l.isOptional {
				continue
			}
			return fmt.Errorf("setting %s to %q: no hierarchy has this controller", l.file, l.value)
		}
		if err := l.set(dir); err != nil {
			return err
		}
	}
	return nil
}

func (l limit) set(dir string) error {
	if slices.Equal(readFields(dir, l.file), strings.Fields(l.value)) {
		return nil
	}
	if l.file == periodFile {
		// The old quota in the new period could exceed the parent's for a moment, which the kernel
		// rejects.
		if err := writeFile(dir, quotaFile, "-1"); err != nil {
			return err
		}
	}
	return writeFile(dir, l.file, l.value)
}

const (
	periodFile = "cpu.cfs_period_us"
	quotaFile  = "cpu.cfs_quota_us"
)

// limitsV1 returns the limits for cgroup v1.
func limitsV1(m *world.SetCgroup) []limit {
	var limits []limit
	if m.CPUShares > 0 {
		limits = append(limits, limit{file: "cpu.shares", value: formatUint(m.CPUShares)})
	}
	if m.CPUQuota > 0 {
		limits = append(limits,
			limit{file: periodFile, value: formatUint(cpuPeriod(m))},
			limit{file: quotaFile, value: formatInt(m.CPUQuota)})
	} else {
		limits = append(limits, limit{file: quotaFile, value: "-1", isDefault: true})
	}
	return append(limits,
		limitOrDefault("memory.limit_in_bytes", m.MemoryBytes, "-1"),
		limitOrDefault("pids.max", m.PidsMax, "max"))
}

// limitsV2 returns the limits for cgroup v2.
func limitsV2(m *world.SetCgroup) []limit {
	var limits []limit
	if m.CPUShares > 0 {
		limits = append(limits, limit{file: "cpu.weight", value: formatUint(cpuWeight(m.CPUShares))})
	}
	quota := limitOrDefault("cpu.max", m.CPUQuota, "max")
	quota.value += " " + formatUint(cpuPeriod(m))
	return append(limits, quota,
		limitOrDefault("memory.min", m.MemoryMin, "0"),
		limitOrDefault("memory.low", m.MemoryLow, "0"),
		limitOrDefault("memory.max", m.MemoryBytes, "max"),
		limitOrDefault("pids.max", m.PidsMax, "max"))
}

func limitOrDefault(file string, value int64, defaultValue string) limit {
	if value == 0 {
		return limit{file: file, value: defaultValue, isDefault: true}
	}
	return limit{file: file, value: formatInt(value)}
}

func formatInt(n int64) string   { return strconv.FormatInt(n, 10) }
func formatUint(n uint64) string { return strconv.FormatUint(n, 10) }

func cpuPeriod(m *world.SetCgroup) uint64 {
	if m.CPUPeriod == 0 {
		return cpuPeriodDefault
	}
	return m.CPUPeriod
}

// cpuWeight converts the CPU shares of cgroup v1 to the weight of v2. The formula is that of runc
// and crun (opencontainers/runc#4785), so that the weights of pods and of containers are
// comparable: a curve through (2, 1), (1024, 100) and (262144, 10000).
func cpuWeight(shares uint64) uint64 {
	if shares <= 2 {
		return 1
	}
	if shares >= 262144 {
		return 10000
	}
	l := math.Log2(float64(shares))
	return uint64(math.Ceil(math.Pow(10, (l*l+125*l)/612-7.0/34)))
}
