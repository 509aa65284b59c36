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

// cpuPeriodDefault is the kernel's, in microseconds.
const cpuPeriodDefault = 100_000

func (p *Port) setCgroup(ctx context.Context, m *world.SetCgroup) error {
	path, err := directory("SetCgroup", m.Path, m.Systemd)
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
		if err := h.make(path, p.made); err != nil {
			return err
		}
	}
	return setLimits(hierarchies, path, m)
}

// limit is a value for a file of a cgroup.
type limit struct {
	file, value string
	// unset: the value is the one of a new cgroup, so that it does not matter if the controller
	// is not there.
	unset bool
}

// setLimits writes the limits into the hierarchies that have their files.
func setLimits(hierarchies []hierarchy, path string, m *world.SetCgroup) error {
	limits := limitsV1(m)
	if hierarchies[0].unified {
		limits = limitsV2(m)
	}
	for _, l := range limits {
		dir := ""
		for _, h := range hierarchies {
			if d := filepath.Join(h.root, path); has(d, l.file) {
				dir = d
				break
			}
		}
		if dir == "" {
			if l.unset {
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
	if slices.Equal(words(dir, l.file), strings.Fields(l.value)) {
		return nil
	}
	if l.file == periodFile {
		// With the old quota in the new period, it might have more than its parent for a moment,
		// which the kernel refuses.
		if err := write(dir, quotaFile, "-1"); err != nil {
			return err
		}
	}
	return write(dir, l.file, l.value)
}

const (
	periodFile = "cpu.cfs_period_us"
	quotaFile  = "cpu.cfs_quota_us"
)

// limitsV1 are the files of version 1.
func limitsV1(m *world.SetCgroup) []limit {
	var limits []limit
	if m.CPUShares > 0 {
		limits = append(limits, limit{file: "cpu.shares", value: unsigned(m.CPUShares)})
	}
	if m.CPUQuota > 0 {
		limits = append(limits,
			limit{file: periodFile, value: unsigned(periodOf(m))},
			limit{file: quotaFile, value: signed(m.CPUQuota)})
	} else {
		limits = append(limits, limit{file: quotaFile, value: "-1", unset: true})
	}
	return append(limits,
		unlessZero("memory.limit_in_bytes", m.MemoryBytes, "-1"),
		unlessZero("pids.max", m.PidsMax, "max"))
}

// limitsV2 are the files of version 2.
func limitsV2(m *world.SetCgroup) []limit {
	var limits []limit
	if m.CPUShares > 0 {
		limits = append(limits, limit{file: "cpu.weight", value: unsigned(weightOf(m.CPUShares))})
	}
	quota := unlessZero("cpu.max", m.CPUQuota, "max")
	quota.value += " " + unsigned(periodOf(m))
	return append(limits, quota,
		unlessZero("memory.max", m.MemoryBytes, "max"),
		unlessZero("pids.max", m.PidsMax, "max"))
}

func unlessZero(file string, value int64, none string) limit {
	if value == 0 {
		return limit{file: file, value: none, unset: true}
	}
	return limit{file: file, value: signed(value)}
}

func signed(n int64) string    { return strconv.FormatInt(n, 10) }
func unsigned(n uint64) string { return strconv.FormatUint(n, 10) }

func periodOf(m *world.SetCgroup) uint64 {
	if m.CPUPeriod == 0 {
		return cpuPeriodDefault
	}
	return m.CPUPeriod
}

// weightOf is the weight of version 2 that stands for shares of version 1. It is the formula of
// runc and crun (opencontainers/runc#4785), so that the weights of pods and of containers compare:
// a curve through (2, 1), (1024, 100) and (262144, 10000).
func weightOf(shares uint64) uint64 {
	if shares <= 2 {
		return 1
	}
	if shares >= 262144 {
		return 10000
	}
	l := math.Log2(float64(shares))
	return uint64(math.Ceil(math.Pow(10, (l*l+125*l)/612-7.0/34)))
}
