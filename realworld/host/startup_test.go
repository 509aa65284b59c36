package host

import (
	"math"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestCheckControllers(t *testing.T) {
	for _, test := range []struct {
		name  string
		files map[string]string
		want  string // after the root
	}{
		{"v2", map[string]string{"cgroup.controllers": "cpuset cpu io memory pids"}, ""},
		{"v2 without memory", map[string]string{"cgroup.controllers": "cpu io"},
			": cgroup controllers are missing: memory, pids"},
		{"v1", map[string]string{"cpu,cpuacct/cgroup.procs": "", "cpuset/cgroup.procs": "",
			"memory/cgroup.procs": ""}, ""},
		{"hybrid without cpuset", map[string]string{"cpu,cpuacct/cgroup.procs": "",
			"unified/cgroup.procs": "", "memory/cgroup.procs": ""},
			": cgroup controllers are missing: cpuset"},
	} {
		root := t.TempDir()
		writeFiles(t, root, test.files)
		got := ""
		if err := CheckControllers(root); err != nil {
			got = strings.TrimPrefix(err.Error(), root)
		}
		if got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}

func TestHasCgroup(t *testing.T) {
	root := t.TempDir()
	writeFiles(t, root, map[string]string{"cpu/cgroup.procs": "", "memory/cgroup.procs": "",
		"memory/kube/agent/x": ""})
	for dir, want := range map[string]bool{"kube/agent": true, "kube": true, "agent": false} {
		if got := HasCgroup(root, dir); got != want {
			t.Errorf("%s: %v", dir, got)
		}
	}
	if HasCgroup(t.TempDir(), "kube") {
		t.Error("found without hierarchies")
	}
}

func TestLackingControllers(t *testing.T) {
	v1, v2 := t.TempDir(), t.TempDir()
	writeFiles(t, v1, map[string]string{"cpu,cpuacct/cgroup.procs": "", "memory/cgroup.procs": "",
		"unified/cgroup.procs": "", "cpu,cpuacct/kube/x": "", "unified/kube/x": ""})
	writeFiles(t, v2, map[string]string{"cgroup.controllers": "cpu memory pids",
		"kube/cgroup.controllers": "cpu io"})
	for _, test := range []struct{ root, dir, want string }{
		{v1, "kube", "memory pids"}, {v1, ".", "pids"}, {v2, "kube", "memory pids"}, {v2, ".", ""},
		{v2, "gone", "cpu memory pids"}, {t.TempDir(), "kube", "cpu memory pids"},
	} {
		got := strings.Join(LackingControllers(test.root, test.dir,
			[]string{"cpu", "memory", "pids"}), " ")
		if got != test.want {
			t.Errorf("%+v: %q", test, got)
		}
	}
}

func TestSetOOMScoreAdj(t *testing.T) {
	root := t.TempDir()
	writeFiles(t, root, map[string]string{"self/oom_score_adj": "0"})
	if err := SetOOMScoreAdj(root, -999); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(root + "/self/oom_score_adj"); string(got) != "-999" {
		t.Errorf("%q, %v", got, err)
	}
	if err := SetOOMScoreAdj(t.TempDir(), 0); err == nil {
		t.Error("no error without the file")
	}
}

func TestSetOpenFiles(t *testing.T) {
	var before, after unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
			t.Error(err)
		}
	}()
	lower := before
	lower.Cur /= 2
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &lower); err != nil {
		t.Fatal(err)
	}
	if err := SetOpenFiles(int64(before.Max)); err != nil {
		t.Fatal(err)
	}
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &after); err != nil ||
		after != (unix.Rlimit{Cur: before.Max, Max: before.Max}) {
		t.Errorf("%+v, %v", after, err)
	}
	if err := SetOpenFiles(math.MaxInt64); err == nil {
		t.Error("more files than the kernel allows")
	}
}
