package stats

import (
	"errors"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// The page has the series that dashboards select, under their labels.
func TestCadvisor(t *testing.T) {
	b := newBench(t)
	b.pods = []*v1.Pod{podOf("u-1", "web", "main", "c1"), podOf("u-9", "gone", "main", "c9")}
	b.lay(map[string]string{"kubelet/empty": "", "proc/self/mounts": "/dev/vda / ext4 rw 0 0",
		"proc/diskstats": " 254 0 vda 1 2 3 4000 5 6 7 8000 9 10000 11 0 0",
		"cgroup/io.stat": "254:0 rbytes=10 wbytes=20 rios=1 wios=2",
		"cgroup/kubepods/burstable/podu-1/c1/cpu.max":      "50000 100000",
		"cgroup/kubepods/burstable/podu-1/c1/pids.current": "5",
		"proc/78/fd/0": "", "proc/79/fd/0": "", "proc/79/fd/1": ""})
	page := b.get("/metrics/cadvisor").Body.String()
	const pod, below = `namespace="ns",pod="web"`, `id="/kubepods/burstable/podu-1`
	const c1 = `{container="main",` + below + `/c1",image="image:1",name="c1",` + pod + `}`
	for _, want := range []string{
		`container_cpu_usage_seconds_total{container="main",cpu="total",` + below +
			`/c1",image="image:1",name="c1",` + pod + `} 2.5 `,
		`container_memory_working_set_bytes` + c1 + ` 200000 `,
		`container_memory_rss` + c1 + ` 150000 `,
		`container_spec_memory_limit_bytes` + c1 + ` 1e+06`,
		`container_spec_cpu_quota` + c1 + ` 50000`,
		`container_cpu_cfs_periods_total` + c1 + ` 0 `,
		`container_start_time_seconds` + c1 + ` 1.7673516e+09`,
		`container_processes` + c1 + ` 2 `,
		`container_file_descriptors` + c1 + ` 3 `,
		`container_threads` + c1 + ` 5 `,
		`container_oom_events_total` + c1 + ` 0 `,
		`container_memory_working_set_bytes{container="",` + below + `",image="",name="",` + pod +
			`} 200000 `,
		`container_network_receive_bytes_total{container="",` + below +
			`/s1",image="",interface="eth0",name="s1",` + pod + `} 100 `,
		`container_memory_working_set_bytes{container="",id="/kubepods",image="",name="",` +
			`namespace="",pod=""} 2e+06 `,
		`container_network_transmit_bytes_total{container="",id="/",image="",interface="eth0",` +
			`name="",namespace="",pod=""} 50 `,
		`container_fs_reads_total{container="",device="/dev/vda",id="/",image="",name="",` +
			`namespace="",pod=""} 1 `,
		`container_fs_read_seconds_total{container="",device="/dev/vda",id="/",image="",name="",` +
			`namespace="",pod=""} 4 `,
		`machine_cpu_cores{boot_id="boot",`, `machine_memory_bytes{boot_id="boot",`,
		"container_scrape_error 0", "machine_scrape_error 0", "cadvisor_version_info{",
	} {
		if strings.Count(page, "\n"+want) != 1 {
			t.Errorf("no %s", want)
		}
	}
	for _, unwanted := range []string{`pod="gone"`, "container_pressure", "load_average",
		`container_network_receive_bytes_total{container="main"`} {
		if strings.Contains(page, unwanted) {
			t.Errorf("there is %s", unwanted)
		}
	}
	if t.Failed() {
		t.Log(page)
	}
}

// PSI is shown where the kernel counts it.
func TestCadvisorPressure(t *testing.T) {
	const waits = "some avg10=0.00 avg60=0.00 avg300=0.00 total=2000000\n" +
		"full avg10=0.00 avg60=0.00 avg300=0.00 total=1000000"
	b := newBench(t)
	b.pods = []*v1.Pod{podOf("u-1", "web", "main", "c1")}
	b.lay(map[string]string{"proc/pressure/cpu": waits, "proc/pressure/memory": waits,
		"proc/pressure/io": waits,
		"cgroup/kubepods/burstable/podu-1/c1/memory.pressure": waits})
	page := b.get("/metrics/cadvisor").Body.String()
	for _, want := range []string{
		`container_pressure_cpu_waiting_seconds_total{container="",id="/",image="",name="",` +
			`namespace="",pod=""} 2 `,
		`container_pressure_memory_stalled_seconds_total{container="main",` +
			`id="/kubepods/burstable/podu-1/c1",image="image:1",name="c1",namespace="ns",pod="web"} 1 `,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("no %s in\n%s", want, page)
		}
	}
	if s := summaryOf(t, b, ""); s.Node.IO.PSI.Full.Total != 1000000 ||
		s.Pods[0].Containers[0].Memory.PSI.Some.Total != 2000000 {
		t.Errorf("the summary has %+v", s.Node.IO)
	}
}

// Without the pods there would be containers without names: then there are none.
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

// known are what promlint says of names that cAdvisor has had from its beginning, and that
// dashboards know.
var known = map[string]string{
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
		if known[problem.Metric] != problem.Text {
			t.Errorf("%s: %s", problem.Metric, problem.Text)
		}
		metrics = append(metrics, problem.Metric)
	}
	for metric := range known {
		if !slices.Contains(metrics, metric) {
			t.Errorf("%s is not complained about any more", metric)
		}
	}
}
