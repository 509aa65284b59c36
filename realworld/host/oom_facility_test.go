package host

import "testing"

// A process can write to the kernel's log what the kernel writes there, but not with the facility
// 0, whose priorities are below 8.
func TestOOMOfProcessIsNone(t *testing.T) {
	const message = ",1,2,-;Out of memory: Killed process 7 (sleep) total-vm:1kB"
	for prefix, want := range map[string]bool{"0": true, "7": true, "8": false, "15": false,
		"-1": false, "": false} {
		if got := parseOOM(prefix + message); (got != nil) != want {
			t.Errorf("priority %q: %+v", prefix, got)
		}
	}
}
