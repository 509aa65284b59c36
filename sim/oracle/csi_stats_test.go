package oracle

import (
	"testing"
	"time"

	"seedlet.dev/sim/truth"
	"seedlet.dev/world"
)

// csiMeasure has the agent ask for the usage of the volume of pod u1, and the driver answer.
func csiMeasure(s *script, op world.OpID, used int64) {
	s.CallIssued(s.now, &world.Effect{Op: op, Deadline: s.now.Add(2 * time.Minute),
		Body: &world.GetVolumeStats{Handle: "h", Path: csiTarget("u1")}})
	s.EventReceived(s.now, &world.Event{Time: s.now, Op: op,
		Body: &world.CSIVolumeStats{UsedBytes: used}})
}

// csiServe has the agent serve a usage of the volume of pod u1; a negative one is none.
func csiServe(s *script, used int64) {
	var served []world.VolumeUsage
	if used >= 0 {
		served = append(served, world.VolumeUsage{UID: "u1", Volume: "v",
			Stats: world.CSIVolumeStats{UsedBytes: used}})
	}
	s.CheckVolumeStats(s.now, served)
}

// csiMeasured is csiStart with a driver that has statistics.
func csiMeasured(s *script) {
	csiStart(s)
	s.CheckFact(truth.Fact{Time: s.now, Kind: truth.DriverStarted,
		Driver: &truth.Driver{Name: csiDriver, Stages: true, Measures: true}})
}

func TestCSIStats(t *testing.T) {
	runCases(t, []testCase{
		{"the last answer is served", "", func(s *script) {
			csiMeasured(s)
			csiMeasure(s, 1, 5)
			csiServe(s, 5)
			s.wait(60)
			csiMeasure(s, 2, 6)
			csiServe(s, 6)
		}},
		{"an earlier answer is served", "csi-stats", func(s *script) {
			csiMeasured(s)
			csiMeasure(s, 1, 5)
			s.wait(60)
			csiMeasure(s, 2, 6)
			csiServe(s, 5)
		}},
		{"a usage that nobody has measured", "csi-stats", func(s *script) {
			csiMeasured(s)
			csiServe(s, 5)
		}},
		{"not measured any more", "csi-stats", func(s *script) {
			csiMeasured(s)
			csiMeasure(s, 1, 5)
			s.wait(300)
			csiServe(s, 5)
		}},
		{"never measured, as the driver cannot", "", func(s *script) {
			csiStart(s)
			s.wait(300)
			csiServe(s, -1)
		}},
		{"measured and not served", "csi-stats", func(s *script) {
			csiMeasured(s)
			s.wait(300)
			csiMeasure(s, 1, 5)
			csiServe(s, -1)
		}},
		{"not measured by an agent that has just started", "", func(s *script) {
			csiMeasured(s)
			s.wait(300)
			s.AgentKilled(s.now)
			s.AgentStarted(s.now)
			csiServe(s, -1)
		}},
		{"measured too often", "csi-stats", func(s *script) {
			csiMeasured(s)
			csiMeasure(s, 1, 5)
			s.wait(30)
			csiMeasure(s, 2, 5)
		}},
	})
}
