package host

import (
	"strings"
	"testing"

	"seedlet.dev/world"
)

// A process can write to the kernel's log what the kernel writes there, but not with the facility
// 0, whose priorities are below 8.
func TestOOMOfProcessIsNone(t *testing.T) {
	const announced = "4,1,1,-;sleep invoked oom-killer: gfp_mask=0x0\n"
	const killed = ",2,2,-;Out of memory: Killed process 7 (sleep) total-vm:1kB\n"
	for prefix, want := range map[string]int{"0": 1, "7": 1, "8": 0, "15": 0, "-1": 0, "": 0} {
		found := 0
		_ = readOOMs(strings.NewReader(announced+prefix+killed), // the log ends
			func(*world.SystemOOM) { found++ })
		if found != want {
			t.Errorf("priority %q: %d events", prefix, found)
		}
	}
}
