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

// hundred has a hundred pods of one container, as the runtime tells of them or by their files.
func hundred(b *testing.B, told bool) *bench {
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
	if told {
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
		b.pass(time.Minute) // each is measured anew
		w := nobody{http.Header{}}
		b.mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	}
}

// nobody is a client that remembers nothing.
type nobody struct{ header http.Header }

func (n nobody) Header() http.Header            { return n.header }
func (n nobody) Write(page []byte) (int, error) { return len(page), nil }
func (n nobody) WriteHeader(code int) {
	if code != http.StatusOK {
		panic(code)
	}
}

func BenchmarkSummary(b *testing.B)          { hundred(b, true).serve(b, "/stats/summary") }
func BenchmarkSummaryFromFiles(b *testing.B) { hundred(b, false).serve(b, "/stats/summary") }
func BenchmarkResource(b *testing.B)         { hundred(b, true).serve(b, "/metrics/resource") }
func BenchmarkCadvisor(b *testing.B)         { hundred(b, true).serve(b, "/metrics/cadvisor") }
