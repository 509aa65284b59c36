package stats

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// hundred is a bench of a hundred pods of one container, reported by the runtime or read from
// files.
func hundred(b *testing.B, reported bool) *bench {
	s := newBench(b)
	var all []*runtimeapi.PodSandboxStats
	for i := range 100 {
		uid, id := fmt.Sprintf("u-%d", i), fmt.Sprintf("c%d", i)
		s.pods = append(s.pods, podOf(uid, fmt.Sprintf("web-%d", i), "main", id))
		all = append(all, sandboxStats(uid, id, noon, 1e9, 1e6))
		at := "cgroup/kubepods/burstable/pod" + uid
		files := map[string]string{}
		for name, text := range tree {
			const of = "cgroup/kubepods/burstable/podu-1"
			if len(name) > len(of) && name[:len(of)] == of && name[len(of)+1] != 'c' {
				files[at+name[len(of):]] = text
			}
		}
		files[at+"/"+id+"/cpu.stat"] = "usage_usec 10"
		files[at+"/"+id+"/memory.current"] = "1000"
		files[at+"/"+id+"/memory.stat"] = "anon 150000\ninactive_file 50000"
		s.lay(files)
	}
	if reported {
		s.runtime.sandboxes = func(context.Context) ([]*runtimeapi.PodSandboxStats, error) {
			return all, nil
		}
	}
	s.lay(map[string]string{"kubelet/empty": ""})
	return s
}

func (b *bench) serve(t *testing.B, path string) {
	t.ReportAllocs()
	for t.Loop() {
		b.pass(time.Minute) // each request measures again
		w := discardWriter{http.Header{}}
		b.mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	}
}

// discardWriter is a client that discards the response.
type discardWriter struct{ header http.Header }

func (n discardWriter) Header() http.Header            { return n.header }
func (n discardWriter) Write(page []byte) (int, error) { return len(page), nil }
func (n discardWriter) WriteHeader(code int) {
	if code != http.StatusOK {
		panic(code)
	}
}

func BenchmarkSummary(b *testing.B)          { hundred(b, true).serve(b, "/stats/summary") }
func BenchmarkSummaryFromFiles(b *testing.B) { hundred(b, false).serve(b, "/stats/summary") }
func BenchmarkResource(b *testing.B)         { hundred(b, true).serve(b, "/metrics/resource") }
func BenchmarkCadvisor(b *testing.B)         { hundred(b, true).serve(b, "/metrics/cadvisor") }
