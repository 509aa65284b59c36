package oracle

import (
	"testing"

	"seedlet.dev/sim/truth"
)

func TestVolumesBetweenGroups(t *testing.T) {
	// with begins a shutdown after which the first group has ended, with a volume mounted.
	with := func(then func(s *script, critical run)) func(*script) {
		return func(s *script) {
			ordinary, critical := shutdownScript(s)
			s.changePath(truth.Mounted, volumeInMemory, "")
			s.machine(truth.ShutdownAnnounced, "")
			ordinary.end(5)
			then(s, critical)
			s.losePower()
		}
	}
	unmount := func(s *script) { s.changePath(truth.Unmounted, volumeInMemory, "") }
	runCases(t, []testCase{
		{"unmounted before the next group", "", with(func(s *script, critical run) {
			unmount(s)
			critical.end(5)
		})},
		{"mounted while the next group is stopped", "shutdown", with(func(s *script, critical run) {
			critical.end(5)
			unmount(s)
		})},
		{"mounted until the period of its group has passed", "", with(func(s *script, critical run) {
			s.wait(15)
			critical.end(5)
		})},
		{"mounted when the lock is released", "shutdown", with(func(s *script, critical run) {
			critical.exit(0, truth.CauseSelf)
			s.machine(truth.ShutdownPermitted, "")
		})},
	})
}
