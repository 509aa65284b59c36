package host

import (
	"testing"

	"seedlet.dev/world"
)

// The working set is what is used without the inactive pages of files.
func TestMeasureNode(t *testing.T) {
	root := t.TempDir()
	h := newHarness(t, root)
	h.port.opts.Root = root
	writeFiles(t, root, map[string]string{"cgroup.controllers": "memory\n",
		"proc/meminfo":            "MemTotal: 8192 kB\nMemFree: 2048 kB\n",
		"proc/loadavg":            "0.20 0.18 0.12 1/80 11206\n",
		"proc/sys/kernel/pid_max": "400\n",
		"memory.stat":             "anon 1\nfile 6291455\ninactive_file 1048576\n",
		"kubepods/memory.current": "3000\n",
		"kubepods/memory.stat":    "anon 1\ninactive_file 1000\n",
	})
	got := h.must(&world.MeasureNode{Pods: "kubepods"}).(*world.NodeMeasured)
	want := world.NodeMeasured{MemoryBytes: 8 << 20, WorkingSetBytes: 5 << 20,
		PodsMeasured: true, PodsWorkingSetBytes: 2000, Processes: 80, ProcessesMax: 400}
	if *got != want {
		t.Errorf("measured %+v, want %+v", *got, want)
	}
	if got := h.must(&world.MeasureNode{Pods: "absent"}).(*world.NodeMeasured); got.PodsMeasured ||
		got.PodsWorkingSetBytes != 0 || got.MemoryBytes == 0 {
		t.Errorf("without the cgroup of the pods: %+v", got)
	}
}
