package oracle

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"seedlet.dev/sim/truth"
)

// endings are stories that end in peace, or in what is missing.
var endings = []struct {
	name, lacks string // empty: nothing
	tell        func(s *story)
}{
	{"it runs and is shown", "", func(s *story) {
		s.runs(always)
		s.wait(6)
		s.shows("u1", v1.PodRunning, "app#0 ready")
	}},
	{"it was not shown since", "nothing that is true was shown of it yet", func(s *story) {
		s.runs(always)
		s.wait(4)
		s.shows("u1", v1.PodRunning, "app#0 ready")
	}},
	{"nothing was shown", "it is not shown", func(s *story) { s.runs(always) }},
	{"nothing was made", "it has no sandbox that is ready", func(s *story) {
		s.want(spec("u1", always, "app"))
	}},
	{"not started", "container app #0 is not started", func(s *story) {
		s.want(spec("u1", always, "app"))
		s.create(s.sandbox("u1", 0), "app", 0)
	}},
	{"waiting for its restart", "", func(s *story) {
		s.runs(always).exit(1, truth.CauseOwn)
		r := s.start("u1-s0", "app", 1)
		r.exit(1, truth.CauseOwn)
		s.wait(24)
		s.shows("u1", v1.PodRunning, "app#1 waiting")
	}},
	{"not restarted", "container app #1 exited 26s ago, has to wait 10s", func(s *story) {
		s.runs(always).exit(1, truth.CauseOwn)
		s.start("u1-s0", "app", 1).exit(1, truth.CauseOwn)
		s.wait(26)
		s.shows("u1", v1.PodRunning, "app#1 waiting")
	}},
	{"completed", "", func(s *story) {
		s.runs(onFailure).exit(0, truth.CauseOwn)
		s.sandboxIs(truth.SandboxStopped, "u1-s0")
		s.wait(6)
		s.shows("u1", v1.PodSucceeded, "app#0 terminated")
	}},
	{"completed, the sandbox is up", "its sandbox is still ready", func(s *story) {
		s.runs(never).exit(1, truth.CauseOwn)
	}},
	{"completed, and something came late", "", func(s *story) {
		s.runs(onFailure).exit(1, truth.CauseOwn)
		s.sandboxIs(truth.SandboxStopped, "u1-s0")
		s.start(s.sandbox("u1", 1), "app", 1).exit(0, truth.CauseOwn)
		s.create("u1-s0", "app", 2)
		s.sandboxIs(truth.SandboxStopped, "u1-s1")
		s.wait(6)
		s.shows("u1", v1.PodSucceeded, "app#1 terminated")
	}},
	{"of an old spec", "container app #0 is not of the newest spec", func(s *story) {
		s.runs(always)
		s.want(spec("u1", always, "app"))
		s.pods["u1"].Spec.Containers[0].Image = "image:2"
	}},
	{"an init container was killed", "init container init has not run", func(s *story) {
		s.want(spec("u1", always, "init", "app"))
		s.start(s.sandbox("u1", 0), "init", 0).exit(0, truth.CauseOwn)
		s.sandboxIs(truth.SandboxStopped, "u1-s0")
		s.sandbox("u1", 1)
	}},
	{"initialised", "", func(s *story) {
		s.want(spec("u1", always, "init", "app"))
		s.start(s.sandbox("u1", 0), "init", 0).exit(0, truth.CauseOwn)
		s.start("u1-s0", "app", 0)
		s.wait(6)
		s.shows("u1", v1.PodRunning, "init#0 completed", "app#0 ready")
	}},
	{"one of a full name is enough", "", func(s *story) {
		s.want(spec("u2", always, "app"))
		s.runs(always)
		s.wait(6)
		s.shows("u1", v1.PodRunning, "app#0 ready")
	}},
	{"shown in the wrong phase", "it is shown as Pending, but is Running", func(s *story) {
		s.runs(always)
		s.wait(6)
		s.shows("u1", v1.PodPending, "app#0 ready")
	}},
	{"shown with an old id", "container app is shown with id", func(s *story) {
		s.runs(always).exit(1, truth.CauseOwn)
		s.start("u1-s0", "app", 1)
		s.wait(6)
		s.shows("u1", v1.PodRunning, "app#0 waiting")
	}},
	{"shown as being deleted", "it is shown as being deleted", func(s *story) {
		s.runs(always)
		s.wait(6)
		p := s.shown("u1", v1.PodRunning, "app#0 ready")
		p.DeletionTimestamp = &metav1.Time{Time: s.now}
		s.Answer(s.now, []*v1.Pod{p})
	}},
	{"gone without a trace", "", func(s *story) {
		s.path(truth.PathMade, podsDir+"/u1", "")
		s.path(truth.PathMade, logsDir+"/ns_web_u1/app", "")
		r := s.runs(always)
		s.Unwanted(s.now, "u1")
		r.exit(0, truth.CauseStop)
		r.is(truth.ContainerRemoved, "")
		s.sandboxIs(truth.SandboxRemoved, "u1-s0")
		s.path(truth.PathRemoved, podsDir+"/u1", "")
		s.path(truth.PathRemoved, logsDir+"/ns_web_u1", "")
	}},
	{"its directory is left", "not wanted, but " + podsDir + "/u1 is left", func(s *story) {
		s.path(truth.PathWritten, podsDir+"/u1/etc-hosts", "")
		s.path(truth.PathRemoved, podsDir+"/u1/etc-hosts", "")
	}},
	{"its logs are left", "not wanted, but " + logsDir + "/ns_web_u1 is left",
		func(s *story) { s.path(truth.PathMade, logsDir+"/ns_web_u1/app", "") }},
	{"all directories went at once", "", func(s *story) {
		s.path(truth.PathMade, podsDir+"/u1", "")
		s.path(truth.PathRemoved, "/var", truth.CauseUser)
	}},
	{"a sandbox is left", "not wanted, but sandbox u1-s0 is left", func(s *story) {
		s.sandbox("u1", 0)
	}},
	{"still shown", "not wanted, but still shown", func(s *story) {
		s.want(spec("u1", always, "app"))
		s.Unwanted(s.now, "u1")
		s.shows("u1", v1.PodFailed)
	}},
}

func TestUnsettled(t *testing.T) {
	for _, c := range endings {
		t.Run(c.name, func(t *testing.T) {
			s := tell()
			s.Healed(s.now)
			c.tell(s)
			got := s.unsettled()
			if c.lacks == "" && got != "" || !strings.Contains(got, c.lacks) {
				t.Errorf("unsettled %q, want %q", got, c.lacks)
			}
			if strings.Contains(got, "\n") && c.lacks != "" && c.name != "a sandbox is left" {
				t.Errorf("more than one line: %q", got)
			}
		})
	}
}

// TestCatalogue has every oracle named once, and only oracles of the catalogue fire.
func TestCatalogue(t *testing.T) {
	seen := map[string]bool{}
	for _, e := range Catalogue() {
		if e.Name == "" || !strings.HasSuffix(e.Sentence, ".") || seen[e.Name] {
			t.Errorf("entry %+v", e)
		}
		seen[e.Name] = true
	}
	if len(seen) != 14 {
		t.Errorf("%d oracles", len(seen))
	}
}

// TestOneViolationPerOracle has an oracle fire once, however often its rule is broken, and the
// violations in order of time.
func TestOneViolationPerOracle(t *testing.T) {
	s := tell()
	r := s.runs(never)
	s.wait(300)
	s.AgentStarted(s.now)
	r.is(truth.StopRequested, "")
	s.wait(1)
	for range 2 {
		r.is(truth.KillRequested, truth.CauseStop)
	}
	s.wait(60)
	s.shows("u1", v1.PodFailed)
	if got := s.fired(); got != "undisturbed grace terminal" {
		t.Errorf("fired %q: %v", got, s.Violations())
	}
	if first := s.Violations()[0]; !first.Time.Equal(begin.Add(300e9)) {
		t.Errorf("first violation at %v", first.Time)
	}
}

// BenchmarkAnswer is what an answer of 30 pods costs once everything is healed.
func BenchmarkAnswer(b *testing.B) {
	s := tell()
	var pods []*v1.Pod
	for i := range 30 {
		uid := "u" + string(rune('A'+i))
		p := spec(uid, always, "app")
		p.Name = "web-" + uid
		s.want(p)
		s.start(s.sandbox(uid, 0), "app", 0)
		pods = append(pods, s.shown(uid, v1.PodRunning, "app#0 ready"))
	}
	s.Healed(s.now)
	s.wait(10)
	b.ReportAllocs()
	for b.Loop() {
		s.Answer(s.now, pods)
	}
	if got := s.unsettled() + s.fired(); got != "" {
		b.Fatal(got)
	}
}
