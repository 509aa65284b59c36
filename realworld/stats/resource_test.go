package stats

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// samples are the lines of a page without comments.
func samples(t *testing.T, b *bench, path string) string {
	t.Helper()
	w := b.get(path)
	if w.Code != http.StatusOK {
		t.Fatalf("%s: %d %s", path, w.Code, w.Body)
	}
	var lines []string
	for line := range strings.Lines(w.Body.String()) {
		if !strings.HasPrefix(line, "#") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "")
}

// long expands the short names of a page.
func long(page string) string {
	return strings.NewReplacer("MAIN", `{container="main",namespace="ns",pod="web"}`,
		"WEB", `{namespace="ns",pod="web"}`,
		"NOON", "1767355200000", "BEFORE", "1767355199000").Replace(page)
}

// The values are the runtime's, each with its own timestamp; those of the node are of noon.
func TestResource(t *testing.T) {
	b := newBench(t)
	b.pods = []*v1.Pod{podOf("u-1", "web", "main", "c1")}
	b.runtime.sandboxes = func(context.Context) ([]*runtimeapi.PodSandboxStats, error) {
		return []*runtimeapi.PodSandboxStats{
			sandboxStats("u-1", "c1", noon.Add(-time.Second), 1_500_000_000, 123456)}, nil
	}
	const want = `container_cpu_usage_seconds_totalMAIN 1.5 BEFORE
container_memory_working_set_bytesMAIN 123456 BEFORE
container_start_time_secondsMAIN 1.7673516e+09
container_swap_usage_bytesMAIN 0 NOON
node_cpu_usage_seconds_total 50 NOON
node_memory_working_set_bytes 3.145728e+06 NOON
node_swap_usage_bytes 0 NOON
pod_cpu_usage_seconds_totalWEB 1.50000001 BEFORE
pod_memory_working_set_bytesWEB 123466 BEFORE
pod_swap_usage_bytesWEB 0 NOON
resource_scrape_error 0
`
	if diff := cmp.Diff(long(want), samples(t, b, "/metrics/resource")); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// fromFiles is the page of the pod without a runtime.
const fromFiles = `container_cpu_usage_seconds_totalMAIN 2.5 NOON
container_memory_working_set_bytesMAIN 200000 NOON
container_start_time_secondsMAIN 1.7673516e+09
container_swap_usage_bytesMAIN 0 NOON
node_cpu_usage_seconds_total 50 NOON
node_memory_working_set_bytes 3.145728e+06 NOON
node_swap_usage_bytes 0 NOON
pod_cpu_usage_seconds_totalWEB 3 NOON
pod_memory_working_set_bytesWEB 200000 NOON
pod_swap_usage_bytesWEB 0 NOON
`

// With a runtime that is down, fails or hangs, the values come from files.
func TestResourceWithoutRuntime(t *testing.T) {
	unavailable := func(context.Context) ([]*runtimeapi.PodSandboxStats, error) {
		return nil, status.Error(codes.Unavailable, "no such socket")
	}
	hangs := func(ctx context.Context) ([]*runtimeapi.PodSandboxStats, error) {
		<-ctx.Done()
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	broken := func(context.Context) ([]*runtimeapi.ContainerStats, error) {
		return nil, status.Error(codes.Unknown, "broken")
	}
	for name, test := range map[string]struct {
		sandboxes  func(context.Context) ([]*runtimeapi.PodSandboxStats, error)
		containers func(context.Context) ([]*runtimeapi.ContainerStats, error)
		failed     string
	}{
		"away":          {unavailable, nil, "1"},
		"hangs":         {hangs, nil, "1"},
		"fails":         {nil, broken, "1"},
		"knows nothing": {nil, nil, "0"},
		"has numbers of others alone": {nil, func(context.Context) ([]*runtimeapi.ContainerStats, error) {
			return []*runtimeapi.ContainerStats{containerStats("other", noon, 1, 1)}, nil
		}, "0"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, func(o *Options) {
				if name == "hangs" {
					o.RuntimeTimeout = 10 * time.Millisecond
				}
			})
			b.pods = []*v1.Pod{podOf("u-1", "web", "main", "c1")}
			b.runtime.sandboxes, b.runtime.containers = test.sandboxes, test.containers
			want := fromFiles + "resource_scrape_error " + test.failed + "\n"
			if diff := cmp.Diff(long(want), samples(t, b, "/metrics/resource")); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if w := b.get("/stats/summary"); w.Code != http.StatusOK {
				t.Errorf("the summary: %d %s", w.Code, w.Body)
			}
		})
	}
}

// Without sandboxes' stats, those of containers are the runtime's and the pod's are its cgroup's.
func TestResourceOfContainersOnly(t *testing.T) {
	b := newBench(t)
	b.pods = []*v1.Pod{podOf("u-1", "web", "main", "c1")}
	b.runtime.containers = func(context.Context) ([]*runtimeapi.ContainerStats, error) {
		return []*runtimeapi.ContainerStats{containerStats("c1", noon, 9_000_000_000, 99)}, nil
	}
	page := samples(t, b, "/metrics/resource")
	for _, want := range []string{
		`container_cpu_usage_seconds_total{container="main",namespace="ns",pod="web"} 9 `,
		`container_memory_working_set_bytes{container="main",namespace="ns",pod="web"} 99 `,
		`pod_cpu_usage_seconds_total{namespace="ns",pod="web"} 3 `,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("no %s in\n%s", want, page)
		}
	}
}

// A pod that only the core still has is left out, and so is a container that was replaced meanwhile
// or has half its values; a pod without a cgroup is the sum of its containers.
func TestResourceOfWhatVanishes(t *testing.T) {
	b := newBench(t)
	half := containerStats("c3", noon, 5, 5)
	half.Memory = nil
	b.pods = []*v1.Pod{podOf("u-1", "web", "main", "c1-gone"), podOf("u-2", "gone", "main", "c2"),
		podOf("u-3", "half", "main", "c3"), podOf("u-4", "whole", "main", "c4"),
		{Status: v1.PodStatus{Phase: v1.PodPending}}}
	b.runtime.containers = func(context.Context) ([]*runtimeapi.ContainerStats, error) {
		return []*runtimeapi.ContainerStats{half,
			containerStats("c4", noon, 2_000_000_000, 7), nil}, nil
	}
	page := samples(t, b, "/metrics/resource")
	want := map[string]bool{`_start_time_seconds{container="main",namespace="ns",pod="web"`: false,
		`pod_cpu_usage_seconds_total{namespace="ns",pod="web"} 3`: true,
		`pod="gone"`: false, `container="main",namespace="ns",pod="half"`: false,
		`pod_cpu_usage_seconds_total{namespace="ns",pod="whole"} 2`:  true,
		`pod_memory_working_set_bytes{namespace="ns",pod="whole"} 7`: true,
		"resource_scrape_error 0":                                    true}
	for text, has := range want {
		if strings.Contains(page, text) != has {
			t.Errorf("whether there is %s: want %t, in\n%s", text, has, page)
		}
	}
}

// Of two pods with one name, one terminating and its successor, the page has the one that started
// last: a page must not have a series twice.
func TestResourceOfOneNameTwice(t *testing.T) {
	b := newBench(t)
	old, young := podOf("u-1", "web", "main", "c1"), podOf("u-2", "web", "main", "c2")
	began := old.Status.StartTime.Add(-time.Hour)
	old.Status.StartTime.Time = began
	b.pods = []*v1.Pod{young, old}
	b.runtime.containers = func(context.Context) ([]*runtimeapi.ContainerStats, error) {
		return []*runtimeapi.ContainerStats{containerStats("c1", noon, 1e9, 1),
			containerStats("c2", noon, 2e9, 2)}, nil
	}
	page := samples(t, b, "/metrics/resource")
	if strings.Count(page, "container_cpu_usage_seconds_total{") != 1 ||
		!strings.Contains(page, long("container_cpu_usage_seconds_totalMAIN 2 ")) {
		t.Error(page)
	}
}

// The node's values are served even if the pods are unknown and there are no cgroups.
func TestResourceOfNothing(t *testing.T) {
	b := newBench(t)
	b.podsErr = errors.New("busy")
	page := samples(t, b, "/metrics/resource")
	if !strings.Contains(page, "node_cpu_usage_seconds_total 50") ||
		!strings.Contains(page, "resource_scrape_error 1") {
		t.Error(page)
	}
	if w := b.get("/stats/summary"); w.Code != http.StatusServiceUnavailable ||
		!strings.Contains(w.Body.String(), "busy") {
		t.Errorf("the summary: %d %s", w.Code, w.Body)
	}
	b = newBench(t)
	if err := os.RemoveAll(filepath.Join(b.root, "cgroup")); err != nil {
		t.Fatal(err)
	}
	page = samples(t, b, "/metrics/resource")
	if strings.Contains(page, "node_cpu") || !strings.Contains(page, "resource_scrape_error 1") {
		t.Error(page)
	}
}

// Impossible timestamps are replaced by the time of the sample.
func TestTimesOfTheRuntime(t *testing.T) {
	l := sampler{at: noon}
	for ns, want := range map[int64]time.Time{
		0: noon, -5: noon, noon.Add(time.Hour).UnixNano(): noon, noon.UnixNano() * 1000: noon,
		noon.Add(-time.Second).UnixNano(): noon.Add(-time.Second),
	} {
		if got := l.sampleTime(ns); !got.Time.Equal(want) {
			t.Errorf("%d is %s, want %s", ns, got, want)
		}
	}
}

func lint(t *testing.T, page string) []promlint.Problem {
	t.Helper()
	problems, err := promlint.New(strings.NewReader(page)).Lint()
	if err != nil {
		t.Fatal(err)
	}
	return problems
}

func TestResourceLint(t *testing.T) {
	b := newBench(t)
	b.pods = []*v1.Pod{podOf("u-1", "web", "main", "c1")}
	for _, problem := range lint(t, b.get("/metrics/resource").Body.String()) {
		t.Errorf("%s: %s", problem.Metric, problem.Text)
	}
}
