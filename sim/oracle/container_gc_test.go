package oracle

import (
	"strings"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/sim/truth"
	"seedlet.dev/world"
)

// The event is right only if something has failed for a minute and still fails.
func TestContainerGCEvents(t *testing.T) {
	report := func(from, to int) func(*script) {
		return func(s *script) {
			begin := s.now
			s.model.opts.FaultPossible = func(call string, since, until time.Time) bool {
				return call == "RemoveContainer" && !until.Before(begin.Add(time.Duration(from)*time.Second)) &&
					!since.After(begin.Add(time.Duration(to)*time.Second))
			}
			s.wait(600)
			s.CheckFact(truth.Fact{Time: s.now, Kind: truth.EventRecorded, Reason: "ContainerGCFailed",
				Message: "failed to remove container"})
		}
	}
	runCases(t, []testCase{
		{"failing for minutes", "", report(480, 600)},
		{"failing again, a minute later", "", report(480, 590)},
		{"failing for less than a minute", "container-gc", report(570, 600)},
		{"failing a while ago", "container-gc", report(300, 470)},
		{"failing until a call that took two minutes", "", report(300, 500)},
		{"nothing fails", "container-gc", report(601, 700)},
	})
}

// The event is missing if the removal of a container keeps failing.
func TestMissingContainerGCEvent(t *testing.T) {
	// fail has the removal of a container fail some times, half a minute apart each.
	fail := func(s *script, times int) {
		for i := range times {
			id := world.OpID(i + 1)
			s.ask(id, &runtimeapi.RemoveContainerRequest{ContainerId: "u1-app#0"})
			s.answer(id, world.Errorf(world.KindInternal, "RemoveContainer", "busy"))
			s.wait(30)
		}
	}
	newScript := func() *script {
		s := newScript()
		r := s.startPod(never)
		s.wait(60)
		r.exit(0, truth.CauseSelf)
		return s
	}
	report := func(s *script) {
		s.CheckFact(truth.Fact{Time: s.now, Kind: truth.EventRecorded, Reason: "ContainerGCFailed"})
	}
	missing := func(s *script) bool {
		return strings.Contains(s.violated(), "container-gc")
	}
	for _, c := range []struct {
		name string
		want bool
		then func(s *script) // after four failures
	}{
		{"no event", true, func(*script) {}},
		{"no event, while it goes on to fail", true, func(s *script) { fail(s, 4) }},
		{"an event", false, report},
		{"an event for each minute", false, func(s *script) {
			report(s)
			fail(s, 2)
			report(s)
		}},
		{"one event, while it goes on to fail", true, func(s *script) {
			report(s)
			fail(s, 4)
		}},
		{"a removal that succeeds", false, func(s *script) {
			s.ask(9, &runtimeapi.RemoveContainerRequest{ContainerId: "u1-app#0"})
			s.answer(9, &runtimeapi.RemoveContainerResponse{})
		}},
		{"another agent", false, func(s *script) { s.AgentStarted(s.now) }},
	} {
		s := newScript()
		s.model.opts.FaultPossible = func(call string, _, _ time.Time) bool {
			return call == "RemoveContainer"
		}
		fail(s, 4)
		c.then(s)
		s.wait(40)
		s.CheckServed(s.now, nil)
		if missing(s) != c.want {
			t.Errorf("%s: violated %q: %v", c.name, s.violated(), s.Violations())
		}
	}
	s := newScript()
	fail(s, 2)
	s.wait(60)
	s.CheckServed(s.now, nil)
	if missing(s) {
		t.Errorf("two failures within half a minute: %v", s.Violations())
	}
}
