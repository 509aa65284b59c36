package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/utils/ptr"
)

// cgroupValue returns the content of a file of a container's cgroup, or of a cgroup above it: the
// first one that exists, of a version 1 controller or of version 2.
func (s *suite) cgroupValue(t *testing.T, pod, container, above string, files ...string) string {
	t.Helper()
	pid := s.processOf(t, s.newestContainer(t, pod, container).GetId())
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		for line := range strings.Lines(string(data)) {
			fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
			controller := ""
			for _, c := range strings.Split(fields[1], ",") {
				if c == strings.SplitN(file, ".", 2)[0] {
					controller = fields[1]
				}
			}
			if controller == "" && fields[1] != "" {
				continue
			}
			path := filepath.Join("/sys/fs/cgroup", controller, fields[2], above, file)
			if value, err := os.ReadFile(path); err == nil {
				return strings.TrimSpace(string(value))
			}
		}
	}
	t.Fatalf("no file of %q in %s", files, data)
	return ""
}

func testCgroupValues(t *testing.T, s *suite) {
	s.runPod(t, "limited", `
  containers:
  - name: main
    image: sample
    args: [report, --stay, /proc/self/oom_score_adj]
    resources: {limits: {cpu: 500m, memory: 64Mi}, requests: {cpu: 250m, memory: 64Mi}}
  - name: large
    image: sample
    args: [report, --stay, /proc/self/oom_score_adj]
    resources: {limits: {cpu: 250m, memory: 1Gi}, requests: {memory: 512Mi}}`)
	s.runPod(t, "unlimited", `
  containers:
  - {name: main, image: sample, args: [report, --stay, /proc/self/oom_score_adj]}`)
	s.runPod(t, "guaranteed", `
  containers:
  - name: main
    image: sample
    args: [report, --stay, /proc/self/oom_score_adj]
    resources: {limits: {cpu: 100m, memory: 32Mi}}`)
	s.runPod(t, "leveled", `
  resources: {limits: {cpu: 600m, memory: 128Mi}, requests: {cpu: 300m, memory: 96Mi}}
  containers:
  - {name: main, image: sample, args: [report, --stay, /proc/self/oom_score_adj]}
  - name: limited
    image: sample
    args: [report, --stay, /proc/self/oom_score_adj]
    resources: {limits: {memory: 48Mi}, requests: {cpu: 100m}}`)
	score := func(pod, container string) int {
		t.Helper()
		text := s.waitReport(t, pod, container).Paths["/proc/self/oom_score_adj"].Text
		n, err := strconv.Atoi(strings.TrimSpace(text))
		if err != nil {
			t.Errorf("the oom score of %s/%s is %q", pod, container, text)
		}
		return n
	}
	capacity := memoryCapacity(t)
	burstable := min(999, max(3, 1000-1000*(512<<20)/capacity))
	if got := score("limited", "large"); got < burstable-1 || got > burstable+1 {
		t.Errorf("the oom score of a burstable container is %d, want %d", got, burstable)
	}
	if got := score("unlimited", "main"); got != 1000 {
		t.Errorf("the oom score of a best-effort container is %d, want 1000", got)
	}
	own, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", s.node.PID()))
	if err != nil {
		t.Fatal(err)
	}
	// The tests' runtimes set no score below their own.
	lowest, _ := strconv.Atoi(strings.TrimSpace(string(own))) // the kernel writes a number
	if got, want := score("guaranteed", "main"), max(-997, lowest); got != want {
		t.Errorf("the oom score of a guaranteed container is %d, want %d", got, want)
	}
	score("limited", "main") // all containers run
	score("leveled", "main")
	score("leveled", "limited")
	s.checkCgroupLimits(t)
}

// podPidsLimit is a line of the agent's configuration that testCgroupValues needs.
const podPidsLimit = "podPidsLimit: 1000\n"

// cgroupRow is what a cgroup of a container, or one above it, must have in its files: each value as
// cgroup version 1 has it, or as version 2 does.
type cgroupRow struct {
	pod, container, above         string
	memory, quota, shares, pids   string
	quotaV2, weight, weightRunc12 string
}

// The values follow from the manifests of testCgroupValues: pods have the sums of their containers,
// or their own resources, and a container without a limit has that of its pod
// (calculateLinuxResources and ResourceConfigForPod of the kubelet).
var cgroupRows = []cgroupRow{
	{"guaranteed", "main", "", "33554432", "10000", "102", "", "10000 100000", "4", "17"},
	{"guaranteed", "main", "..", "33554432", "10000", "102", "1000", "10000 100000", "4", "17"},
	{"limited", "main", "", "67108864", "50000", "256", "", "50000 100000", "10", "35"},
	{"limited", "large", "", "1073741824", "25000", "256", "", "25000 100000", "10", "35"},
	{"limited", "main", "..", "1140850688", "75000", "512", "1000", "75000 100000", "20", "59"},
	{"unlimited", "main", "", "max", "-1", "2", "", "max 100000", "1", "1"},
	{"unlimited", "main", "..", "max", "-1", "2", "1000", "max 100000", "1", "1"},
	{"leveled", "main", "", "134217728", "60000", "614", "", "60000 100000", "24", "68"},
	{"leveled", "limited", "", "50331648", "60000", "102", "", "60000 100000", "4", "17"},
	{"leveled", "main", "..", "134217728", "60000", "307", "1000", "60000 100000", "12", "41"},
}

// checkCgroupLimits checks the cgroups of the pods of testCgroupValues.
func (s *suite) checkCgroupLimits(t *testing.T) {
	t.Helper()
	for _, r := range cgroupRows {
		for _, c := range []struct{ files, want []string }{
			{[]string{"memory.limit_in_bytes", "memory.max"}, []string{r.memory}},
			{[]string{"cpu.cfs_quota_us", "cpu.max"}, []string{r.quota, r.quotaV2}},
			{[]string{"cpu.shares", "cpu.weight"}, []string{r.shares, r.weight, r.weightRunc12}},
			{[]string{"pids.max"}, []string{r.pids}},
		} {
			if r.pids == "" && c.files[0] == "pids.max" {
				continue // of a container: none, or the default of systemd
			}
			got := s.cgroupValue(t, r.pod, r.container, r.above, c.files...)
			if got == noMemoryLimit {
				got = "max"
			}
			if !slices.Contains(c.want, got) {
				t.Errorf("%s of %s%s of pod %s is %s, want one of %q", c.files, r.container, r.above,
					r.pod, got, c.want)
			}
		}
	}
	s.checkTiers(t)
}

// noMemoryLimit is what a memory cgroup of version 1 without a limit has: the largest number of
// bytes in whole pages.
const noMemoryLimit = "9223372036854771712"

// memoryCapacity returns the bytes of memory of this machine.
func memoryCapacity(t *testing.T) int {
	t.Helper()
	var memory unix.Sysinfo_t
	if err := unix.Sysinfo(&memory); err != nil {
		t.Fatal(err)
	}
	return int(memory.Totalram) * int(memory.Unit)
}

// checkTiers checks the cgroups above those of the pods "limited" and "unlimited".
func (s *suite) checkTiers(t *testing.T) {
	t.Helper()
	for _, c := range []struct {
		pod, above  string
		files, want []string
	}{
		{"unlimited", "../..", []string{"cpu.shares", "cpu.weight"}, []string{"2", "1"}},
		{"unlimited", "../../..", []string{"memory.limit_in_bytes", "memory.max"},
			[]string{strconv.Itoa(memoryCapacity(t))}},
	} {
		if got := s.cgroupValue(t, c.pod, "main", c.above, c.files...); !slices.Contains(c.want, got) {
			t.Errorf("%s of %s%s is %s, want one of %q", c.files, c.pod, c.above, got, c.want)
		}
	}
	weight := func(above string) int {
		n, err := strconv.Atoi(s.cgroupValue(t, "limited", "main", above, "cpu.shares", "cpu.weight"))
		if err != nil {
			t.Error(err)
		}
		return n
	}
	if pod, tier := weight(".."), weight("../.."); pod < 10 || tier < pod {
		t.Errorf("a pod weighs %d, and all Burstable pods %d", pod, tier)
	}
}

// testProcessorShares runs pods of each class that would use every processor. Guaranteed gets its
// limit, or at least its weight beside the Burstable pods; these share by their requests;
// BestEffort gets next to nothing. On a busy machine all of them together get less than all
// processors.
func testProcessorShares(t *testing.T, s *suite) {
	const hog = `
  containers:
  - name: main
    image: sample
    args: [burn, --share, "1", --threads, "%d", --memory-mib, "1"]
    resources: {%s}`
	threads := runtime.NumCPU()
	resources := map[string]string{
		"hog-guaranteed": "limits: {cpu: 300m, memory: 64Mi}",
		"hog-large":      "requests: {cpu: 300m}",
		"hog-small":      "requests: {cpu: 100m}",
		"hog-idle":       "",
	}
	// The idle pod starts alone. Beside the others runc has too little time of the processors to start
	// it before the runtime request fails, after two minutes.
	names := []string{"hog-idle", "hog-guaranteed", "hog-large", "hog-small"}
	run := func(names ...string) {
		for _, name := range names {
			s.runPod(t, name, fmt.Sprintf(hog, threads, resources[name]))
		}
		for _, name := range names {
			s.waitRunning(t, name, "main", 0)
		}
	}
	run(names[0])
	run(names[1:]...)
	weight := func(pod, above string) float64 {
		text := s.cgroupValue(t, pod, "main", above, "cpu.shares", "cpu.weight")
		n, err := strconv.ParseFloat(text, 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	own, burstable := weight("hog-guaranteed", ".."), weight("hog-large", "../..")
	// On a busy machine the shares of a few seconds are those of chance, so it is enough that those of
	// one window are right, or of all of them together. Little time is enough for a window, however
	// long it takes to get it.
	const enough = 6.0 // seconds of a processor
	look := func() usage {
		u := usage{at: time.Now(), seconds: map[string]float64{}}
		for _, name := range names {
			u.seconds[name] = s.processorSeconds(t, name)
		}
		return u
	}
	start := look()
	window := start
	s.eventually(t, "the pods have had their shares of the processors", func() bool {
		now := look()
		if _, all := now.since(window); all*now.at.Sub(window.at).Seconds() < enough {
			return false
		}
		right := false
		for _, from := range []usage{start, window} {
			used, all := now.since(from)
			wrong := wrongShares(used, all, own/(own+burstable))
			t.Logf("after %v: processors used by each %v, by all %.3f; wrong: %q",
				now.at.Sub(from.at).Round(time.Second), used, all, wrong)
			right = right || len(wrong) == 0
		}
		window = now
		return right
	})
}

// usage is the processor time that pods have used until a time.
type usage struct {
	at      time.Time
	seconds map[string]float64 // by pod
}

// since returns the number of processors that each pod, and all together, have used since before.
func (u usage) since(before usage) (used map[string]float64, all float64) {
	used = map[string]float64{}
	for name, seconds := range u.seconds {
		used[name] = (seconds - before.seconds[name]) / u.at.Sub(before.at).Seconds()
		all += used[name]
	}
	return used, all
}

// wrongShares returns what is wrong with the processors that each pod has used, of all that they
// have used together, if the Guaranteed one has a share by its weight.
func wrongShares(used map[string]float64, all, share float64) []string {
	const tolerance = 0.6
	var wrong []string
	least := tolerance * min(0.3, all*share)
	if got := used["hog-guaranteed"]; got > 0.33 || got < least {
		wrong = append(wrong, fmt.Sprintf("a pod with 300m as limit and request has %.3f, want %.3f "+
			"to 0.3", got, least))
	}
	ratio := used["hog-large"] / used["hog-small"]
	if ratio < 3*tolerance || ratio > 3/tolerance {
		wrong = append(wrong, fmt.Sprintf("pods that request 300m and 100m share as %.2f to 1, want "+
			"3 to 1", ratio))
	}
	if got := used["hog-idle"]; got > 0.15*all {
		wrong = append(wrong, fmt.Sprintf("a pod without requests has %.3f", got))
	}
	return wrong
}

// processorSeconds returns the time of processors that a pod's container main has used.
func (s *suite) processorSeconds(t *testing.T, pod string) float64 {
	t.Helper()
	text := s.cgroupValue(t, pod, "main", "", "cpuacct.usage", "cpu.stat")
	unit := 1e9
	if first, rest, found := strings.Cut(text, "\n"); found && rest != "" { // version 2
		text, unit = strings.TrimPrefix(first, "usage_usec "), 1e6
	}
	used, err := strconv.ParseFloat(text, 64)
	if err != nil {
		t.Fatal(err)
	}
	return used / unit
}

// testMemoryHog runs a container that uses more memory than its limit, after a while: the runtime
// begins to watch for kills after it has started a container.
func testMemoryHog(t *testing.T, s *suite) {
	s.runPod(t, "memory-hog", `
  restartPolicy: Never
  containers:
  - name: main
    image: sample
    args: [burn, --after, 5s, --memory-mib, "256"]
    resources: {limits: {memory: 64Mi}}
  - name: calm
    image: sample
    args: [report, --stay]
    resources: {limits: {memory: 64Mi}}`)
	s.eventually(t, "the container was killed for its memory", func() bool {
		end := containerStatus(ptr.To(s.agent.servedPod(t, "memory-hog")), "main").State.Terminated
		return end != nil && end.Reason == "OOMKilled" && end.ExitCode == 137
	})
	s.waitRunning(t, "memory-hog", "calm", 0)
}
