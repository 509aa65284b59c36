package oracle

import (
	"testing"

	"seedlet.dev/sim/truth"
)

const (
	oomVictim  = "victim process: app, pid: 4001"
	oomMessage = "System OOM encountered, " + oomVictim
)

// endProcess has the kernel end a process.
func endProcess(s *script) {
	s.CheckFact(truth.Fact{Time: s.now, Kind: truth.SystemOOM, Message: oomVictim})
}

func reportOOM(s *script, message string) {
	s.CheckFact(truth.Fact{Time: s.now, Kind: truth.EventRecorded, Reason: reasonSystemOOM,
		Message: message})
}

// endEleven has the kernel end eleven processes, of which ten have Events.
func endEleven(s *script) {
	s.startPod(always)
	s.wait(1)
	for range 10 {
		endProcess(s)
		reportOOM(s, oomMessage)
		s.wait(0.1)
	}
	endProcess(s)
}

func TestSystemOOM(t *testing.T) {
	runCases(t, []testCase{
		{"a process and its Event", "", func(s *script) {
			endProcess(s)
			reportOOM(s, oomMessage)
			s.wait(20)
			s.startPod(always)
		}},
		{"the Event of no process", "system-oom", func(s *script) { reportOOM(s, oomMessage) }},
		{"the Event of another process", "system-oom", func(s *script) {
			endProcess(s)
			reportOOM(s, oomMessage+"0")
		}},
		{"one process, two Events", "system-oom", func(s *script) {
			endProcess(s)
			reportOOM(s, oomMessage)
			reportOOM(s, oomMessage)
		}},
		{"no Event", "system-oom", func(s *script) {
			app := s.startPod(always) // with the agent
			s.wait(1)
			endProcess(s)
			s.wait(20)
			app.exit(0, truth.CauseSelf)
		}},
		{"no Event of an agent that was started later", "", func(s *script) {
			s.AgentKilled(s.now)
			endProcess(s)
			s.wait(1)
			s.AgentStarted(s.now)
			s.wait(20)
			s.startPod(always)
		}},
		{"the Event after an exit at the limit of a container", "system-oom", func(s *script) {
			s.startPod(always).exit(137, truth.CauseOOM)
			reportOOM(s, oomMessage)
		}},
	})
}

// Ten Events are allowed at once, and then one in ten minutes.
func TestRateOfSystemOOMs(t *testing.T) {
	runCases(t, []testCase{
		{"as many Events as are allowed", "", func(s *script) {
			endEleven(s)
			s.wait(599)
			reportOOM(s, oomsMessage+"1")
		}},
		{"one Event too many", "system-oom", func(s *script) {
			endEleven(s)
			reportOOM(s, oomMessage)
		}},
		{"a number too early", "system-oom", func(s *script) {
			endEleven(s)
			s.wait(500)
			reportOOM(s, oomsMessage+"1")
		}},
		{"a wrong number", "system-oom", func(s *script) {
			endEleven(s)
			s.wait(599)
			reportOOM(s, oomsMessage+"2")
		}},
		{"no number", "system-oom", func(s *script) {
			endEleven(s)
			s.wait(610)
			s.sandbox("u1", 1)
		}},
		{"no number, but a new agent", "", func(s *script) {
			endEleven(s)
			s.AgentKilled(s.now)
			s.AgentStarted(s.now.Add(1e9))
			s.wait(610)
			s.sandbox("u1", 1)
		}},
		{"no Event although one is allowed", "system-oom", func(s *script) {
			endEleven(s)
			s.wait(599)
			reportOOM(s, oomsMessage+"1")
			s.wait(610)
			endProcess(s)
			s.wait(20)
			s.sandbox("u1", 1)
		}},
	})
}
