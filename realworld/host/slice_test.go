package host

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	sd "github.com/coreos/go-systemd/v22/dbus"
	"github.com/godbus/dbus/v5"

	"seedlet.dev/realworld/porttest"
	"seedlet.dev/world"
)

// fakeSystemd records its calls and has units by name.
type fakeSystemd struct {
	calls  []string
	units  map[string]bool
	result string // of jobs; empty: a job never ends
	closed int
}

func (f *fakeSystemd) job(result chan<- string) (int, error) {
	if f.result != "" {
		result <- f.result
	}
	return 1, nil
}

func describe(properties []sd.Property) string {
	var all []string
	for _, p := range properties {
		all = append(all, p.Name+"="+p.Value.String())
	}
	return strings.Join(all, " ")
}

func (f *fakeSystemd) StartTransientUnitContext(_ context.Context, name, _ string,
	properties []sd.Property, result chan<- string) (int, error) {
	if f.units[name] {
		return 0, dbus.Error{Name: "org.freedesktop.systemd1.UnitExists"}
	}
	f.units[name] = true
	f.calls = append(f.calls, "start "+name+" "+describe(properties))
	return f.job(result)
}

func (f *fakeSystemd) SetUnitPropertiesContext(_ context.Context, name string, runtime bool,
	properties ...sd.Property) error {
	f.calls = append(f.calls, fmt.Sprintf("set %s %v %s", name, runtime, describe(properties)))
	return nil
}

func (f *fakeSystemd) StopUnitContext(_ context.Context, name, _ string,
	result chan<- string) (int, error) {
	if !f.units[name] {
		return 0, dbus.Error{Name: "org.freedesktop.systemd1.NoSuchUnit"}
	}
	delete(f.units, name)
	f.calls = append(f.calls, "stop "+name)
	return f.job(result)
}

func (f *fakeSystemd) ResetFailedUnitContext(_ context.Context, name string) error {
	f.calls = append(f.calls, "reset "+name)
	return nil
}

func (f *fakeSystemd) Close() { f.closed++ }

func newSystemdHarness(t *testing.T, root, result string) (*harness, *fakeSystemd) {
	h := newHarness(t, root)
	f := &fakeSystemd{units: map[string]bool{}, result: result}
	h.port.dial = func(context.Context) (systemdManager, error) { return f, nil }
	return h, f
}

func TestSliceNames(t *testing.T) {
	cases := []struct{ path, unit, dir string }{
		{"kubepods", "kubepods.slice", "kubepods.slice"},
		{"kubepods/burstable/pod12-34", "kubepods-burstable-pod12_34.slice",
			"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod12_34.slice"},
	}
	for _, c := range cases {
		unit, err := sliceName("SetCgroup", c.path)
		if err != nil || unit != c.unit {
			t.Errorf("%s is unit %s, %v, want %s", c.path, unit, err, c.unit)
		}
		if dir := sliceDirectory(c.path); dir != c.dir {
			t.Errorf("%s is at %s, want %s", c.path, dir, c.dir)
		}
	}
	for dir, want := range map[string]string{
		"kubepods-burstable-pod12_34.slice": "pod12-34",
		"cri-containerd-abc.scope":          "cri-containerd-abc.scope",
		"other.slice":                       "other.slice",
	} {
		if got := cgroupName("kubepods/burstable", dir); got != want {
			t.Errorf("%s is called %s, want %s", dir, got, want)
		}
	}
}

func TestSetSlice(t *testing.T) {
	h, f := newSystemdHarness(t, v2Root(t), "done")
	m := &world.SetCgroup{Path: "kubepods/pod1-2", Systemd: true, CPUShares: 1024, CPUQuota: 25100,
		MemoryBytes: 4096, PidsMax: 7}
	h.must(m)
	limits := "CPUWeight=@t 100 MemoryMin=@t 0 MemoryLow=@t 0 CPUQuotaPeriodUSec=@t 100000 " +
		"CPUQuotaPerSecUSec=@t 260000 MemoryMax=@t 4096 TasksMax=@t 7"
	h.must(m)
	h.must(&world.SetCgroup{Path: "kubepods/pod1-2", Systemd: true})
	const infinity = "@t 18446744073709551615"
	want := []string{
		`start kubepods-pod1_2.slice Description="cgroup kubepods/pod1-2 of seedlet" ` +
			"DefaultDependencies=false CPUAccounting=true MemoryAccounting=true " +
			"TasksAccounting=true " + limits,
		"set kubepods-pod1_2.slice true " + limits,
		"set kubepods-pod1_2.slice true MemoryMin=@t 0 MemoryLow=@t 0 " +
			"CPUQuotaPeriodUSec=@t 100000 CPUQuotaPerSecUSec=" +
			infinity + " MemoryMax=" + infinity + " TasksMax=" + infinity,
	}
	if !slices.Equal(f.calls, want) {
		t.Errorf("calls\n%s\nwant\n%s", strings.Join(f.calls, "\n"), strings.Join(want, "\n"))
	}
	if f.closed != 3 {
		t.Errorf("%d connections closed, want 3", f.closed)
	}
}

// The slice of another program gets what is asked for and nothing else, and is not started. systemd
// knows no huge pages, so their limits are written to the files.
func TestSliceOfOthers(t *testing.T) {
	root := v2Root(t)
	h, f := newSystemdHarness(t, root, "done")
	writeFiles(t, root, map[string]string{"system.slice/hugetlb.2MB.max": "max"})
	h.must(&world.SetCgroup{Path: "system", Systemd: true, Existing: true, CPUShares: 1024,
		MemoryBytes: 4096, HugePages: []world.HugePageLimit{{SizeBytes: 2 << 20}}})
	want := "set system.slice true CPUWeight=@t 100 MemoryMax=@t 4096"
	if got := strings.Join(f.calls, "\n"); got != want {
		t.Errorf("calls\n%s\nwant\n%s", got, want)
	}
	checkFiles(t, root, map[string]string{"system.slice/hugetlb.2MB.max": "0"})
}

func TestSliceLimitsOfVersion1(t *testing.T) {
	got := describe(sliceLimits(&world.SetCgroup{CPUShares: 2, MemoryBytes: 1}, false))
	for _, want := range []string{"CPUShares=@t 2", "MemoryLimit=@t 1"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q has no %s", got, want)
		}
	}
	huge := &world.SetCgroup{CPUQuota: math.MaxInt64}
	if got := quotaPerSecond(huge); got != math.MaxUint64 {
		t.Errorf("a huge quota became %d", got)
	}
}

func TestRemoveAndListSlices(t *testing.T) {
	root := v2Root(t)
	h, f := newSystemdHarness(t, root, "done")
	pod := filepath.Join(root, "kubepods.slice/kubepods-pod1_2.slice")
	if err := os.MkdirAll(filepath.Join(pod, "x.scope"), 0o755); err != nil {
		t.Fatal(err)
	}
	if got := h.list("kubepods", true); got != "pod1-2" {
		t.Errorf("listed %q", got)
	}
	if got := h.list("kubepods/pod1-2", true); got != "x.scope" {
		t.Errorf("listed %q", got)
	}
	f.units["kubepods-pod1_2.slice"] = true
	for range 2 {
		h.must(&world.RemoveCgroup{Path: "kubepods/pod1-2", Systemd: true})
	}
	want := []string{"stop kubepods-pod1_2.slice", "reset kubepods-pod1_2.slice"}
	if !slices.Equal(f.calls, want) || hasFile(pod, "") {
		t.Errorf("calls %q, want %q; the directory exists: %v", f.calls, want, hasFile(pod, ""))
	}
}

func TestSystemdFails(t *testing.T) {
	m := &world.SetCgroup{Path: "kubepods", Systemd: true}
	h, _ := newSystemdHarness(t, v2Root(t), "failed")
	if _, err := h.try(m, porttest.Patience); !err.Has(world.KindInternal) {
		t.Errorf("a failed job: %v, want Internal", err)
	}
	h, _ = newSystemdHarness(t, v2Root(t), "")
	if _, err := h.try(m, 50*time.Millisecond); !err.Has(world.KindTimeout) {
		t.Errorf("a job without end: %v, want Timeout", err)
	}
	h.port.dial = func(context.Context) (systemdManager, error) { return nil, errors.New("no bus") }
	if _, err := h.try(m, porttest.Patience); !err.Has(world.KindUnavailable) {
		t.Errorf("no bus: %v, want Unavailable", err)
	}
}
