package stats

import (
	"context"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"seedlet.dev/realworld/nodetest"
	"seedlet.dev/realworld/porttest"
	"seedlet.dev/realworld/stats/cgroup"
)

// burntMiB is the memory that the pod of these tests allocates.
const burntMiB = 96

// TestRealRuntime runs a pod that uses CPU and memory on a real containerd, and compares its stats
// with its cgroups: as the runtime reports them, and without the runtime.
func TestRealRuntime(t *testing.T) {
	for _, version := range []string{nodetest.Debian, nodetest.V2} {
		t.Run(version, func(t *testing.T) {
			node := nodetest.New(t, version)
			pod := startBurner(t, node)
			t.Run("asked", func(t *testing.T) {
				reported := New(Options{Runtime: node.Runtime()}).requestRuntimeStats(t.Context())
				if reported.err != nil || len(reported.sandboxes) != 1 || len(reported.containers) != 1 {
					t.Errorf("the runtime tells of %d sandboxes, %d containers; %v",
						len(reported.sandboxes), len(reported.containers), reported.err)
				}
				checkStats(t, node, pod, node.Runtime())
			})
			t.Run("metrics", func(t *testing.T) {
				checkRuntimeMetrics(t, node, pod, version == nodetest.V2)
			})
			t.Run("away", func(t *testing.T) {
				checkStats(t, node, pod, &runtime{})
			})
		})
	}
}

const podUID = "0b1f7a52-5f3c-4f0e-9c4e-0d6a1c2b3e4f"

func podCgroup(node *nodetest.Node) string {
	return nodetest.CgroupRoot(node.Dir) + "/kubepods/burstable/pod" + podUID
}

// startBurner starts the pod and returns it as the core would serve it.
func startBurner(t *testing.T, node *nodetest.Node) *v1.Pod {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), porttest.Patience)
	defer cancel()
	sandbox := &runtimeapi.PodSandboxConfig{
		Metadata:     &runtimeapi.PodSandboxMetadata{Name: "oven", Uid: podUID, Namespace: "default"},
		LogDirectory: filepath.Join(node.Dir, "logs", "default_oven_"+podUID),
		Linux:        &runtimeapi.LinuxPodSandboxConfig{CgroupParent: podCgroup(node)},
	}
	made, err := node.Runtime().RunPodSandbox(ctx,
		&runtimeapi.RunPodSandboxRequest{Config: sandbox})
	if err != nil {
		t.Fatal(err)
	}
	image := &runtimeapi.ImageSpec{Image: node.Images.Sample}
	if _, err := node.ImageService().PullImage(ctx,
		&runtimeapi.PullImageRequest{Image: image, SandboxConfig: sandbox}); err != nil {
		t.Fatal(err)
	}
	container, err := node.Runtime().CreateContainer(ctx, &runtimeapi.CreateContainerRequest{
		PodSandboxId: made.PodSandboxId, SandboxConfig: sandbox,
		Config: &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: "main"}, Image: image, LogPath: "main/0.log",
			Args:  []string{"burn", "--share", "0.3", "--memory-mib", strconv.Itoa(burntMiB)},
			Linux: &runtimeapi.LinuxContainerConfig{},
		}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := node.Runtime().StartContainer(ctx,
		&runtimeapi.StartContainerRequest{ContainerId: container.ContainerId}); err != nil {
		t.Fatal(err)
	}
	now := metav1.Now()
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "oven", Namespace: "default", UID: types.UID(podUID)},
		Status: v1.PodStatus{StartTime: &now, ContainerStatuses: []v1.ContainerStatus{{
			Name: "main", ContainerID: "containerd://" + container.ContainerId,
			State: v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: now}}}}},
	}
}

// checkStats measures the pod twice, and its cgroup before and after each time.
func checkStats(t *testing.T, node *nodetest.Node, pod *v1.Pod,
	from runtimeapi.RuntimeServiceClient) {
	s := New(Options{NodeName: "n", Runtime: from, Images: node.ImageService(),
		Pods:    func(context.Context) ([]*v1.Pod, error) { return []*v1.Pod{pod}, nil },
		RootDir: node.Dir, LogsDir: filepath.Join(node.Dir, "logs"),
		Cgroups:   Cgroups{Root: nodetest.CgroupRoot(node.Dir), RuntimeEndpoint: node.Endpoint},
		SampleAge: time.Nanosecond})
	defer s.Close()
	files, err := cgroup.New(cgroup.Roots{Cgroup: "/sys/fs/cgroup", Proc: "/proc", Sys: "/sys"})
	if err != nil {
		t.Fatal(err)
	}
	read := func() (cpu, memory uint64) {
		stats, err := files.Usage(podCgroup(node))
		if err != nil || stats.Cpu == nil || stats.Memory == nil {
			t.Fatalf("the cgroup of the pod: %+v, %v", stats, err)
		}
		return stats.Cpu.Usage.Total, stats.Memory.WorkingSet
	}
	porttest.Eventually(t, "the pod holds its memory", func() bool {
		_, held := read()
		return held > burntMiB<<20
	})
	look := func() moment {
		cpu, _ := read()
		return moment{cpu, time.Now()}
	}
	var m moments
	m[0] = look()
	first := onePod(t, s)
	m[1] = look()
	time.Sleep(2 * time.Second)
	m[2] = look()
	_, memory := read()
	second := onePod(t, s)
	m[3] = look()
	low, high := m.rates()

	p, c := second, second.Containers[0]
	between(t, "pod's CPU", *p.CPU.UsageCoreNanoSeconds, m[2].cpu, m[3].cpu)
	between(t, "container's CPU", *c.CPU.UsageCoreNanoSeconds, m[2].cpu/2, m[3].cpu)
	between(t, "pod's rate", *p.CPU.UsageNanoCores, low/2, high*2)
	between(t, "container's rate", *c.CPU.UsageNanoCores, low/2, high*2)
	between(t, "pod's memory", *p.Memory.WorkingSetBytes, memory*9/10, memory*11/10)
	between(t, "container's memory", *c.Memory.WorkingSetBytes, burntMiB<<20, memory*11/10)
	if *first.CPU.UsageCoreNanoSeconds >= *p.CPU.UsageCoreNanoSeconds {
		t.Error("the pod's CPU time does not grow")
	}
	if p.Network == nil || p.Network.Name != "eth0" || p.Network.RxBytes == nil {
		t.Errorf("network %+v", p.Network)
	}
	if p.ProcessStats == nil || *p.ProcessStats.ProcessCount < 1 {
		t.Errorf("processes %+v", p.ProcessStats)
	}
	if c.Logs == nil || p.EphemeralStorage == nil {
		t.Errorf("logs %+v, ephemeral storage %+v", c.Logs, p.EphemeralStorage)
	}
	t.Run("node", func(t *testing.T) { checkNode(t, s) })
	t.Run("metrics-server", func(t *testing.T) { scrapeTwice(t, s, look) })
	t.Run("cadvisor", func(t *testing.T) { checkCadvisorPage(t, s) })
}

func onePod(t *testing.T, s *Source) statsapi.PodStats {
	t.Helper()
	summary, err := s.Summary(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	if len(summary.Pods) != 1 || len(summary.Pods[0].Containers) != 1 ||
		summary.Pods[0].CPU == nil || summary.Pods[0].Containers[0].CPU == nil {
		t.Fatalf("want one pod of one container: %+v", summary.Pods)
	}
	return summary.Pods[0]
}

func between(t *testing.T, name string, got, low, high uint64) {
	t.Helper()
	if got < low || got > high {
		t.Errorf("the %s is %d, want it between %d and %d", name, got, low, high)
	}
}

func checkNode(t *testing.T, s *Source) {
	summary, err := s.Summary(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	n := summary.Node
	if n.CPU == nil || n.CPU.UsageNanoCores == nil || n.Memory == nil || n.Fs == nil ||
		n.Network == nil || n.Rlimit == nil || n.Swap == nil {
		t.Fatalf("node %+v", n)
	}
	if *n.Memory.WorkingSetBytes < burntMiB<<20 ||
		*n.Memory.WorkingSetBytes+*n.Memory.AvailableBytes > 1<<50 {
		t.Errorf("memory of the node: %d used, %d available", *n.Memory.WorkingSetBytes,
			*n.Memory.AvailableBytes)
	}
	// containerd measures the usage of images only ten seconds after its start.
	if n.Runtime == nil || n.Runtime.ImageFs == nil || n.Runtime.ImageFs.CapacityBytes == nil {
		t.Errorf("file systems of the runtime %+v", n.Runtime)
	}
	if _, err := os.Stat("/proc/pressure/cpu"); err == nil && n.CPU.PSI == nil {
		t.Error("the kernel has PSI and the node has not")
	}
	names := map[string]bool{}
	for _, c := range n.SystemContainers {
		names[c.Name] = true
	}
	if !names[statsapi.SystemContainerPods] {
		t.Errorf("no cgroup of the pods in %+v", n.SystemContainers)
	}
}

// scrape parses /metrics/resource as metrics-server does: by name and labels, with the time of the
// sample or else of the scrape.
func scrape(t *testing.T, s *Source) map[string]sample {
	t.Helper()
	mux := http.NewServeMux()
	s.Register(mux)
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics/resource", nil))
	found := map[string]sample{}
	for line := range strings.Lines(w.Body.String()) {
		fields := strings.Fields(line)
		if len(fields) < 2 || fields[0] == "#" {
			continue
		}
		value, err := strconv.ParseFloat(fields[1], 64)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		at := time.Now()
		if len(fields) == 3 {
			ms, err := strconv.ParseInt(fields[2], 10, 64)
			if err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			at = time.UnixMilli(ms)
		}
		found[fields[0]] = sample{value, at}
	}
	return found
}

// moment is the CPU time of the pod's cgroup in nanoseconds at a time.
type moment struct {
	cpu uint64
	at  time.Time
}

// moments are looks at the cgroup before and after a first measurement, and before and after a
// second one. On a busy machine a measurement takes long.
type moments [4]moment

// rates returns bounds of the CPU time per second between the two measurements, in nanoseconds.
func (m moments) rates() (low, high uint64) {
	return uint64(float64(m[2].cpu-m[1].cpu) / m[3].at.Sub(m[0].at).Seconds()),
		uint64(float64(m[3].cpu-m[0].cpu) / m[2].at.Sub(m[1].at).Seconds())
}

type sample struct {
	value float64
	at    time.Time
}

func scrapeTwice(t *testing.T, s *Source, look func() moment) {
	const labels = `{container="main",namespace="default",pod="oven"}`
	var m moments
	m[0] = look()
	first := scrape(t, s)
	m[1] = look()
	time.Sleep(time.Second)
	m[2] = look()
	second := scrape(t, s)
	m[3] = look()
	low, high := m.rates()
	for name, most := range map[string]float64{
		"container_cpu_usage_seconds_total" + labels: float64(high) * 2 / 1e9,
		"node_cpu_usage_seconds_total":               math.Inf(1),
	} {
		a, b := first[name], second[name]
		passed := b.at.Sub(a.at)
		got := (b.value - a.value) / passed.Seconds()
		if a.value == 0 || passed < 500*time.Millisecond || passed > m[3].at.Sub(m[0].at) ||
			got < float64(low)/2/1e9 || got > most {
			t.Errorf("%s: %v then %v: %f a second, want %d to %d ns", name, a, b, got, low, high)
		}
	}
	for _, name := range []string{"node_memory_working_set_bytes",
		"container_memory_working_set_bytes" + labels} {
		if second[name].value < burntMiB<<20 {
			t.Errorf("%s is %v", name, second[name])
		}
	}
	start := second["container_start_time_seconds"+labels].value
	if age := time.Since(time.Unix(int64(start), 0)); age < 0 || age > 5*time.Minute {
		t.Errorf("the container was started %s ago", age)
	}
	if failed := second["resource_scrape_error"].value; failed != 0 {
		t.Errorf("resource_scrape_error is %f", failed)
	}
}

func checkCadvisorPage(t *testing.T, s *Source) {
	mux := http.NewServeMux()
	s.Register(mux)
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics/cadvisor", nil))
	series := map[string]int{}
	for line := range strings.Lines(w.Body.String()) {
		name, labels, _ := strings.Cut(line, "{")
		if strings.Contains(labels, `pod="oven"`) {
			series[name]++
		}
	}
	for name, want := range map[string]int{ // the pod, its sandbox and its container
		"container_cpu_usage_seconds_total": 3, "container_memory_working_set_bytes": 3,
		"container_network_receive_bytes_total": 1, "container_processes": 3,
	} {
		if series[name] != want {
			t.Errorf("%d series of %s, want %d", series[name], name, want)
		}
	}
}
