package oracle

import (
	"testing"

	"seedlet.dev/sim/truth"
)

// told has an event told of a container of the pod.
func (s *story) told(reason, message string) {
	s.fact(truth.EventTold, truth.Fact{Container: "app", Reason: reason, Message: message})
}

func TestEvents(t *testing.T) {
	judge(t, []tale{
		{"what happened is told", "", func(s *story) {
			s.fact(truth.ImagePulled, truth.Fact{Image: "image:1"})
			r := s.runs(always)
			s.told("Pulled", `Successfully pulled image "image:1" in 1s`)
			s.told("Created", "")
			s.told("Started", "")
			r.exit(1, truth.CauseOwn)
			s.told("BackOff", "Back-off restarting failed container app")
			s.wait(1)
			s.AgentStarted(s.now)
			s.told("BackOff", "Back-off restarting failed container app")
		}},
		{"an image that was there", "", func(s *story) {
			s.told("Pulled", `Container image "image:1" already present on machine`)
		}},
		{"an image that was not pulled", "events", func(s *story) {
			s.told("Pulled", `Successfully pulled image "image:1" in 1s`)
		}},
		{"a start twice", "events", func(s *story) {
			s.runs(always)
			s.told("Started", "")
			s.told("Started", "")
		}},
		{"a container that was not made", "events", func(s *story) { s.told("Created", "") }},
		{"one exit twice", "events", func(s *story) {
			s.runs(always).exit(1, truth.CauseOwn)
			s.told("BackOff", "Back-off restarting failed container app")
			s.told("BackOff", "Back-off restarting failed container app")
		}},
		{"a reminder", "", func(s *story) {
			s.runs(always).exit(1, truth.CauseOwn)
			for range 3 {
				s.told("BackOff", "Back-off restarting failed container app")
				s.wait(60)
			}
		}},
		{"a reminder too soon", "events", func(s *story) {
			s.runs(always).exit(1, truth.CauseOwn)
			for range 3 {
				s.told("BackOff", "Back-off restarting failed container app")
				s.wait(50)
			}
		}},
		{"it is stopped", "", func(s *story) {
			r := s.runs(always)
			s.told("Killing", "Stopping container app")
			s.wait(30)
			r.exit(143, truth.CauseStop)
			s.wait(100)
		}},
		{"it is not stopped", "events", func(s *story) {
			s.runs(always)
			s.told("Killing", "Stopping container app")
			s.wait(100)
		}},
		{"the agent died over it", "", func(s *story) {
			s.runs(always)
			s.told("Killing", "Stopping container app")
			s.wait(1)
			s.AgentStarted(s.now)
			s.wait(100)
		}},
	})
}
