package oracle

import (
	"testing"

	"seedlet.dev/sim/truth"
)

// recordEvent adds an Event about the pod's container.
func (s *script) recordEvent(reason, message string) {
	s.addFact(truth.EventRecorded, truth.Fact{Container: "app", Reason: reason, Message: message})
}

func TestEvents(t *testing.T) {
	runCases(t, []testCase{
		{"events of what happened", "", func(s *script) {
			s.addFact(truth.ImagePulled, truth.Fact{Image: "image:1"})
			r := s.startPod(always)
			s.recordEvent("Pulled", `Successfully pulled image "image:1" in 1s`)
			s.recordEvent("Created", "")
			s.recordEvent("Started", "")
			r.exit(1, truth.CauseSelf)
			s.recordEvent("BackOff", "Back-off restarting failed container app")
			s.wait(1)
			s.AgentStarted(s.now)
			s.recordEvent("BackOff", "Back-off restarting failed container app")
		}},
		{"an image that was present", "", func(s *script) {
			s.recordEvent("Pulled", `Container image "image:1" already present on machine`)
		}},
		{"an image that was not pulled", "events", func(s *script) {
			s.recordEvent("Pulled", `Successfully pulled image "image:1" in 1s`)
		}},
		{"one start, two events", "events", func(s *script) {
			s.startPod(always)
			s.recordEvent("Started", "")
			s.recordEvent("Started", "")
		}},
		{"a container that was not created", "events", func(s *script) { s.recordEvent("Created", "") }},
		{"an ID that was not given twice", "events", func(s *script) {
			s.recordEvent("Failed", "Error: the runtime has answered with the ID of another object: "+
				`"c" is of the pod with the UID "u"`)
		}},
		{"one exit, two back-off events", "events", func(s *script) {
			s.startPod(always).exit(1, truth.CauseSelf)
			s.recordEvent("BackOff", "Back-off restarting failed container app")
			s.recordEvent("BackOff", "Back-off restarting failed container app")
		}},
		{"a repeated event", "", func(s *script) {
			s.startPod(always).exit(1, truth.CauseSelf)
			for range 3 {
				s.recordEvent("BackOff", "Back-off restarting failed container app")
				s.wait(60)
			}
		}},
		{"an event repeated too soon", "events", func(s *script) {
			s.startPod(always).exit(1, truth.CauseSelf)
			for range 3 {
				s.recordEvent("BackOff", "Back-off restarting failed container app")
				s.wait(50)
			}
		}},
		{"Killing, and stopped", "", func(s *script) {
			r := s.startPod(always)
			s.recordEvent("Killing", "Stopping container app")
			s.wait(30)
			r.exit(143, truth.CauseStop)
			s.wait(100)
		}},
		{"Killing, and not stopped", "events", func(s *script) {
			s.startPod(always)
			s.recordEvent("Killing", "Stopping container app")
			s.wait(100)
		}},
		{"Killing, and the agent died", "", func(s *script) {
			s.startPod(always)
			s.recordEvent("Killing", "Stopping container app")
			s.wait(1)
			s.AgentStarted(s.now)
			s.wait(100)
		}},
	})
}
