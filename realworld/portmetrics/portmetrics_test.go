package portmetrics

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newMetrics(expiry time.Time) *Metrics {
	return New(Options{Version: "v1.36.3", ClientExpiry: func() time.Time { return expiry }})
}

func TestRuntimeCalls(t *testing.T) {
	n := newMetrics(time.Time{})
	var err error
	call := func(method string, request any) {
		got := n.RuntimeCalls(t.Context(), "/runtime.v1.RuntimeService/"+method, request, nil, nil,
			func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error {
				return err
			})
		if !errors.Is(got, err) {
			t.Errorf("%s gives %v, want %v", method, got, err)
		}
	}
	call("ListContainers", nil)
	call("RunPodSandbox", &runtimeapi.RunPodSandboxRequest{RuntimeHandler: "kata"})
	err = errors.New("no")
	call("ListContainers", nil)
	call("RunPodSandbox", &runtimeapi.RunPodSandboxRequest{RuntimeHandler: "kata"})
	if err := testutil.GatherAndCompare(n, strings.NewReader(`
# HELP kubelet_runtime_operations_total Calls of the container runtime.
# TYPE kubelet_runtime_operations_total counter
kubelet_runtime_operations_total{operation_type="list_containers"} 2
kubelet_runtime_operations_total{operation_type="run_podsandbox"} 2
# HELP kubelet_runtime_operations_errors_total Calls of the container runtime that failed.
# TYPE kubelet_runtime_operations_errors_total counter
kubelet_runtime_operations_errors_total{operation_type="list_containers"} 1
kubelet_runtime_operations_errors_total{operation_type="run_podsandbox"} 1
# HELP kubelet_run_podsandbox_errors_total Sandboxes that the container runtime failed to create.
# TYPE kubelet_run_podsandbox_errors_total counter
kubelet_run_podsandbox_errors_total{runtime_handler="kata"} 1
`), "kubelet_runtime_operations_total", "kubelet_runtime_operations_errors_total",
		"kubelet_run_podsandbox_errors_total"); err != nil {
		t.Error(err)
	}
	if got := count(t, n, "kubelet_runtime_operations_duration_seconds"); got != 4 {
		t.Errorf("%d durations, want 4", got)
	}
}

// count returns the number of samples of a histogram, over all labels.
func count(t *testing.T, g prometheus.Gatherer, name string) (n uint64) {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.Metric {
			if f.GetName() == name {
				n += m.GetHistogram().GetSampleCount()
			}
		}
	}
	return n
}

func TestOperationNames(t *testing.T) {
	for method, want := range map[string]string{
		"Version": "version", "RunPodSandbox": "run_podsandbox", "ExecSync": "exec_sync",
		"ListPodSandbox": "list_podsandbox", "PodSandboxStatus": "podsandbox_status",
		"ImageFsInfo": "image_fs_info", "ReopenContainerLog": "reopen_container_log",
		"ListPodSandboxMetrics": "list_podsandbox_metrics", "PullImage": "pull_image",
	} {
		if got := operationName(method); got != want {
			t.Errorf("%s is %q, want %q", method, got, want)
		}
	}
}

// requests returns the number of requests by method, path and whether they are long running.
func requests(t *testing.T, g prometheus.Gatherer) map[string]float64 {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	counted := map[string]float64{}
	for _, f := range families {
		for _, m := range f.Metric {
			labels := map[string]string{}
			for _, l := range m.Label {
				labels[l.GetName()] = l.GetValue()
			}
			if f.GetName() == "kubelet_http_requests_total" && labels["server_type"] == "readonly" {
				counted[labels["method"]+" "+labels["path"]+" "+labels["long_running"]] =
					m.GetCounter().GetValue()
			}
		}
	}
	return counted
}

// The label values are bounded, whatever clients request, and the in-flight count returns to zero.
func TestHandler(t *testing.T) {
	n := newMetrics(time.Time{})
	h := n.Handler(ReadOnly, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/pods" {
			panic(http.ErrAbortHandler)
		}
	}))
	for _, ask := range []struct{ method, path string }{
		{"GET", "/metrics"}, {"GET", "/metrics/probes"}, {"GET", "/metrics/../../etc"},
		{"GET", "/containerLogs/ns/pod/c"}, {"GET", "/pods"}, {"POST", "/exec/ns/pod/c"},
		{"BREW", "/coffee"}, {"BREW", "/tea"}, {"GET", "/"},
	} {
		func() {
			defer func() { _ = recover() }()
			r := httptest.NewRequest(ask.method, "/", nil)
			r.URL = &url.URL{Path: ask.path}
			h.ServeHTTP(httptest.NewRecorder(), r)
		}()
	}
	want := map[string]float64{
		"GET containerLogs false": 1, "GET metrics false": 1, "GET metrics/probes false": 1,
		"GET other false": 2, "GET pods false": 1, "other other false": 2, "POST exec true": 1,
	}
	if got := requests(t, n); !maps.Equal(got, want) {
		t.Errorf("counted %v, want %v", got, want)
	}
	if got := count(t, n, "kubelet_http_requests_duration_seconds"); got != 9 {
		t.Errorf("%d durations, want 9", got)
	}
	if testutil.CollectAndCount(n.http.inFlight) != 7 {
		t.Error("wrong number of in-flight series")
	}
	families, _ := n.Gather()
	for _, f := range families {
		for _, m := range f.Metric {
			if f.GetName() == "kubelet_http_inflight_requests" && m.GetGauge().GetValue() != 0 {
				t.Errorf("still in flight: %v", m)
			}
		}
	}
}

func TestClientRequests(t *testing.T) {
	n := newMetrics(time.Time{})
	before := count(t, n, "rest_client_request_duration_seconds")
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	client, err := rest.UnversionedRESTClientFor(&rest.Config{Host: server.URL, QPS: -1,
		ContentConfig: rest.ContentConfig{GroupVersion: &schema.GroupVersion{Version: "v1"},
			NegotiatedSerializer: scheme.Codecs.WithoutConversion()}})
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Get().AbsPath("/healthz").Do(t.Context()).Error(); err == nil {
		t.Error("the request succeeded")
	}
	client.Client.CloseIdleConnections()
	if got := testutil.ToFloat64(clientRequests.WithLabelValues("404", "GET", host)); got != 1 {
		t.Errorf("%v requests were counted, want 1", got)
	}
	if got := count(t, n, "rest_client_request_duration_seconds") - before; got != 1 {
		t.Errorf("%d durations, want 1", got)
	}
}

func TestTimeToLive(t *testing.T) {
	for expiry, want := range map[time.Time][2]float64{
		{}:                              {math.Inf(1), math.Inf(1)},
		time.Now().Add(time.Hour):       {3590, 3600},
		time.Now().Add(-10 * time.Hour): {-36010, -36000},
	} {
		got := testutil.ToFloat64(timeToLive(func() time.Time { return expiry }))
		if got < want[0] || got > want[1] {
			t.Errorf("%v until %v", got, expiry)
		}
	}
}

func TestBuildInfo(t *testing.T) {
	families, err := newMetrics(time.Time{}).Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "kubernetes_build_info" {
			continue
		}
		labels := map[string]string{}
		for _, l := range f.Metric[0].Label {
			labels[l.GetName()] = l.GetValue()
		}
		if labels["git_version"] != "v1.36.3" || labels["major"] != "1" || labels["minor"] != "36" {
			t.Errorf("build info %v", labels)
		}
		return
	}
	t.Error("no build info")
}

func TestLint(t *testing.T) {
	problems, err := testutil.GatherAndLint(newMetrics(time.Time{}))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems { // the kubelet's names are exempt in the test of all metrics
		if !strings.HasPrefix(p.Metric, podResourcePrefix) {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
}

func TestPodResourceCalls(t *testing.T) {
	n := newMetrics(time.Time{})
	for call, err := range map[string]error{"List": nil, "Get": errors.New("no"),
		"GetAllocatableResources": nil, "Invented": nil} {
		_, got := n.PodResourceCalls(t.Context(), nil,
			&grpc.UnaryServerInfo{FullMethod: "/v1.PodResourcesLister/" + call},
			func(context.Context, any) (any, error) { return nil, err })
		if !errors.Is(got, err) {
			t.Errorf("%s gives %v, want %v", call, got, err)
		}
	}
	for c, want := range map[*prometheus.CounterVec]float64{
		n.podResources.total: 4, n.podResources.requests["list"]: 1,
		n.podResources.requests["get"]: 1, n.podResources.requests["get_allocatable"]: 1,
		n.podResources.errors["get"]: 1,
	} {
		if got := testutil.ToFloat64(c.WithLabelValues("v1")); got != want {
			t.Errorf("counted %v, want %v", got, want)
		}
	}
}

// Each call of a CSI driver is counted by the code of its answer, and there is a bound on the
// drivers that have a label of their own.
func TestCSICalls(t *testing.T) {
	n := newMetrics(time.Time{})
	call := func(driver string, err error) {
		t.Helper()
		count := n.CSICalls(driver, driver == "migrated.test")
		got := count(t.Context(), "/csi.v1.Node/NodeStageVolume", nil, nil, nil,
			func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error {
				return err
			})
		if !errors.Is(got, err) {
			t.Errorf("gives %v, want %v", got, err)
		}
	}
	call("a.test", nil)
	call("a.test", status.Error(codes.Aborted, "pending"))
	call("migrated.test", nil)
	for i := range csiDriversMax {
		call(fmt.Sprint("driver-", i), nil)
	}
	counted := func(driver, code, migrated string) uint64 {
		var m dto.Metric
		metric := n.csi.durations.WithLabelValues(driver, "/csi.v1.Node/NodeStageVolume", code,
			migrated)
		if err := metric.(prometheus.Metric).Write(&m); err != nil {
			t.Fatal(err)
		}
		return m.Histogram.GetSampleCount()
	}
	if counted("a.test", "OK", "false") != 1 || counted("a.test", "Aborted", "false") != 1 ||
		counted("migrated.test", "OK", "true") != 1 ||
		counted("driver-0", "OK", "false") != 1 || counted(other, "OK", "false") != 2 {
		t.Error("the calls are not counted by driver and code")
	}
}
