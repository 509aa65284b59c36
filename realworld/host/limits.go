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

func (p *Port) setCgroup(ctx context.Context, m *world.SetCgroup) error {
	path, err := cgroupDirectory("SetCgroup", m.Path, m.Systemd)
	if err != nil {
		return err
	}
	if m.CPUQuota < 0 || m.MemoryBytes < 0 || m.PidsMax < 0 || m.CPUPeriod > math.MaxInt64 {
		return world.Errorf(world.KindInvalid, "SetCgroup", "a limit below zero: %+v", *m)
	}
	hierarchies, err := findHierarchies(p.opts.CgroupRoot)
	if err != nil {
		return err
	}
	if m.Systemd {
		return p.setSlice(ctx, m, hierarchies[0].unified)
	}
	for _, h := range hierarchies {
		if err := h.createCgroup(path, p.onCreate); err != nil {
			return err
		}
	}
	return setLimits(hierarchies, path, m)
}

// limit is a value for a file of a cgroup.
type limit struct {
	file, value string
	// isDefault: the value is that of a new cgroup, so the file may be missing.
	isDefault bool
}

// setLimits writes the limits to the hierarchies that have their files.
func setLimits(hierarchies []hierarchy, path string, m *world.SetCgroup) error {
	limits := limitsV1(m)
	if hierarchies[0].unified {
		limits = limitsV2(m)
	}
	for _, l := range limits {
		dir := ""
		for _, h := range hierarchies {
			if d := filepath.Join(h.root, path); hasFile(d, l.file) {
				dir = d
				break
			}
		}
		if dir == "" {
			if l.isDefault {
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
