package oracle

import (
	"strings"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/sim/truth"
	"seedlet.dev/world"
)

// measure has the agent observe the node, with so much memory available.
func (s *script) measure(id world.OpID, available int64) {
	s.ask(id, &world.MeasureNode{})
	s.answer(id, &world.NodeMeasured{MemoryBytes: 1000, WorkingSetBytes: 1000 - available})
}

// evictForSoft evicts the pod "u1" for a soft threshold, which leaves it five minutes.
func (s *script) evictForSoft() run {
	o := &s.model.opts
	o.Pressure = Pressure{Transition: 10 * time.Minute, GraceMax: 5 * time.Minute,
		Thresholds: []PressureThreshold{{Signal: "memory.available", Amount: 100},
			{Signal: "memory.available", Amount: 200, Grace: 5 * time.Second}}}
	s.model.pressure = newPressureModel(&o.Pressure)
	o.NodeUsage = func() world.NodeMeasured { return world.NodeMeasured{} }
	o.Filesystem = func(string) world.FilesystemMeasured { return world.FilesystemMeasured{} }
	p := spec("u1", always, "app")
	grace := int64(300)
	p.Spec.TerminationGracePeriodSeconds = &grace
	s.AgentStarted(s.now)
	s.setDesired(p)
	r := s.start(s.sandbox("u1", 0), "app", 0)
	s.wait(60)
	s.measure(1, 150)
	s.wait(10)
	s.measure(2, 150)
	for id := range world.OpID(usageTriesMax) {
		s.ask(10+id, &runtimeapi.ListPodSandboxStatsRequest{})
	}
	s.addFact(truth.EventRecorded, truth.Fact{Reason: reasonEvicted, Message: lowPrefix + "memory. "})
	r.change(truth.StopRequested, "")
	return r
}

// A hard threshold that is observed leaves the victim of a soft one no time.
func TestVictimOfSoftThreshold(t *testing.T) {
	for _, c := range []struct {
		name string
		want bool
		then func(s *script, r run)
	}{
		{"no hard threshold is met", false, func(s *script, _ run) { s.measure(20, 150) }},
		{"one is met", true, func(s *script, _ run) { s.measure(20, 50) }},
		{"one is met, and the victim ends", false, func(s *script, r run) {
			s.measure(20, 50)
			s.wait(2)
			r.kill()
		}},
		{"one is met, and the agent is restarted", false, func(s *script, _ run) {
			s.measure(20, 50)
			s.AgentStarted(s.now)
		}},
	} {
		s := newScript()
		r := s.evictForSoft()
		s.wait(60)
		c.then(s, r)
		s.wait(victimEndBound.Seconds() + 1)
		s.CheckServed(s.now, nil)
		if strings.Contains(s.violated(), "node-pressure") != c.want {
			t.Errorf("%s: %v", c.name, s.Violations())
		}
		if strings.Contains(s.violated(), "grace-period") {
			t.Errorf("%s: %v", c.name, s.Violations())
		}
	}
}
