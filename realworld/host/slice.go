package host

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"

	sd "github.com/coreos/go-systemd/v22/dbus"
	"github.com/godbus/dbus/v5"

	"seedlet.dev/world"
)

// With the systemd driver a cgroup is a slice, and its limits are properties of the slice: systemd
// may overwrite values that are written to the files directly at any time.

// systemdManager is the part of systemd's D-Bus API that the port uses.
type systemdManager interface {
	StartTransientUnitContext(ctx context.Context, name, mode string, properties []sd.Property,
		result chan<- string) (int, error)
	SetUnitPropertiesContext(ctx context.Context, name string, runtime bool,
		properties ...sd.Property) error
	StopUnitContext(ctx context.Context, name, mode string, result chan<- string) (int, error)
	ResetFailedUnitContext(ctx context.Context, name string) error
	Close()
}

// dialSystemd connects to systemd, through the system bus or directly. Each operation has its own
// connection: operations are rare, and a restarted bus needs no handling.
func dialSystemd(ctx context.Context) (systemdManager, error) {
	conn, err := sd.NewWithContext(ctx)
	if err != nil {
		return nil, err
	}
	return conn, nil
}

// sliceName returns the unit of a cgroup: "kubepods/burstable/pod12-34" is
// "kubepods-burstable-pod12_34.slice", because a dash in a slice's name separates it from its
// parent.
func sliceName(op, path string) (string, error) {
	for _, c := range path {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !letter && !strings.ContainsRune("/-_.:", c) {
			return "", world.Errorf(world.KindInvalid, op, "%q cannot be a slice", path)
		}
	}
	return joinSlice(strings.Split(path, "/")), nil
}

func joinSlice(names []string) string {
	escaped := make([]string, len(names))
	for i, name := range names {
		escaped[i] = strings.ReplaceAll(name, "-", "_")
	}
	return strings.Join(escaped, "-") + ".slice"
}

// sliceDirectory returns the directory of a slice's cgroup: below those of its parents.
func sliceDirectory(path string) string {
	names := strings.Split(path, "/")
	dirs := make([]string, len(names))
	for i := range names {
		dirs[i] = joinSlice(names[:i+1])
	}
	return strings.Join(dirs, "/")
}

// cgroupName returns the last element of the cgroup path of a directory below a slice. A directory
// that is not a slice below this one, such as a scope, keeps its name.
func cgroupName(parent, dir string) string {
	prefix := strings.TrimSuffix(joinSlice(strings.Split(parent, "/")), ".slice") + "-"
	name, isSlice := strings.CutSuffix(dir, ".slice")
	name, isChild := strings.CutPrefix(name, prefix)
	if !isSlice || !isChild {
		return dir
	}
	return strings.ReplaceAll(name, "_", "-")
}

// setSlice starts a slice with its limits, or changes the limits of a started slice.
func (p *Port) setSlice(ctx context.Context, m *world.SetCgroup, unified bool) error {
	name, err := sliceName("SetCgroup", m.Path)
	if err != nil {
		return err
	}
	return p.withSystemd(ctx, "SetCgroup", func(systemd systemdManager) error {
		limits := sliceLimits(m, unified)
		if m.Existing {
			return systemd.SetUnitPropertiesContext(ctx, name, true, limits...)
		}
		properties := append([]sd.Property{
			property("Description", "cgroup "+m.Path+" of seedlet"),
			property("DefaultDependencies", false),
			property("CPUAccounting", true),
			property("MemoryAccounting", true),
			property("TasksAccounting", true),
		}, limits...)
		result := make(chan string, 1)
		_, err := systemd.StartTransientUnitContext(ctx, name, "replace", properties, result)
		if hasDBusName(err, "org.freedesktop.systemd1.UnitExists") {
			return systemd.SetUnitPropertiesContext(ctx, name, true, limits...)
		}
		if err != nil {
			return err
		}
		return waitForJob(ctx, "starting "+name, result)
	})
}

// stopSlice stops a slice with everything in it. Cgroups that systemd does not know are removed
// later.
func (p *Port) stopSlice(ctx context.Context, m *world.RemoveCgroup) error {
	name, err := sliceName("RemoveCgroup", m.Path)
	if err != nil {
		return err
	}
	return p.withSystemd(ctx, "RemoveCgroup", func(systemd systemdManager) error {
		result := make(chan string, 1)
		_, err := systemd.StopUnitContext(ctx, name, "replace", result)
		if hasDBusName(err, "org.freedesktop.systemd1.NoSuchUnit") {
			return nil
		}
		if err != nil {
			return err
		}
		if err := waitForJob(ctx, "stopping "+name, result); err != nil {
			return err
		}
		// A failed unit would be kept, and would prevent a new unit of the same name.
		_ = systemd.ResetFailedUnitContext(ctx, name)
		return nil
	})
}

func (p *Port) withSystemd(ctx context.Context, op string, do func(systemdManager) error) error {
	systemd, err := p.dial(ctx)
	if err != nil {
		return world.Errorf(world.KindUnavailable, op, "connecting to systemd: %v", err)
	}
	defer systemd.Close()
	return do(systemd)
}

// waitForJob waits for the end of a systemd job.
func waitForJob(ctx context.Context, job string, result <-chan string) error {
	select {
	case got := <-result:
		if got != "done" {
			return fmt.Errorf("%s: systemd says %q", job, got)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", job, ctx.Err())
	}
}

func hasDBusName(err error, name string) bool {
	dbusErr, ok := errors.AsType[dbus.Error](err)
	return ok && dbusErr.Name == name
}

// sliceLimits returns the limits as systemd properties. All are set each time, because a property
// that is omitted keeps its value; in a slice that another program has made it is to.
func sliceLimits(m *world.SetCgroup, unified bool) []sd.Property {
	shares, sharesName, memoryName := m.CPUShares, "CPUShares", "MemoryLimit"
	if unified {
		shares, sharesName, memoryName = cpuWeight(m.CPUShares), "CPUWeight", "MemoryMax"
	}
	var limits []sd.Property
	if m.CPUShares > 0 {
		limits = append(limits, property(sharesName, shares))
	}
	if unified && (!m.Existing || m.MemoryMin > 0) {
		limits = append(limits, property("MemoryMin", uint64(m.MemoryMin)))
	}
	if unified && !m.Existing {
		limits = append(limits, property("MemoryLow", uint64(m.MemoryLow)))
	}
	if !m.Existing || m.CPUQuota > 0 {
		limits = append(limits, property("CPUQuotaPeriodUSec", cpuPeriod(m)),
			property("CPUQuotaPerSecUSec", quotaPerSecond(m)))
	}
	if !m.Existing || m.MemoryBytes > 0 {
		limits = append(limits, property(memoryName, orInfinity(m.MemoryBytes)))
	}
	if !m.Existing || m.PidsMax > 0 {
		limits = append(limits, property("TasksMax", orInfinity(m.PidsMax)))
	}
	return limits
}

// quotaPerSecond returns the CPU time per second, in microseconds. systemd stores whole percentages
// of a CPU, so the quota is rounded up: a smaller value than the containers' own limits would make
// their creation fail.
func quotaPerSecond(m *world.SetCgroup) uint64 {
	if m.CPUQuota == 0 {
		return math.MaxUint64
	}
	const percent = 10_000
	perSecond := float64(m.CPUQuota) * 1e6 / float64(cpuPeriod(m))
	if perSecond > math.MaxUint64/2 {
		return math.MaxUint64
	}
	return uint64(math.Ceil(perSecond/percent)) * percent
}

func orInfinity(limit int64) uint64 {
	if limit == 0 {
		return math.MaxUint64
	}
	return uint64(limit)
}

func property(name string, value any) sd.Property {
	return sd.Property{Name: name, Value: dbus.MakeVariant(value)}
}
