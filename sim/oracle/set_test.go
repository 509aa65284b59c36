package oracle

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/truth"
)

// Every oracle has a name of its own and an invariant that ends in a full stop.
func TestCatalogue(t *testing.T) {
	seen := map[string]bool{}
	for _, e := range Catalogue() {
		if e.Name == "" || !strings.HasSuffix(e.Invariant, ".") || seen[e.Name] {
			t.Errorf("entry %+v", e)
		}
		seen[e.Name] = true
	}
}

// An oracle fires once, however often its invariant is violated; violations are in order of time.
func TestOneViolationPerOracle(t *testing.T) {
	s := newScript()
	r := s.startPod(never)
	s.wait(300)
	s.AgentStarted(s.now)
	r.change(truth.StopRequested, "")
	s.wait(1)
	for range 2 {
		r.change(truth.KillRequested, truth.CauseStop)
	}
	s.wait(60)
	s.serve("u1", v1.PodFailed)
	if got := s.violated(); got != "needless-stop grace-period terminal-phase" {
		t.Errorf("violated %q: %v", got, s.Violations())
	}
	if first := s.Violations()[0]; !first.Time.Equal(begin.Add(300e9)) {
		t.Errorf("first violation at %v", first.Time)
	}
}

// BenchmarkAnswer measures a response with 30 pods after the heal.
func BenchmarkAnswer(b *testing.B) {
	s := newScript()
	var pods []*v1.Pod
	for i := range 30 {
		uid := "u" + string(rune('A'+i))
		p := spec(uid, always, "app")
		p.Name = "web-" + uid
		s.setDesired(p)
		s.start(s.sandbox(uid, 0), "app", 0)
		pods = append(pods, s.served(uid, v1.PodRunning, "app#0 ready"))
	}
	s.Healed(s.now)
	s.wait(10)
	b.ReportAllocs()
	for b.Loop() {
		s.CheckServed(s.now, pods)
	}
	if got := s.unsettled() + s.violated(); got != "" {
		b.Fatal(got)
	}
}
