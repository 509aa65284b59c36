package oracle

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"seedlet.dev/sim/truth"
	"seedlet.dev/world"
)

func TestTerminalPhase(t *testing.T) {
	failed := func(s *script) {
		s.startPod(never).exit(1, truth.CauseSelf)
		s.serve("u1", v1.PodFailed, "app#0 terminated")
	}
	runCases(t, []testCase{
		{"final", "", func(s *script) {
			failed(s)
			s.AgentStarted(s.now)
			s.serve("u1", v1.PodUnknown)
			s.serve("u1", v1.PodFailed, "app#0 terminated")
		}},
		{"served as running again", "terminal-phase", func(s *script) {
			failed(s)
			s.serve("u1", v1.PodRunning, "app#0 terminated")
		}},
		{"the other terminal phase", "terminal-phase", func(s *script) {
			failed(s)
			s.serve("u1", v1.PodSucceeded, "app#0 terminated")
		}},
		{"while it runs", "terminal-phase", func(s *script) {
			s.startPod(never)
			s.serve("u1", v1.PodSucceeded)
		}},
		{"served late", "", func(s *script) {
			s.startPod(never).exit(0, truth.CauseSelf)
			s.serve("u1", v1.PodRunning, "app#0 ready")
		}},
		{"a container starts after it", "terminal-phase", func(s *script) {
			s.setDesired(spec("u1", never, "app", "more"))
			s.start(s.sandbox("u1", 0), "app", 0).exit(1, truth.CauseSelf)
			s.serve("u1", v1.PodFailed)
			s.start("u1-s0", "more", 0)
		}},
		{"a container whose start was delayed, after another client has ended the pod", "",
			func(s *script) { endExternally(s, "StartContainer", 60) }},
		{"a container that nothing has delayed, after another client has ended the pod",
			"terminal-phase", func(s *script) { endExternally(s, "StopContainer", 60) }},
		{"a start that was delayed for too long", "terminal-phase", func(s *script) {
			endExternally(s, "StartContainer", 130)
		}},
		{"its manifest came back", "", func(s *script) {
			failed(s)
			s.PodNoLongerDesired(s.now, "u1")
			s.setDesired(s.pods["u1"])
			s.serve("u1", v1.PodFailed, "app#0 terminated") // the agent has not noticed yet
			s.serve("u1", v1.PodPending)
		}},
		{"while terminating", "", func(s *script) {
			r := s.startPod(always)
			s.PodNoLongerDesired(s.now, "u1")
			r.exit(0, truth.CauseStop)
			p := s.served("u1", v1.PodSucceeded, "app#0 terminated")
			p.DeletionTimestamp = &metav1.Time{Time: s.now}
			s.CheckServed(s.now, []*v1.Pod{p})
		}},
	})
}

// A pod that ends for the node has the condition DisruptionTarget, and no other one.
func TestDisruptionTarget(t *testing.T) {
	low := lowPrefix + "memory. Threshold quantity: 100Mi, available: 90Mi. "
	for _, c := range []struct {
		phase           v1.PodPhase
		reason, message string
		has, want       bool
	}{
		{v1.PodFailed, reasonEvicted, low, true, false},
		{v1.PodFailed, reasonEvicted, low, false, true},
		{v1.PodFailed, reasonEvicted, "Pod ephemeral local storage usage exceeds", false, false},
		{v1.PodFailed, reasonEvicted, "Pod ephemeral local storage usage exceeds", true, true},
		{v1.PodFailed, reasonShutdown, "", true, false},
		{v1.PodFailed, reasonShutdown, "", false, true},
		{v1.PodFailed, "", "", true, true},
		{v1.PodSucceeded, reasonShutdown, "", true, false},
		{v1.PodRunning, reasonEvicted, low, true, true},
		{v1.PodRunning, reasonEvicted, low, false, true},
		{v1.PodRunning, "", "", false, false},
		{v1.PodRunning, "StatusTooLarge", "", false, false},
	} {
		before := spec("u1", never, "app")
		before.Status.Phase = v1.PodRunning
		after := before.DeepCopy()
		after.Status = v1.PodStatus{Phase: c.phase, Reason: c.reason, Message: c.message}
		if c.has {
			after.Status.Conditions = []v1.PodCondition{disruptionTarget}
		}
		if f := newScript().model.findWrongEnd(before, after); (f != nil) != c.want {
			t.Errorf("%+v: %+v", c, f)
		}
	}
}

// The terminal phase of a static pod that a shutdown has ended is final if its containers have
// exited for good; otherwise the pod runs again.
func TestTerminalPhaseInShutdown(t *testing.T) {
	for _, c := range []struct {
		policy v1.RestartPolicy
		want   v1.PodPhase
	}{{never, v1.PodFailed}, {always, ""}} {
		s := newScript()
		shutdownScript(s)
		p := spec("u3", c.policy, "app")
		p.Name, p.Annotations = "job", map[string]string{annotationSource: sourceFile}
		s.setDesired(p)
		run := s.start(s.sandbox("u3", 0), "app", 0)
		s.wait(60)
		s.machine(truth.ShutdownAnnounced, "")
		run.end(1)
		s.serve("u3", v1.PodFailed, "app#0 terminated")
		s.machine(truth.ShutdownCancelled, "")
		if got := s.model.pods["u3"].servedTerminal; got != c.want {
			t.Errorf("%s: the final phase is %q, want %q", c.policy, got, c.want)
		}
	}
}

// A pod that is desired again may be served in the terminal phase of its first run.
func TestPodThatHasRunBefore(t *testing.T) {
	for _, hadEnded := range []bool{true, false} {
		s := newScript()
		r := s.startPod(never)
		if hadEnded {
			r.exit(1, truth.CauseSelf)
		}
		s.PodNoLongerDesired(s.now, "u1")
		s.setDesired(s.pods["u1"])
		for _, phase := range []v1.PodPhase{v1.PodRunning, v1.PodFailed, v1.PodPending} {
			s.serve("u1", phase)
			want := hadEnded && phase == v1.PodFailed
			if got := s.model.pods["u1"].hasRunBefore(); got != want {
				t.Errorf("had ended: %t, served as %s: has run before: %t", hadEnded, phase, got)
			}
		}
	}
}

// endExternally has another client report that a pod has ended, and a container of it start some
// seconds later, with a fault of a call.
func endExternally(s *script, faulty string, seconds float64) {
	s.model.opts.FaultPossible = func(call string, _, _ time.Time) bool { return call == faulty }
	s.setDesired(spec("u1", never, "app"))
	sandbox := s.sandbox("u1", 0)
	before, after := s.pods["u1"].DeepCopy(), s.pods["u1"].DeepCopy()
	after.Status.Phase = v1.PodSucceeded
	writeObject(s, world.Object{Pod: before}, world.Object{Pod: after}, 0)
	s.serve("u1", v1.PodSucceeded)
	s.wait(seconds)
	s.start(sandbox, "app", 0)
}
