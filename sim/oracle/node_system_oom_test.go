package oracle

import (
	"testing"

	"seedlet.dev/sim/truth"
)

func TestSystemOOM(t *testing.T) {
	const victim = "victim process: app, pid: 4001"
	end := func(s *script) {
		s.CheckFact(truth.Fact{Time: s.now, Kind: truth.SystemOOM, Message: victim})
	}
	report := func(s *script, message string) {
		s.CheckFact(truth.Fact{Time: s.now, Kind: truth.EventRecorded, Reason: reasonSystemOOM,
			Message: message})
	}
	const message = "System OOM encountered, " + victim
	runCases(t, []testCase{
		{"a process and its Event", "", func(s *script) {
			end(s)
			report(s, message)
			s.wait(20)
			s.startPod(always)
		}},
		{"the Event of no process", "system-oom", func(s *script) { report(s, message) }},
		{"the Event of another process", "system-oom", func(s *script) {
			end(s)
			report(s, message+"0")
		}},
		{"one process, two Events", "system-oom", func(s *script) {
			end(s)
			report(s, message)
			report(s, message)
		}},
		{"no Event", "system-oom", func(s *script) {
			app := s.startPod(always) // with the agent
			s.wait(1)
			end(s)
			s.wait(20)
			app.exit(0, truth.CauseSelf)
		}},
		{"no Event of an agent that was started later", "", func(s *script) {
			s.AgentKilled(s.now)
			end(s)
			s.wait(1)
			s.AgentStarted(s.now)
			s.wait(20)
			s.startPod(always)
		}},
		{"the Event after an exit at the limit of a container", "system-oom", func(s *script) {
			s.startPod(always).exit(137, truth.CauseOOM)
			report(s, message)
		}},
	})
}
