package oracle

import (
	"testing"

	"seedlet.dev/sim/truth"
	"seedlet.dev/world"
)

func TestDeviceSizes(t *testing.T) {
	const oracle = "device-sizes"
	start := func(s *script) localDevice {
		d := newLocalDevice(s, "/dev/a")
		s.model.opts.DeviceBytes = func(device string) int64 { return int64(len(device)) }
		d.addFact(truth.Mounted, truth.Fact{Path: d.bound, Source: nodeDisk, NewPath: "/dev/a"})
		d.hold()
		d.startWithDevice()
		return d
	}
	serve := func(s *script, stats world.CSIVolumeStats) {
		s.CheckVolumeStats(s.now, []world.VolumeUsage{{UID: "u1", Volume: "v", Stats: stats}})
	}
	runCases(t, []testCase{
		{"the size of the device", "", func(s *script) {
			start(s)
			serve(s, world.CSIVolumeStats{CapacityBytes: 6})
		}},
		{"the size of another device", oracle, func(s *script) {
			start(s)
			serve(s, world.CSIVolumeStats{CapacityBytes: 7})
		}},
		{"the usage of a file system", oracle, func(s *script) {
			start(s)
			serve(s, world.CSIVolumeStats{CapacityBytes: 6, UsedBytes: 1})
		}},
		{"not measured yet", "", func(s *script) {
			start(s)
			s.wait(60)
			s.CheckVolumeStats(s.now, nil)
		}},
		{"not served for long", oracle, func(s *script) {
			start(s)
			s.wait(2 * deviceSizeBound.Seconds())
			s.CheckVolumeStats(s.now, nil)
		}},
		{"not measured, as a request had no answer", "", func(s *script) {
			start(s)
			s.wait(deviceSizeBound.Seconds())
			s.timeOut("MeasureDevice")
			s.wait(deviceSizeBound.Seconds() - 1)
			s.CheckVolumeStats(s.now, nil)
		}},
		{"not measured long after a request had no answer", oracle, func(s *script) {
			start(s)
			s.timeOut("MeasureDevice")
			s.wait(2 * deviceSizeBound.Seconds())
			s.CheckVolumeStats(s.now, nil)
		}},
		{"released", "", func(s *script) {
			d := start(s)
			s.wait(2 * deviceSizeBound.Seconds())
			s.model.volumes.apply(&truth.Fact{Kind: truth.DeviceReleased, Path: d.bound})
			s.CheckVolumeStats(s.now, nil)
		}},
	})
}
