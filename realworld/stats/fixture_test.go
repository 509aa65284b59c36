package stats

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/realworld/stats/cgroup"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// noon is the time of the first measurement.
var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// tree are the files of a machine with cgroup v2, 8 MiB of memory, and one pod of UID u-1 with the
// sandbox s1 and the container c1.
var tree = map[string]string{
	"proc/meminfo": "MemTotal: 8192 kB\nMemFree: 4096 kB\n" +
		"SwapTotal: 0 kB\nSwapFree: 0 kB",
	"proc/stat":                      "btime 1767300000",
	"proc/sys/kernel/pid_max":        "4194304",
	"proc/sys/kernel/threads-max":    "1000",
	"proc/loadavg":                   "0.20 0.18 0.12 1/80 11206",
	"proc/cpuinfo":                   "processor\t: 0\nprocessor\t: 1",
	"proc/sys/kernel/random/boot_id": "boot",
	"proc/1/net/dev": "Inter-| Receive\n face |bytes\n    lo: 9 9 0 0 0 0 0 0 9 9 0 0 0 0 0 0\n" +
		"  eth0: 10 2 3 4 0 0 0 0 50 6 7 8 0 0 0 0",
	"proc/77/net/dev": "a\nb\n  eth0: 100 20 0 0 0 0 0 0 500 60 0 0 0 0 0 0",
	"sys/empty":       "",

	"cgroup/cgroup.controllers": "cpu memory io pids",
	"cgroup/cpu.stat":           "usage_usec 50000000\nuser_usec 1\nsystem_usec 1",
	"cgroup/memory.stat":        "anon 5\nfile 4194299\ninactive_file 1048576\npgfault 3",

	"cgroup/kubepods/cpu.stat":       "usage_usec 20000000",
	"cgroup/kubepods/memory.current": "2000000",

	"cgroup/kubepods/burstable/podu-1/cpu.stat":       "usage_usec 3000000",
	"cgroup/kubepods/burstable/podu-1/memory.current": "300000",
	"cgroup/kubepods/burstable/podu-1/memory.stat":    "anon 150000\ninactive_file 100000",
	"cgroup/kubepods/burstable/podu-1/memory.max":     "max",

	"cgroup/kubepods/burstable/podu-1/c1/cpu.stat":       "usage_usec 2500000",
	"cgroup/kubepods/burstable/podu-1/c1/memory.current": "250000",
	"cgroup/kubepods/burstable/podu-1/c1/memory.stat":    "anon 150000\ninactive_file 50000",
	"cgroup/kubepods/burstable/podu-1/c1/memory.max":     "1000000",
	"cgroup/kubepods/burstable/podu-1/c1/cgroup.procs":   "78\n79",
	"cgroup/kubepods/burstable/podu-1/s1/cpu.stat":       "usage_usec 10",
	"cgroup/kubepods/burstable/podu-1/s1/cgroup.procs":   "77",
}

// bench is a source with files, a runtime and pods that a test changes.
type bench struct {
	*Source
	t       testing.TB
	root    string
	runtime *runtime
	mux     *http.ServeMux

	mu      sync.Mutex
	now     time.Time
	pods    []*v1.Pod
	podsErr error
	asked   int // for the pods
}

func newBench(t testing.TB, change ...func(*Options)) *bench {
	t.Helper()
	b := &bench{t: t, root: t.TempDir(), runtime: &runtime{}, now: noon, mux: http.NewServeMux()}
	b.lay(tree)
	opts := Options{
		NodeName: "n", Runtime: b.runtime, Images: b.runtime, Now: b.time,
		Pods: func(context.Context) ([]*v1.Pod, error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.asked++
			return b.pods, b.podsErr
		},
		RootDir: filepath.Join(b.root, "kubelet"), LogsDir: filepath.Join(b.root, "logs"),
		Roots: cgroup.Roots{Cgroup: filepath.Join(b.root, "cgroup"),
			Proc: filepath.Join(b.root, "proc"), Sys: filepath.Join(b.root, "sys")},
		RuntimeTimeout: time.Minute, VolumeAge: -1,
	}
	for _, c := range change {
		c(&opts)
	}
	b.Source = New(opts)
	b.Register(b.mux)
	t.Cleanup(b.Close)
	return b
}

func (b *bench) lay(files map[string]string) {
	b.t.Helper()
	for path, text := range files {
		path = filepath.Join(b.root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			b.t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text+"\n"), 0o644); err != nil {
			b.t.Fatal(err)
		}
	}
}

func (b *bench) time() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.now
}

func (b *bench) pass(d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.now = b.now.Add(d)
}

// get returns the response to a client.
func (b *bench) get(path string) *httptest.ResponseRecorder {
	b.t.Helper()
	w := httptest.NewRecorder()
	b.mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w
}

// podOf returns a pod of one running container.
func podOf(uid, name, container, id string) *v1.Pod {
	began := metav1.NewTime(noon.Add(-time.Hour))
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid), Name: name, Namespace: "ns"},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: container}}},
		Status: v1.PodStatus{StartTime: &began, ContainerStatuses: []v1.ContainerStatus{
			{Name: container, ContainerID: "containerd://" + id, Image: "image:1",
				State: v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: began}}},
		}},
	}
}

// runtime is a runtime whose responses a test sets.
type runtime struct {
	runtimeapi.RuntimeServiceClient
	runtimeapi.ImageServiceClient

	sandboxes  func(context.Context) ([]*runtimeapi.PodSandboxStats, error)
	containers func(context.Context) ([]*runtimeapi.ContainerStats, error)
	images     []*runtimeapi.FilesystemUsage
	metrics    func() ([]*runtimeapi.MetricDescriptor, []*runtimeapi.PodSandboxMetrics, error)
	sandbox    func(ctx context.Context, id string) (info string, err error)
}

func (r *runtime) ListMetricDescriptors(context.Context, *runtimeapi.ListMetricDescriptorsRequest,
	...grpc.CallOption) (*runtimeapi.ListMetricDescriptorsResponse, error) {
	if r.metrics == nil {
		return nil, status.Error(codes.Unimplemented, "no metrics")
	}
	descriptors, _, err := r.metrics()
	return &runtimeapi.ListMetricDescriptorsResponse{Descriptors: descriptors}, err
}

func (r *runtime) ListPodSandboxMetrics(context.Context, *runtimeapi.ListPodSandboxMetricsRequest,
	...grpc.CallOption) (*runtimeapi.ListPodSandboxMetricsResponse, error) {
	_, all, err := r.metrics()
	return &runtimeapi.ListPodSandboxMetricsResponse{PodMetrics: all}, err
}

// PodSandboxStatus answers as containerd does.
func (r *runtime) PodSandboxStatus(ctx context.Context, m *runtimeapi.PodSandboxStatusRequest,
	_ ...grpc.CallOption) (*runtimeapi.PodSandboxStatusResponse, error) {
	info, err := `{"pid":77,"image":"registry.test/pause:3"}`, error(nil)
	if r.sandbox != nil {
		info, err = r.sandbox(ctx, m.PodSandboxId)
	}
	response := &runtimeapi.PodSandboxStatusResponse{
		Status: &runtimeapi.PodSandboxStatus{Id: m.PodSandboxId}}
	if m.Verbose {
		response.Info = map[string]string{"info": info}
	}
	return response, err
}

func (r *runtime) ListPodSandboxStats(ctx context.Context,
	_ *runtimeapi.ListPodSandboxStatsRequest,
	_ ...grpc.CallOption) (*runtimeapi.ListPodSandboxStatsResponse, error) {
	if r.sandboxes == nil {
		return nil, status.Error(codes.Unimplemented, "no stats of sandboxes")
	}
	all, err := r.sandboxes(ctx)
	return &runtimeapi.ListPodSandboxStatsResponse{Stats: all}, err
}

func (r *runtime) ListContainerStats(ctx context.Context, _ *runtimeapi.ListContainerStatsRequest,
	_ ...grpc.CallOption) (*runtimeapi.ListContainerStatsResponse, error) {
	if r.containers == nil {
		return &runtimeapi.ListContainerStatsResponse{}, nil
	}
	all, err := r.containers(ctx)
	return &runtimeapi.ListContainerStatsResponse{Stats: all}, err
}

func (r *runtime) ImageFsInfo(context.Context, *runtimeapi.ImageFsInfoRequest,
	...grpc.CallOption) (*runtimeapi.ImageFsInfoResponse, error) {
	return &runtimeapi.ImageFsInfoResponse{ImageFilesystems: r.images}, nil
}

func n(value uint64) *runtimeapi.UInt64Value { return &runtimeapi.UInt64Value{Value: value} }

// sandboxStats returns stats of a pod and one container, as containerd 2 reports them.
func sandboxStats(uid, container string, at time.Time, cpu, memory uint64,
) *runtimeapi.PodSandboxStats {
	return &runtimeapi.PodSandboxStats{
		Attributes: &runtimeapi.PodSandboxAttributes{Id: "s" + uid,
			Metadata: &runtimeapi.PodSandboxMetadata{Uid: uid}},
		Linux: &runtimeapi.LinuxPodSandboxStats{
			Cpu: &runtimeapi.CpuUsage{Timestamp: at.UnixNano(), UsageCoreNanoSeconds: n(cpu + 10)},
			Memory: &runtimeapi.MemoryUsage{Timestamp: at.UnixNano(), WorkingSetBytes: n(memory + 10),
				UsageBytes: n(memory + 20), AvailableBytes: n(0)},
			Process: &runtimeapi.ProcessUsage{ProcessCount: n(3)},
			Network: &runtimeapi.NetworkUsage{Timestamp: at.UnixNano(),
				DefaultInterface: &runtimeapi.NetworkInterfaceUsage{Name: "eth0", RxBytes: n(1),
					RxErrors: n(2), TxBytes: n(3), TxErrors: n(4)}},
			Containers: []*runtimeapi.ContainerStats{containerStats(container, at, cpu, memory)},
		},
	}
}

func containerStats(id string, at time.Time, cpu, memory uint64) *runtimeapi.ContainerStats {
	return &runtimeapi.ContainerStats{
		Attributes: &runtimeapi.ContainerAttributes{Id: id},
		Cpu: &runtimeapi.CpuUsage{Timestamp: at.UnixNano(), UsageCoreNanoSeconds: n(cpu),
			UsageNanoCores: n(0)},
		Memory: &runtimeapi.MemoryUsage{Timestamp: at.UnixNano(), WorkingSetBytes: n(memory),
			UsageBytes: n(memory + 5), AvailableBytes: n(7)},
		WritableLayer: &runtimeapi.FilesystemUsage{Timestamp: at.UnixNano(), UsedBytes: n(4096),
			InodesUsed: n(2)},
	}
}
