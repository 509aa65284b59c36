package web_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-base/metrics/prometheus/slis"

	"seedlet.dev/realworld/web"
	"seedlet.dev/world"
	"seedlet.dev/world/loop"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// agent stands for the core behind the port.
type agent struct {
	port    *web.Port
	full    bool           // has no room for events
	stuck   bool           // takes requests and does not answer
	taken   sync.WaitGroup // of requests, in tests that wait for them
	waiting bool
	checks  []world.Check
	lanes   string // the problem of the loop's lanes
	metrics []world.Metric
	logErr  error
	pods    []*v1.Pod                       // nil for one pod
	offered atomic.Pointer[context.Context] // of the newest request
}

func newAgent() *agent {
	a := &agent{}
	a.port = web.New(web.Options{
		Offer:    a.offer,
		CheckLog: func() error { return a.logErr },
		LoopCheck: func() world.Check {
			return world.Check{Name: "lanes", Problem: a.lanes}
		},
		Loop: func() ([]world.Metric, loop.Histogram) {
			var h loop.Histogram
			h.Add(20 * time.Microsecond)
			h.Add(time.Second)
			return []world.Metric{{Name: "seedlet_inbox_events", Help: "Waiting.", Value: 3}}, h
		},
	})
	return a
}

func (a *agent) offer(ctx context.Context, ev world.Event) bool {
	a.offered.Store(&ctx)
	if a.waiting {
		defer a.taken.Done()
	}
	if a.full || a.stuck {
		return !a.full
	}
	var answer any
	switch m := ev.Body.(type) {
	case *world.PodsRequest:
		pods := a.pods
		if pods == nil {
			pods = []*v1.Pod{{
				ObjectMeta: metav1.ObjectMeta{Name: "web-node", Namespace: "default", UID: "u1"},
				Status:     v1.PodStatus{Phase: v1.PodRunning},
			}}
		}
		answer = &world.PodsAnswer{Request: m.Request, Pods: pods}
	case *world.RunningPodsRequest:
		answer = &world.RunningPodsAnswer{Request: m.Request, Pods: []*v1.Pod{{
			ObjectMeta: metav1.ObjectMeta{Name: "runs", Namespace: "default", UID: "u2"},
		}}}
	case *world.ContainerRequest:
		answer = &world.ContainerAnswer{Request: m.Request, UID: m.Pod + "-uid"}
	case *world.StateRequest:
		answer = &world.StateAnswer{Request: m.Request, State: []byte(`{"pods":{}}`)}
	case *world.HealthRequest:
		answer = &world.HealthAnswer{Request: m.Request, Checks: a.checks}
	case *world.MetricsRequest:
		answer = &world.MetricsAnswer{Request: m.Request, Metrics: a.metrics}
	}
	go func() {
		a.port.Do(world.Effect{Body: answer})
		a.port.Do(world.Effect{Body: answer}) // a second answer must do no harm
	}()
	return true
}

func get(t *testing.T, h http.Handler, path string) (int, string) {
	t.Helper()
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, path, nil))
	return rec.Code, rec.Body.String()
}

func TestPods(t *testing.T) {
	code, body := get(t, newAgent().port.ReadOnly(), "/pods")
	var list v1.PodList
	if err := json.Unmarshal([]byte(body), &list); err != nil || code != http.StatusOK {
		t.Fatalf("%d %s: %v", code, body, err)
	}
	if list.Kind != "PodList" || list.APIVersion != "v1" || len(list.Items) != 1 ||
		list.Items[0].Name != "web-node" || list.Items[0].Status.Phase != v1.PodRunning {
		t.Errorf("got %+v", list)
	}
}

// The list is what json.Marshal makes of a v1.PodList, with any number of pods.
func TestPodListEncoding(t *testing.T) {
	for n := range 3 {
		a := newAgent()
		a.pods = []*v1.Pod{}
		list := v1.PodList{Items: []v1.Pod{}}
		list.Kind, list.APIVersion = "PodList", "v1"
		for i := range n {
			pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: strings.Repeat("a", i+1)}}
			a.pods, list.Items = append(a.pods, pod), append(list.Items, *pod)
		}
		want, err := json.Marshal(list)
		if err != nil {
			t.Fatal(err)
		}
		if code, body := get(t, a.port.ReadOnly(), "/pods"); code != http.StatusOK ||
			body != string(want) {
			t.Errorf("%d pods: %d %s, want %s", n, code, body, want)
		}
	}
}

// slowWriter is a client that notes the largest piece that it is sent.
type slowWriter struct {
	*httptest.ResponseRecorder
	largest int
}

func (s *slowWriter) Write(data []byte) (int, error) {
	s.largest = max(s.largest, len(data))
	return s.ResponseRecorder.Write(data)
}

// Pods are encoded one by one: a client that reads slowly does not hold the whole list.
func TestPodsAreStreamed(t *testing.T) {
	a := newAgent()
	const podBytes = 100 << 10
	for range 50 {
		a.pods = append(a.pods, &v1.Pod{ObjectMeta: metav1.ObjectMeta{
			Annotations: map[string]string{"a": strings.Repeat("x", podBytes)}}})
	}
	client := &slowWriter{ResponseRecorder: httptest.NewRecorder()}
	a.port.ReadOnly().ServeHTTP(client, httptest.NewRequest(http.MethodGet, "/pods", nil))
	if got := client.Body.Len(); got < 50*podBytes {
		t.Errorf("%d bytes in all", got)
	}
	if client.largest > 2*podBytes {
		t.Errorf("a piece of %d bytes", client.largest)
	}
}

// The state is served to one client at a time; a client that has gone makes room.
func TestOneStateAtATime(t *testing.T) {
	a := newAgent()
	a.stuck, a.waiting = true, true
	a.taken.Add(1)
	handler := a.secure(nil)
	ctx, leave := context.WithCancel(t.Context())
	var first sync.WaitGroup
	first.Go(func() {
		handler.ServeHTTP(httptest.NewRecorder(),
			httptest.NewRequestWithContext(ctx, "GET", "/debug/state", nil))
	})
	a.taken.Wait()
	second := httptest.NewRecorder()
	handler.ServeHTTP(second, httptest.NewRequest("GET", "/debug/state", nil))
	if second.Code != http.StatusServiceUnavailable || second.Header().Get("Retry-After") == "" {
		t.Errorf("the second gets %d %v", second.Code, second.Header())
	}
	leave()
	first.Wait()
	if a.offered.Load() == nil || (*a.offered.Load()).Err() == nil {
		t.Error("the agent does not learn that the client has gone")
	}
	a.stuck, a.waiting = false, false
	if code, body := get(t, handler, "/debug/state"); code != http.StatusOK {
		t.Errorf("later: %d %s", code, body)
	}
	if _, body := get(t, handler, "/metrics"); !strings.Contains(body,
		"seedlet_http_requests_refused_total{reason=\"state\"} 1\n") {
		t.Error("the refusal is not counted")
	}
}

func TestState(t *testing.T) {
	rec := httptest.NewRecorder()
	newAgent().secure(nil).ServeHTTP(rec, httptest.NewRequest("GET", "/debug/state", nil))
	if rec.Body.String() != `{"pods":{}}` ||
		rec.Header().Get("Content-Type") != "application/json" {
		t.Errorf("got %v %s", rec.Header(), rec.Body)
	}
}

func TestHealth(t *testing.T) {
	const ok, bad = http.StatusOK, http.StatusInternalServerError
	cases := []struct {
		name  string
		setUp func(*agent)
		path  string
		code  int
		want  string
	}{
		{"plain", nil, "/healthz", ok, "ok"},
		{"verbose", nil, "/healthz?verbose", ok,
			"[+]ping ok\n[+]log ok\n[+]syncloop ok\n[+]lanes ok\nhealthz check passed\n"},
		{"ping", nil, "/healthz/ping", ok, "ok"},
		{"log", nil, "/healthz/log", ok, "ok"},
		{"syncloop", nil, "/healthz/syncloop", ok, "ok"},
		{"no such check", nil, "/healthz/none", http.StatusNotFound, "404 page not found\n"},
		{"log stuck", func(a *agent) { a.logErr = errors.New("stuck") }, "/healthz", bad,
			"[+]ping ok\n[-]log failed: stuck\n[+]syncloop ok\n[+]lanes ok\nhealthz check failed\n"},
		{"log stuck, alone", func(a *agent) { a.logErr = errors.New("stuck") }, "/healthz/log", bad,
			"internal server error: stuck\n"},
		{"log stuck, excluded", func(a *agent) { a.logErr = errors.New("stuck") },
			"/healthz?verbose&exclude=log", ok,
			"[+]ping ok\n[+]log excluded: ok\n[+]syncloop ok\n[+]lanes ok\nhealthz check passed\n"},
		{"the core's checks", func(a *agent) {
			a.checks = []world.Check{{Name: "syncloop"}, {Name: "pleg", Problem: "too old"}}
		}, "/healthz?verbose", ok,
			"[+]ping ok\n[+]log ok\n[+]syncloop ok\n[-]pleg failed, which does not decide: " +
				"too old\n[+]lanes ok\nhealthz check passed\n"},
		{"the core's checks, in short", func(a *agent) {
			a.checks = []world.Check{{Name: "pleg", Problem: "too old"}}
		}, "/healthz", ok, "ok"},
		{"operations hang", func(a *agent) { a.lanes = "lane fs: 2 hung" }, "/healthz?verbose", ok,
			"[+]ping ok\n[+]log ok\n[+]syncloop ok\n[-]lanes failed, which does not decide: " +
				"lane fs: 2 hung\nhealthz check passed\n"},
		{"a check of the core alone", func(a *agent) {
			a.checks = []world.Check{{Name: "pleg", Problem: "too old"}}
		}, "/healthz/pleg", bad, "internal server error: too old\n"},
		{"the core's own syncloop", func(a *agent) {
			a.checks = []world.Check{{Name: "syncloop", Problem: "slow"},
				{Name: "pleg", Problem: "too old"}}
		}, "/healthz", bad,
			"[+]ping ok\n[+]log ok\n[-]syncloop failed: slow\n" +
				"[-]pleg failed, which does not decide: too old\n[+]lanes ok\nhealthz check failed\n"},
		{"no room", func(a *agent) { a.full = true }, "/healthz/syncloop", bad,
			"internal server error: the agent has no room for another event\n"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			a := newAgent()
			if c.setUp != nil {
				c.setUp(a)
			}
			if code, body := get(t, a.port.Health(), c.path); code != c.code || body != c.want {
				t.Errorf("%s gives %d %q, want %d %q", c.path, code, body, c.code, c.want)
			}
			if code, _ := get(t, a.port.ReadOnly(), c.path); code != c.code {
				t.Errorf("%s on the read-only port gives %d, want %d", c.path, code, c.code)
			}
		})
	}
}

func TestMetrics(t *testing.T) {
	a := newAgent()
	a.metrics = []world.Metric{
		{Name: "kubelet_running_pods", Help: "Pods.", Value: 2},
		{Name: "seedlet_marks_total", Help: "Marks.", Counter: true, Value: 1,
			Labels: []world.Label{{Name: "mark", Value: "a"}}},
		{Name: "seedlet_marks_total", Help: "Marks.", Counter: true, Value: 4,
			Labels: []world.Label{{Name: "mark", Value: "b"}}},
		{Name: "not a name", Help: "Must not hide the others.", Value: 1},
	}
	code, body := get(t, a.port.ReadOnly(), "/metrics")
	if code != http.StatusOK {
		t.Fatalf("%d %s", code, body)
	}
	for _, want := range []string{
		"# TYPE kubelet_running_pods gauge\nkubelet_running_pods 2\n",
		"# TYPE seedlet_marks_total counter\nseedlet_marks_total{mark=\"a\"} 1\n" +
			"seedlet_marks_total{mark=\"b\"} 4\n",
		"seedlet_inbox_events 3\n",
		"seedlet_http_requests_pending_max 512\n",
		"seedlet_step_duration_seconds_bucket{le=\"3e-05\"} 1\n",
		"seedlet_step_duration_seconds_bucket{le=\"+Inf\"} 2\n",
		"seedlet_step_duration_seconds_count 2\n",
		"\ngo_goroutines ",
		"\nprocess_resident_memory_bytes ",
	} {
		if !strings.Contains(body, want) {
			t.Errorf("no %q", want)
		}
	}
}

// The watchdog does not restart the agent because the runtime hangs.
// Every check that a request for /healthz asks for is counted, as in all Kubernetes components.
func TestHealthIndicators(t *testing.T) {
	slis.ResetHealthMetrics()
	a := newAgent()
	a.checks = []world.Check{{Name: "pleg", Problem: "too old"}}
	get(t, a.port.Health(), "/healthz?exclude=log")
	a.checks[0].Problem = ""
	get(t, a.port.Health(), "/healthz")
	get(t, a.port.Health(), "/healthz/ping") // a single check is not counted
	for name, port := range map[string]http.Handler{"read-only": a.port.ReadOnly(),
		"secure": a.secure(nil)} {
		code, page := get(t, port, "/metrics/slis")
		for _, line := range []string{
			`kubernetes_healthcheck{name="log",type="healthz"} 1`,
			`kubernetes_healthcheck{name="pleg",type="healthz"} 1`,
			`kubernetes_healthchecks_total{name="ping",status="success",type="healthz"} 2`,
			`kubernetes_healthchecks_total{name="syncloop",status="success",type="healthz"} 2`,
			`kubernetes_healthchecks_total{name="lanes",status="success",type="healthz"} 2`,
			`kubernetes_healthchecks_total{name="log",status="success",type="healthz"} 1`,
			`kubernetes_healthchecks_total{name="pleg",status="error",type="healthz"} 1`,
			`kubernetes_healthchecks_total{name="pleg",status="success",type="healthz"} 1`,
		} {
			if code != http.StatusOK || !strings.Contains(page, line+"\n") {
				t.Errorf("%s: no %s in %d\n%s", name, line, code, page)
			}
		}
	}
	remove := func(port http.Handler) int {
		rec := httptest.NewRecorder()
		port.ServeHTTP(rec, httptest.NewRequest(http.MethodDelete, "/metrics/slis", nil))
		return rec.Code
	}
	if code := remove(a.port.ReadOnly()); code != http.StatusMethodNotAllowed {
		t.Errorf("the read-only port resets the indicators: %d", code)
	}
	if code := remove(a.secure(nil)); code != http.StatusOK {
		t.Errorf("the secure port does not reset the indicators: %d", code)
	}
	if _, page := get(t, a.secure(nil), "/metrics/slis"); strings.Contains(page, `name="pleg"`) {
		t.Errorf("after the reset:\n%s", page)
	}
}

func TestHealthy(t *testing.T) {
	a := newAgent()
	a.checks = []world.Check{{Name: "syncloop"}, {Name: "pleg", Problem: "too old"}}
	if err := a.port.Healthy(t.Context()); err != nil {
		t.Errorf("unhealthy: %v", err)
	}
	a.checks[0].Problem = "slow"
	if err := a.port.Healthy(t.Context()); err == nil || err.Error() != "syncloop: slow" {
		t.Errorf("got %v, want the problem of syncloop", err)
	}
}

func TestMethods(t *testing.T) {
	a := newAgent()
	for _, path := range []string{"/healthz", "/pods", "/metrics", "/exec/a/b/c"} {
		for _, method := range []string{"POST", "PUT", "DELETE", "PATCH"} {
			rec := httptest.NewRecorder()
			a.port.ReadOnly().ServeHTTP(rec, httptest.NewRequest(method, path, nil))
			if rec.Code != http.StatusMethodNotAllowed {
				t.Errorf("%s %s gives %d, want 405", method, path, rec.Code)
			}
		}
	}
	for _, path := range []string{"/none", "/debug/state", "/configz"} {
		if code, _ := get(t, a.port.ReadOnly(), path); code != http.StatusNotFound {
			t.Errorf("%s on the read-only port gives %d, want 404", path, code)
		}
	}
	if code, _ := get(t, a.port.Health(), "/pods"); code != http.StatusNotFound {
		t.Errorf("/pods on the health port gives %d, want 404", code)
	}
}

func TestRefusals(t *testing.T) {
	for _, path := range []string{"/pods", "/runningpods/", "/debug/state", "/metrics"} {
		a := newAgent()
		a.full = true
		if code, body := get(t, a.secure(nil), path); code != http.StatusServiceUnavailable {
			t.Errorf("%s of a full agent gives %d %s, want 503", path, code, body)
		}
	}
}

// A core that is stuck: requests wait for two seconds, as many as there is room for; the next is
// refused at once, and so are health checks.
func TestStuckAgent(t *testing.T) { synctest.Test(t, testStuckAgent) }

func testStuckAgent(t *testing.T) {
	const room = 512
	a := newAgent()
	a.stuck, a.waiting = true, true
	a.taken.Add(room)
	handler := a.port.ReadOnly()
	began := time.Now()
	var answered sync.WaitGroup
	for range room {
		answered.Go(func() {
			if code, _ := get(t, handler, "/pods"); code != http.StatusServiceUnavailable {
				t.Errorf("a stuck agent's pods are %d, want 503", code)
			}
		})
	}
	a.taken.Wait()
	if code, body := get(t, handler, "/pods"); code != http.StatusServiceUnavailable ||
		!strings.Contains(body, "512 requests") {
		t.Errorf("one too many gives %d %q, want 503 with the bound", code, body)
	}
	if took := time.Since(began); took > 0 {
		t.Errorf("refused after %v, want at once", took)
	}
	answered.Wait()
	if took := time.Since(began); took != 2*time.Second {
		t.Errorf("answered after %v, want 2s", took)
	}
	a.taken.Add(1)
	if code, body := get(t, handler, "/healthz"); code != http.StatusInternalServerError ||
		!strings.Contains(body, "[-]syncloop failed: the agent does not answer within 2s") {
		t.Errorf("a stuck agent's health is %d %q", code, body)
	}
}

func TestServer(t *testing.T) {
	a := newAgent()
	s, err := web.Listen("healthz", "127.0.0.1", 0, a.port.Health())
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	resp, err := client.Get("http://" + s.Addr.String() + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); err != nil || string(body) != "ok" {
		t.Errorf("got %q, %v", body, err)
	}
	port := s.Addr.(*net.TCPAddr).Port
	if _, err := web.Listen("healthz", "127.0.0.1", port, nil); err == nil ||
		!strings.Contains(err.Error(), "healthz port") {
		t.Errorf("a port in use: error %v, want one that names it", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// Closing does not wait for requests that the core will not answer any more.
func TestServerClosesAtOnce(t *testing.T) {
	a := newAgent()
	a.stuck, a.waiting = true, true
	a.taken.Add(1)
	s, err := web.Listen("healthz", "127.0.0.1", 0, a.port.Health())
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	answered := make(chan error, 1)
	go func() {
		resp, err := client.Get("http://" + s.Addr.String() + "/healthz")
		if err == nil {
			err = resp.Body.Close()
		}
		answered <- err
	}()
	a.taken.Wait()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := <-answered; err != nil {
		t.Errorf("the request in flight fails: %v, want an answer", err)
	}
	if err := (*a.offered.Load()).Err(); !errors.Is(err, context.Canceled) {
		t.Errorf("the request in flight ended by %v, want it canceled by the end of the server", err)
	}
}
