package host

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"seedlet.dev/realworld/porttest"
	"seedlet.dev/world"
)

const cgroupRoot = "/sys/fs/cgroup"

// memoryCgroup makes a cgroup of v1 for a test, and returns its path and its directory.
func memoryCgroup(t *testing.T) (path, dir string) {
	t.Helper()
	root := filepath.Join(cgroupRoot, "memory")
	if !hasFile(root, eventControlFile) {
		t.Skip("the kernel has no memory thresholds: cgroup v1 is not mounted")
	}
	path = fmt.Sprintf("seedlet-alert-%d", os.Getpid())
	dir = filepath.Join(root, path)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() {
		if err := os.Remove(dir); err != nil {
			t.Error(err)
		}
	})
	return path, dir
}

// use has processes in a cgroup use so much memory for a moment.
func use(t *testing.T, dir string, mib int) {
	t.Helper()
	script := fmt.Sprintf("echo $$ > %s/%s && head -c %dm /dev/zero | tail -c %dm > /dev/null", dir,
		procsFile, mib, mib)
	if out, err := exec.Command("sh", "-c", script).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// The kernel reports that the working set of a cgroup exceeds an amount, once; a later request
// replaces an earlier one.
func TestMemoryAlert(t *testing.T) {
	path, dir := memoryCgroup(t)
	h := newHarness(t, cgroupRoot)
	measure := func(above int64) *world.NodeMeasured {
		t.Helper()
		measured := h.must(&world.MeasureNode{Pods: path, AlertPodsAbove: above}).(*world.NodeMeasured)
		if measured.AlertProblem != "" {
			t.Fatal(measured.AlertProblem)
		}
		return measured
	}
	alerts := func(want int, wait time.Duration) {
		t.Helper()
		for range want {
			select {
			case ev := <-h.completions:
				if _, isAlert := ev.Body.(*world.MemoryAlert); !isAlert {
					t.Fatalf("%+v is reported", ev)
				}
			case <-time.After(porttest.Patience):
				t.Fatal("nothing is reported")
			}
		}
		select {
		case ev := <-h.completions:
			t.Fatalf("%+v is reported", ev)
		case <-time.After(wait):
		}
	}
	const short = 50 * time.Millisecond
	before := measure(32 << 20)
	if !before.PodsMeasured {
		t.Fatalf("%+v", before)
	}
	use(t, dir, 4)
	alerts(0, short)
	use(t, dir, 64)
	use(t, dir, 64)
	alerts(1, short)
	measure(32 << 20)
	measure(0)
	use(t, dir, 64)
	alerts(0, short)
	measure(1 << 40)
	use(t, dir, 64)
	alerts(0, short)
}

// A crossing that came before the request is reported.
func TestMemoryAlertOfBefore(t *testing.T) {
	_, dir := memoryCgroup(t)
	h := newHarness(t, cgroupRoot)
	data, err := os.ReadFile(filepath.Join(filepath.Dir(dir), memoryUsageFile))
	if err != nil {
		t.Fatal(err)
	}
	used, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.port.alerts.set(alertMachine, filepath.Dir(dir), used/2); err != nil {
		t.Fatal(err)
	}
	if ev := <-h.completions; ev.Body == nil {
		t.Errorf("%+v", ev)
	}
}

// With cgroup v2 the kernel has no such thresholds; what else is measured counts all the same.
func TestMemoryAlertProblem(t *testing.T) {
	root := t.TempDir()
	h := newHarness(t, root)
	h.port.opts.Root = root
	writeFiles(t, root, map[string]string{"cgroup.controllers": "memory\n", procsFile: "",
		"proc/meminfo": "MemTotal: 8192 kB\nMemFree: 2048 kB\n",
		"memory.stat":  "anon 1\ninactive_file 1048576\n"})
	got := h.must(&world.MeasureNode{AlertAbove: 1}).(*world.NodeMeasured)
	if !strings.Contains(got.AlertProblem, "cgroup v2 does not report usage") || got.MemoryBytes == 0 {
		t.Errorf("measured %+v", got)
	}
}
