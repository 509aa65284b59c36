package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"google.golang.org/grpc"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"seedlet.dev/core"
	"seedlet.dev/core/config"
	"seedlet.dev/realworld/access"
	"seedlet.dev/realworld/clock"
	"seedlet.dev/realworld/containerapi"
	"seedlet.dev/realworld/identity"
	"seedlet.dev/realworld/portmetrics"
	"seedlet.dev/realworld/runner"
	"seedlet.dev/realworld/web"
	"seedlet.dev/world"
	"seedlet.dev/world/loop"
)

var update = flag.Bool("update", false, "write docs/metrics.md")

// countedState is merged into the snapshot of a new agent, so that every counter has a value.
const countedState = `{
  "eventStream": {"enabled": true}, "ooms": {"seen": 1, "omittedTotal": 1},
  "plugins": {"sockets": {"/root/plugins_registry/a.sock": {}}},
  "pods": {"u1": {"uid": "u1", "namespace": "default", "name": "web", "stage": "Syncing",
    "spec": {"metadata": {"namespace": "default", "name": "web"},
      "spec": {"containers": [{"name": "web"}], "volumes": [{"name": "tls", "projected": {
        "sources": [{"podCertificate": {"signerName": "example.com/a"}}]}}]}},
    "storage": {"certificates": {"certificates": [{"volume": "tls", "source": 0}]}}}},
  "metrics": {
    "pods": {"u1": {"probes": {"web Liveness": {"successful": 1, "failed": 1, "unknown": 1}}}},
    "containersStarted": {"container": 1},
    "containersFailed": {"container RunContainerError": 1},
    "containersTerminated": {"container 1 Error": 1},
    "imageRequests": {"always unknown true": 1}, "imageAccess": {"mustAuthenticate": 1},
    "podsRestarted": {"true": 1}, "rejected": {"NodeAffinity": 1}, "preempted": {"cpu": 1},
    "evicted": {"emptydirfs.limit": 1},
    "resizesRequested": {"memory limits increase": 1}, "resizesInfeasible": {"swap_limitation": 1},
    "resizesAccepted": {"pod_resized": 1}, "resizeDuration": {"true": {}},
    "workerDuration": {"sync": {}}, "imagePulls": {"N/A": {}},
    "volumeOperations": {"kubernetes.io/secret volume_mount success false": {}},
    "volumesMeasured": {"statfs": {}},
    "volumeLabels": {"volumes_admitted_total kubernetes.io/csi/d RWOP": 1,
      "container_errors_total RWOP": 1, "pod_context_mismatch_errors_total RWOP": 1,
      "volume_context_mismatch_errors_total kubernetes.io/csi/d RWOP": 1},
    "total": {"volumesMounted": [1, 0, 0, 0, 0, 0, 0, 0], "resizesDeferred": 1}
  },
  "images": {"node": {"configHash": "sha256:0", "runs": {"ecr": {}}, "failures": {"ecr": 1}}},
  "volumeStats": {"pods": {"u1": {"namespace": "default",
    "volumes": {"data": {"claim": "data", "latest": {"condition": {"abnormal": true}}}}}}},
  "node": {"cgroups": {"policy": {"memoryQoS": true}}, "podCertificates": true}
}`

// overlay merges one JSON object into another.
func overlay(under, over map[string]any) {
	for key, value := range over {
		below, isObject := under[key].(map[string]any)
		if above, is := value.(map[string]any); is && isObject {
			overlay(below, above)
			continue
		}
		under[key] = value
	}
}

// agentWithMetrics returns an agent in which every counter has a value.
func agentWithMetrics(t *testing.T) *core.Agent {
	t.Helper()
	c := &kubeletconfig.KubeletConfiguration{}
	config.SetDefaults(c)
	agent := core.New(core.Options{Config: c, NodeName: "n1", RootDir: "/root", HasAPIServer: true})
	agent.Step(world.Event{Time: time.Unix(1e9, 0), Body: &world.Boot{CPUs: 2}})
	data, err := agent.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	var state, over map[string]any
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	err = errors.Join(decoder.Decode(&state), json.Unmarshal([]byte(countedState), &over))
	if err != nil {
		t.Fatal(err)
	}
	overlay(state, over)
	if data, err = json.Marshal(state); err != nil {
		t.Fatal(err)
	}
	if agent, err = core.Restore(data); err != nil {
		t.Fatal(err)
	}
	return agent
}

// idle is a port that does nothing.
type idle struct{}

func (idle) Do(world.Effect) {}

// everyMetric serves the metrics of an agent in which every counter has a value.
func everyMetric(t *testing.T) http.Handler {
	t.Helper()
	numbers := portmetrics.New(portmetrics.Options{Version: version,
		ClientExpiry: func() time.Time { return time.Time{} }})
	countPortMetrics(t, numbers)
	var l *loop.Loop
	var turn sync.Mutex
	requests := web.New(web.Options{Gatherer: numbers, CheckLog: func() error { return nil },
		ServerMetrics: serverNode(t).serverMetrics,
		Loop:          func() ([]world.Metric, loop.Histogram) { return l.Metrics(), l.StepDurations() },
		Offer: func(_ context.Context, ev world.Event) bool {
			turn.Lock()
			defer turn.Unlock()
			l.Offer(ev)
			for l.Turn(time.Now()) {
			}
			return true
		}})
	ports := map[world.PortName]world.Port{world.PortRequests: requests}
	for _, name := range []world.PortName{world.PortCRI, world.PortFS, world.PortAPI,
		world.PortHost, world.PortNetwork, world.PortPlugins, world.PortLog} {
		ports[name] = idle{}
	}
	l = loop.New(loop.Options{Core: agentWithMetrics(t), Ports: ports})
	return numbers.Handler(portmetrics.ReadOnly, requests.ReadOnly())
}

// serverNode returns a node of which only the servers run.
func serverNode(t *testing.T) *node {
	t.Helper()
	n := &node{runner: runner.New(clock.New()),
		containers: containerapi.New(containerapi.Options{}),
		api:        &apiConnection{identity: &identity.Identity{}}}
	c := &kubeletconfig.KubeletConfiguration{}
	config.SetDefaults(c)
	var err error
	n.access, err = access.New(access.Options{Authentication: c.Authentication,
		Authorization: c.Authorization, Warn: func(string) {}})
	if err != nil {
		t.Fatal(err)
	}
	n.serving, err = identity.NewServing(identity.ServingOptions{Request: true,
		CertDir: t.TempDir(), Warn: func(string) {}})
	if err != nil {
		t.Fatal(err)
	}
	noCertificate := func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return nil, nil }
	server, err := web.ListenTLS("127.0.0.1", 0, http.NotFoundHandler(),
		&tls.Config{GetCertificate: noCertificate})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	n.servers = []*web.Server{server}
	return n
}

// countPortMetrics increments every metric that the ports record.
func countPortMetrics(t *testing.T, numbers *portmetrics.Metrics) {
	t.Helper()
	_ = numbers.RuntimeCalls(t.Context(), "/runtime.v1.RuntimeService/RunPodSandbox",
		&runtimeapi.RunPodSandboxRequest{}, nil, nil,
		func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error {
			return errors.New("it fails, to be counted")
		})
	calls := numbers.CSICalls("driver.test", false)
	_ = calls(t.Context(), "/csi.v1.Node/NodeStageVolume", nil, nil, nil,
		func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error {
			return nil
		})
	for _, call := range []string{"List", "Get", "GetAllocatableResources"} {
		_, _ = numbers.PodResourceCalls(t.Context(), nil, &grpc.UnaryServerInfo{
			FullMethod: "/v1.PodResourcesLister/" + call,
		}, func(context.Context, any) (any, error) { return nil, errors.New("to be counted") })
	}
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	client, err := rest.UnversionedRESTClientFor(&rest.Config{Host: server.URL, QPS: -1,
		ContentConfig: rest.ContentConfig{GroupVersion: &schema.GroupVersion{Version: "v1"},
			NegotiatedSerializer: scheme.Codecs.WithoutConversion()}})
	if err != nil {
		t.Fatal(err)
	}
	_ = client.Get().AbsPath("/").Do(t.Context()).Error() // only the metric matters
}

// scrape returns the text of a page of metrics.
func scrape(t *testing.T, h http.Handler, path string) string {
	t.Helper()
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, path, nil))
	if rec.Code != http.StatusOK {
		t.Fatalf("%s: %d %s", path, rec.Code, rec.Body)
	}
	return rec.Body.String()
}

const metricsPage = "../../docs/metrics.md"

const metricsPageHead = `# Metrics

The metrics of the agent in the text format of Prometheus: '/metrics' of the HTTP API, and
'/metrics/probes' for the results of container probes. Names without the prefix 'seedlet_' are those
of the kubelet, with its labels and buckets, so that its dashboards and alerts keep working. Most
series with labels appear with the first event that they count.

This page is generated by 'go test ./cmd/seedlet -run TestMetricsPage -update'; the same test
compares it with what is served. '/metrics' also has 'go_*' and 'process_*', which every program
with the Prometheus client has. '/metrics/slis' has the results of the checks of '/healthz', as in
every component of Kubernetes: 'kubernetes_healthcheck' and 'kubernetes_healthchecks_total'. The
usage of the node, its pods and containers is on '/metrics/resource' and '/metrics/cadvisor', as on
a kubelet.
`

// tableOf returns a Markdown table of the metrics of a page.
func tableOf(t *testing.T, text string) string {
	t.Helper()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	table := "\n| name | type | labels | meaning |\n|---|---|---|---|\n"
	for _, name := range slices.Sorted(maps.Keys(families)) {
		f := families[name]
		if strings.HasPrefix(name, "go_") || strings.HasPrefix(name, "process_") {
			continue
		}
		var labels []string
		for _, l := range f.Metric[0].Label {
			labels = append(labels, "`"+l.GetName()+"`")
		}
		kind := strings.ToLower(dto.MetricType_name[int32(f.GetType())])
		table += fmt.Sprintf("| `%s` | %s | %s | %s |\n", name, kind, strings.Join(labels, " "),
			f.GetHelp())
	}
	return table
}

// The page lists every metric that is served, and no other.
func TestMetricsPage(t *testing.T) {
	agent := everyMetric(t)
	agent.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/pods", nil))
	served := strings.ReplaceAll(metricsPageHead, "'", "`") +
		"\n## /metrics\n" + tableOf(t, scrape(t, agent, "/metrics")) +
		"\n## /metrics/probes\n" + tableOf(t, scrape(t, agent, "/metrics/probes"))
	if *update {
		if err := os.WriteFile(metricsPage, []byte(served), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	page, err := os.ReadFile(metricsPage)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(page), served); diff != "" {
		t.Errorf("docs/metrics.md is not what is served (-page +served):\n%s", diff)
	}
}

// lintExceptions are names of the kubelet that promlint rejects.
var lintExceptions = map[string]string{
	"kubelet_preemptions":                                        noTotal,
	"kubelet_evictions":                                          noTotal,
	"kubelet_pod_resources_endpoint_requests_list":               noTotal,
	"kubelet_pod_resources_endpoint_requests_get":                noTotal,
	"kubelet_pod_resources_endpoint_requests_get_allocatable":    noTotal,
	"kubelet_pod_resources_endpoint_errors_list":                 noTotal,
	"kubelet_pod_resources_endpoint_errors_get":                  noTotal,
	"kubelet_pod_resources_endpoint_errors_get_allocatable":      noTotal,
	"kubelet_evented_pleg_connection_success_count":              isCount,
	"kubelet_evented_pleg_connection_error_count":                isCount,
	"kubelet_pod_resize_duration_milliseconds":                   isMillis,
	"kubelet_server_expiration_renew_errors":                     noTotal,
	"kubelet_certificate_manager_client_expiration_renew_errors": noTotal,

	"volume_manager_selinux_container_errors_total":               isGauge,
	"volume_manager_selinux_pod_context_mismatch_errors_total":    isGauge,
	"volume_manager_selinux_volume_context_mismatch_errors_total": isGauge,
	"volume_manager_selinux_volumes_admitted_total":               isGauge,
}

const (
	noTotal  = `counter metrics should have "_total" suffix`
	isGauge  = `non-counter metrics should not have "_total" suffix`
	isMillis = `use base unit "seconds" instead of "milliseconds"`
	isCount  = `non-histogram and non-summary metrics should not have "_count" suffix`
)

func TestMetricsLint(t *testing.T) {
	agent, found := everyMetric(t), map[string]string{}
	for _, path := range []string{"/metrics", "/metrics/probes"} {
		problems, err := promlint.New(strings.NewReader(scrape(t, agent, path))).Lint()
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range problems {
			found[p.Metric] = p.Text
		}
	}
	if diff := cmp.Diff(lintExceptions, found); diff != "" {
		t.Errorf("promlint says (-expected +found):\n%s", diff)
	}
}

// dashboards are the names that dashboards and alerts of users select.
var dashboards = strings.Fields(`
	kubelet_running_pods kubelet_running_containers kubelet_pod_start_sli_duration_seconds
	kubelet_pod_start_duration_seconds kubelet_pod_worker_duration_seconds
	kubelet_pod_worker_start_duration_seconds kubelet_pleg_relist_duration_seconds
	kubelet_pleg_relist_interval_seconds kubelet_pleg_last_seen_seconds
	kubelet_runtime_operations_total kubelet_runtime_operations_duration_seconds
	kubelet_runtime_operations_errors_total kubelet_node_name kubelet_desired_pods
	kubelet_active_pods kubelet_mirror_pods kubelet_working_pods kubelet_started_pods_total
	kubelet_containers_per_pod_count kubelet_cgroup_version
	kubelet_started_user_namespaced_pods_total kubelet_image_volume_requested_total
	kubelet_node_startup_registration_duration_seconds kubelet_node_startup_duration_seconds
	kubelet_node_startup_pre_kubelet_duration_seconds kubelet_terminated_containers_total
	kubelet_pod_status_sync_duration_seconds kubelet_sleep_action_terminated_early_total
	kubelet_image_manager_ensure_image_requests_total kubelet_metrics_provider
	kubelet_first_network_pod_start_sli_duration_seconds volume_manager_total_volumes
	storage_operation_duration_seconds
	kubelet_evented_pleg_connection_success_count
	kubelet_started_containers_total kubelet_started_pods_errors_total
	kubelet_started_containers_errors_total kubelet_restarted_pods_total
	kubelet_image_pull_duration_seconds kubelet_http_requests_total
	kubelet_http_requests_duration_seconds kubelet_http_inflight_requests kubernetes_build_info
	rest_client_requests_total rest_client_request_duration_seconds
	kubelet_certificate_manager_server_ttl_seconds kubelet_server_expiration_renew_errors
	kubelet_websocket_streaming_requests_total
	kubelet_certificate_manager_client_ttl_seconds process_resident_memory_bytes
	process_cpu_seconds_total process_start_time_seconds go_goroutines go_info`)

func TestDashboards(t *testing.T) {
	agent := everyMetric(t)
	agent.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/pods", nil))
	page := scrape(t, agent, "/metrics")
	for _, name := range dashboards {
		if !strings.Contains(page, "\n# TYPE "+name+" ") {
			t.Errorf("%s is not served", name)
		}
	}
	probes := scrape(t, agent, "/metrics/probes")
	for _, name := range []string{"prober_probe_total", "prober_probe_duration_seconds",
		"process_start_time_seconds"} {
		if !strings.Contains(probes, "# TYPE "+name+" ") {
			t.Errorf("%s is not served with the probes", name)
		}
	}
}
