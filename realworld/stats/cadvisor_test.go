package stats

import (
	"compress/gzip"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/cadvisor/lib/container"
	"github.com/google/cadvisor/lib/machine"
	"github.com/google/cadvisor/lib/metrics"
	"github.com/google/cadvisor/lib/model"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
)

// series are the samples of a page: their values, by names and sorted labels.
func series(t *testing.T, page string) map[string]string {
	t.Helper()
	found := map[string]string{}
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		parts := sampleForm.FindStringSubmatch(line)
		if parts == nil {
			t.Fatalf("no sample: %s", line)
		}
		labels := labelForm.FindAllString(parts[2], -1)
		slices.Sort(labels)
		name := parts[1] + "{" + strings.Join(labels, ",") + "}"
		if _, twice := found[name]; twice {
			t.Errorf("twice: %s", name)
		}
		found[name] = parts[3] + parts[4]
	}
	return found
}

var (
	sampleForm = regexp.MustCompile(`^([a-z0-9_]+)(?:\{(.*)\})? (\S+)( \d+)?\n$`)
	labelForm  = regexp.MustCompile(`[a-zA-Z_]+="(?:[^"\\]|\\.)*"`)
)

// fullBench is a bench with one pod and at least one metric of every kind.
func fullBench(t *testing.T) *bench {
	b := newBench(t)
	b.pods = []*v1.Pod{podOf("u-1", "web", "main", "c1"), podOf("u-9", "gone", "main", "c9")}
	const waits = "some avg10=0.00 avg60=0.00 avg300=0.00 total=2000000\n" +
		"full avg10=0.00 avg60=0.00 avg300=0.00 total=1000000"
	const c1 = "cgroup/kubepods/burstable/podu-1/c1/"
	b.lay(map[string]string{"kubelet/empty": "", "proc/self/mounts": "/dev/vda / ext4 rw 0 0",
		"proc/diskstats":    " 254 0 vda 1 2 3 4000 5 6 7 8000 9 10000 11 0 0",
		"proc/pressure/cpu": waits, "proc/pressure/memory": waits, "proc/pressure/io": waits,
		"cgroup/io.stat": "254:0 rbytes=10 wbytes=20 rios=1 wios=2",
		c1 + "io.stat":   "254:0 rbytes=11 wbytes=21 rios=2 wios=3 dbytes=0 dios=0",
		c1 + "cpu.max":   "50000 100000", c1 + "cpu.weight": "39", c1 + "pids.current": "5",
		c1 + "cpu.stat": "usage_usec 2500000\nuser_usec 3\nsystem_usec 4\nnr_periods 5\n" +
			"nr_throttled 6\nthrottled_usec 7\nnr_bursts 8\nburst_usec 9",
		c1 + "memory.stat": "anon 150000\ninactive_file 50000\nfile 1\nkernel 2\nfile_mapped 3\n" +
			"active_file 4\nfile_dirty 5\nfile_writeback 6\npgfault 7\npgmajfault 8\npgscan 9\n" +
			"pgsteal 10\nworkingset_refault_file 11\nworkingset_refault_anon 12",
		c1 + "memory.swap.current": "13", c1 + "memory.peak": "14", c1 + "memory.min": "15",
		c1 + "memory.swap.max": "16", c1 + "memory.events": "high 17\nmax 18\noom_kill 19",
		c1 + "cpu.pressure": waits, c1 + "memory.pressure": waits, c1 + "io.pressure": waits,
		"cgroup/kubepods/burstable/cpu.stat":                 "usage_usec 1",
		"cgroup/kubepods/burstable/memory.current":           "1",
		"cgroup/kubepods/burstable/podu-1/s1/memory.current": "1",
		"proc/78/fd/0": "", "proc/79/fd/0": "", "proc/79/fd/1": ""})
	return b
}

// The page has the series that dashboards select, with their labels.
func TestCadvisor(t *testing.T) {
	found := series(t, fullBench(t).get("/metrics/cadvisor").Body.String())
	const pod, below = `namespace="ns",pod="web"`, `id="/kubepods/burstable/podu-1`
	const c1 = `{container="main",` + below + `/c1",image="image:1",name="c1",` + pod + `}`
	const none = `image="",name="",namespace="",pod=""}`
	for name, want := range map[string]string{
		`container_cpu_usage_seconds_total{container="main",cpu="total",` + below +
			`/c1",image="image:1",name="c1",` + pod + `}`: "2.5",
		`container_memory_working_set_bytes` + c1:                                  "200000",
		`container_memory_rss` + c1:                                                "150000",
		`container_spec_memory_limit_bytes` + c1:                                   "1e+06",
		`container_spec_cpu_quota` + c1:                                            "50000",
		`container_spec_cpu_shares` + c1:                                           "998",
		`container_cpu_cfs_periods_total` + c1:                                     "5",
		`container_start_time_seconds` + c1:                                        "1.7673516e+09",
		`container_processes` + c1:                                                 "2",
		`container_file_descriptors` + c1:                                          "3",
		`container_threads` + c1:                                                   "5",
		`container_oom_events_total` + c1:                                          "19",
		`container_pressure_memory_stalled_seconds_total` + c1:                     "1",
		`container_pressure_cpu_waiting_seconds_total{container="",id="/",` + none: "2",
		`container_memory_working_set_bytes{container="",` + below + `",image="",name="",` + pod +
			`}`: "200000",
		`container_network_receive_bytes_total{container="",` + below +
			`/s1",image="registry.test/pause:3",interface="eth0",name="s1",` + pod + `}`: "100",
		`container_memory_working_set_bytes{container="",id="/kubepods",` + none: "2e+06",
		`container_network_transmit_bytes_total{container="",id="/",image="",interface="eth0",` +
			`name="",namespace="",pod=""}`: "50",
		`container_fs_reads_total{container="",device="/dev/vda",id="/",` + none:        "1",
		`container_fs_read_seconds_total{container="",device="/dev/vda",id="/",` + none: "4",
		"container_scrape_error{}": "0",
		"machine_scrape_error{}":   "0",
	} {
		if got, _, _ := strings.Cut(found[name], " "); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	for name := range found {
		if strings.Contains(name, `pod="gone"`) || strings.HasPrefix(name,
			`container_network_receive_bytes_total{container="main"`) {
			t.Errorf("there is %s", name)
		}
	}
}

// excluded matches the series of cAdvisor that the page lacks or that differ: there is no health
// check of containers here, and no memory events of other kinds.
var excluded = regexp.MustCompile(`^(container_health_state|container_last_seen|machine_nvm_.*)\{`)

// The page equals what cAdvisor's own collectors produce from the same numbers.
func TestAsCadvisorsCollectors(t *testing.T) {
	b := fullBench(t)
	ours := series(t, b.get("/metrics/cadvisor").Body.String())
	found, err := b.cadvisor.get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	kinds := container.MetricSet{container.CpuUsageMetrics: {}, container.MemoryUsageMetrics: {},
		container.DiskIOMetrics: {}, container.DiskUsageMetrics: {}, container.OOMMetrics: {},
		container.NetworkUsageMetrics: {}, container.ProcessMetrics: {},
		container.PressureMetrics: {}}
	from := provider{found, b.measureMachine(t.Context())}
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics.NewPrometheusMachineCollector(from, kinds),
		metrics.NewPrometheusCollector(from, labelsOf, kinds, clock.RealClock{},
			model.RequestOptions{}))
	w := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(w,
		httptest.NewRequest(http.MethodGet, "/", nil))
	want := series(t, w.Body.String())
	for _, page := range []map[string]string{ours, want} {
		maps.DeleteFunc(page, func(name, _ string) bool { return excluded.MatchString(name) })
	}
	if len(want) < 200 {
		t.Errorf("only %d series", len(want))
	}
	if diff := cmp.Diff(want, ours); diff != "" {
		t.Errorf("-theirs +ours:\n%s", diff)
	}
}

// provider is the source of data of cAdvisor's collectors.
type provider struct {
	*cgroupSample
	machine *model.MachineInfo
}

func (p provider) GetRequestedContainersInfo(string,
	model.RequestOptions) (map[string]*model.ContainerInfo, error) {
	all := map[string]*model.ContainerInfo{}
	for _, c := range p.all {
		one := &model.ContainerInfo{ContainerReference: model.ContainerReference{Name: c.path},
			Spec: c.spec, Stats: []*model.ContainerStats{c.ContainerStats}}
		one.Spec.Image, one.Aliases = c.image, []string{c.id}
		one.Spec.Labels = map[string]string{"pod": c.pod, "namespace": c.namespace,
			"container": c.container}
		all[c.path] = one
	}
	return all, p.err
}

func (p provider) GetVersionInfo() (*model.VersionInfo, error) {
	return &model.VersionInfo{KernelVersion: machine.KernelVersion(),
		ContainerOsVersion: machine.ContainerOsVersion()}, nil
}

func (p provider) GetMachineInfo() (*model.MachineInfo, error) { return p.machine, nil }

func labelsOf(c *model.ContainerInfo) map[string]string {
	labels := map[string]string{"id": c.Name, "name": c.Aliases[0], "image": c.Spec.Image}
	maps.Copy(labels, c.Spec.Labels)
	return labels
}

// Special characters in names are escaped, and a client that accepts gzip gets the page compressed.
func TestCadvisorAsText(t *testing.T) {
	b := newBench(t)
	b.pods = []*v1.Pod{podOf("u-1", "web", "main", "c1")}
	b.pods[0].Status.ContainerStatuses[0].Image = "a\"b\\c\nd"
	plain := b.get("/metrics/cadvisor").Body.String()
	if !strings.Contains(plain, `image="a\"b\\c\nd"`) {
		t.Error("an image's name is not escaped")
	}
	r := httptest.NewRequest(http.MethodGet, "/metrics/cadvisor", nil)
	r.Header.Set("Accept-Encoding", "gzip")
	w := httptest.NewRecorder()
	b.mux.ServeHTTP(w, r)
	packed, err := gzip.NewReader(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(packed)
	if err != nil || string(text) != plain {
		t.Errorf("packed it is another page: %d bytes of %d, %v", len(text), len(plain), err)
	}
}

// Without PSI in the kernel the page has none; with it the summary has it as well.
func TestPressure(t *testing.T) {
	b := newBench(t)
	b.pods = []*v1.Pod{podOf("u-1", "web", "main", "c1")}
	if page := b.get("/metrics/cadvisor").Body.String(); strings.Contains(page,
		"container_pressure_cpu_waiting_seconds_total{") {
		t.Error("the kernel counts nothing, the page does")
	}
	if s := summaryOf(t, b, ""); s.Node.IO != nil || s.Node.CPU.PSI != nil {
		t.Errorf("the kernel counts nothing, the summary has %+v", s.Node.IO)
	}
	if s := summaryOf(t, fullBench(t), ""); s.Node.IO.PSI.Full.Total != 1000000 ||
		s.Pods[0].Containers[0].Memory.PSI.Some.Total != 2000000 {
		t.Errorf("the summary has %+v", s.Node.IO)
	}
}

// If the pods are unknown, the page has no containers: they would have no names.
func TestCadvisorWithoutPods(t *testing.T) {
	b := newBench(t)
	b.podsErr = errors.New("busy")
	page := b.get("/metrics/cadvisor").Body.String()
	if !strings.Contains(page, "\ncontainer_scrape_error 1") ||
		!strings.Contains(page, "machine_memory_bytes") ||
		strings.Contains(page, "container_memory_rss{") {
		t.Error(page)
	}
}

// lintExceptions are promlint's findings about names that cAdvisor has always had and that
// dashboards select.
var lintExceptions = map[string]string{
	"container_memory_failcnt":  `counter metrics should have "_total" suffix`,
	"container_fs_inodes_total": `non-counter metrics should not have "_total" suffix`,
	"cadvisor_version_info":     "label names should be written in 'snake_case' not 'camelCase'",
}

func TestCadvisorLint(t *testing.T) {
	b := newBench(t)
	b.pods = []*v1.Pod{podOf("u-1", "web", "main", "c1")}
	b.lay(map[string]string{"kubelet/empty": ""})
	var metrics []string
	for _, problem := range lint(t, b.get("/metrics/cadvisor").Body.String()) {
		if lintExceptions[problem.Metric] != problem.Text {
			t.Errorf("%s: %s", problem.Metric, problem.Text)
		}
		metrics = append(metrics, problem.Metric)
	}
	for metric := range lintExceptions {
		if !slices.Contains(metrics, metric) {
			t.Errorf("%s is not complained about any more", metric)
		}
	}
}
