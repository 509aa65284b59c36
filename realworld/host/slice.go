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

// With the systemd driver a cgroup is a slice, and its limits are properties of that: what is
// written into the files behind systemd's back, it may overwrite whenever it likes.

// manager is what is used of systemd.
type manager interface {
	StartTransientUnitContext(ctx context.Context, name, mode string, properties []sd.Property,
		result chan<- string) (int, error)
	SetUnitPropertiesContext(ctx context.Context, name string, runtime bool,
		properties ...sd.Property) error
	StopUnitContext(ctx context.Context, name, mode string, result chan<- string) (int, error)
	ResetFailedUnitContext(ctx context.Context, name string) error
	Close()
}

// dialSystemd connects to systemd, by the system bus or directly. A connection is for one
// operation: they are few, and so a bus that has been restarted needs no care.
func dialSystemd(ctx context.Context) (manager, error) {
	conn, err := sd.NewWithContext(ctx)
	if err != nil {
		return nil, err
	}
	return conn, nil
}

// sliceName is the unit of a cgroup: "kubepods/burstable/pod12-34" is
// "kubepods-burstable-pod12_34.slice", since a dash in a slice's name leads to its parent.
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

// sliceDirectory is where systemd keeps the cgroup of a slice: below those of its parents.
func sliceDirectory(path string) string {
	names := strings.Split(path, "/")
	dirs := make([]string, len(names))
	for i := range names {
		dirs[i] = joinSlice(names[:i+1])
	}
	return strings.Join(dirs, "/")
}

// cgroupName is the last element of the path that a directory below a slice stands for. What is
// no slice below this one, as a scope, keeps its name.
func cgroupName(parent, dir string) string {
	prefix := strings.TrimSuffix(joinSlice(strings.Split(parent, "/")), ".slice") + "-"
	name, isSlice := strings.CutSuffix(dir, ".slice")
	name, isChild := strings.CutPrefix(name, prefix)
	if !isSlice || !isChild {
		return dir
	}
	return strings.ReplaceAll(name, "_", "-")
}

// setSlice starts a slice with its limits, or changes them if it has been started.
func (p *Port) setSlice(ctx context.Context, m *world.SetCgroup, unified bool) error {
	name, err := sliceName("SetCgroup", m.Path)
	if err != nil {
		return err
	}
	return p.onSystemd(ctx, "SetCgroup", func(systemd manager) error {
		limits := sliceLimits(m, unified)
		properties := append([]sd.Property{
			property("Description", "cgroup "+m.Path+" of seedlet"),
			property("DefaultDependencies", false),
			property("CPUAccounting", true),
			property("MemoryAccounting", true),
			property("TasksAccounting", true),
		}, limits...)
		result := make(chan string, 1)
		_, err := systemd.StartTransientUnitContext(ctx, name, "replace", properties, result)
		if isError(err, "org.freedesktop.systemd1.UnitExists") {
			return systemd.SetUnitPropertiesContext(ctx, name, true, limits...)
		}
		if err != nil {
			return err
		}
		return await(ctx, "starting "+name, result)
	})
}

// stopSlice ends a slice and everything in it. What systemd does not know of is removed after it.
func (p *Port) stopSlice(ctx context.Context, m *world.RemoveCgroup) error {
	name, err := sliceName("RemoveCgroup", m.Path)
	if err != nil {
		return err
	}
	return p.onSystemd(ctx, "RemoveCgroup", func(systemd manager) error {
		result := make(chan string, 1)
		_, err := systemd.StopUnitContext(ctx, name, "replace", result)
		if isError(err, "org.freedesktop.systemd1.NoSuchUnit") {
			return nil
		}
		if err != nil {
			return err
		}
		if err := await(ctx, "stopping "+name, result); err != nil {
			return err
		}
		// One that has failed would be remembered, and be in the way of the next of its name.
		_ = systemd.ResetFailedUnitContext(ctx, name)
		return nil
	})
}

func (p *Port) onSystemd(ctx context.Context, op string, do func(manager) error) error {
	systemd, err := p.dial(ctx)
	if err != nil {
		return world.Errorf(world.KindUnavailable, op, "connecting to systemd: %v", err)
	}
	defer systemd.Close()
	return do(systemd)
}

// await waits for the end of a job of systemd.
func await(ctx context.Context, what string, result <-chan string) error {
	select {
	case got := <-result:
		if got != "done" {
			return fmt.Errorf("%s: systemd says %q", what, got)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", what, ctx.Err())
	}
}

func isError(err error, name string) bool {
	failed, ok := errors.AsType[dbus.Error](err)
	return ok && failed.Name == name
}

// sliceLimits are the limits as systemd calls them. All are given each time: one that is not is
// left as it was.
func sliceLimits(m *world.SetCgroup, unified bool) []sd.Property {
	shares, sharesName, memoryName := m.CPUShares, "CPUShares", "MemoryLimit"
	if unified {
		shares, sharesName, memoryName = weightOf(m.CPUShares), "CPUWeight", "MemoryMax"
	}
	var limits []sd.Property
	if m.CPUShares > 0 {
		limits = append(limits, property(sharesName, shares))
	}
	return append(limits,
		property("CPUQuotaPeriodUSec", periodOf(m)),
		property("CPUQuotaPerSecUSec", quotaPerSecond(m)),
		property(memoryName, orInfinity(m.MemoryBytes)),
		property("TasksMax", orInfinity(m.PidsMax)))
}

// quotaPerSecond is the CPU time in each second, in microseconds. systemd writes it down as a
// whole percentage of a CPU, so it is rounded up to one: less than the containers' own limits
// would make them fail.
func quotaPerSecond(m *world.SetCgroup) uint64 {
	if m.CPUQuota == 0 {
		return math.MaxUint64
	}
	const percent = 10_000
	perSecond := float64(m.CPUQuota) * 1e6 / float64(periodOf(m))
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
