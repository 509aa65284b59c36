package host_test

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"seedlet.dev/realworld/host"
)

func TestBootOfThisMachine(t *testing.T) {
	first, err := host.Boot("/", t.TempDir(), host.IDFiles{})
	if err != nil {
		t.Fatal(err)
	}
	second, err := host.Boot("/", t.TempDir(), host.IDFiles{})
	if err != nil {
		t.Fatal(err)
	}
	if first.Seed == second.Seed {
		t.Errorf("two boots have the same seed %d", first.Seed)
	}
	if len(first.BootID) != 36 || first.BootID != second.BootID {
		t.Errorf("boot ids %q and %q, want one UUID", first.BootID, second.BootID)
	}
	if first.Uptime <= 0 || second.Uptime < first.Uptime {
		t.Errorf("up for %v, then for %v", first.Uptime, second.Uptime)
	}
	if first.CPUs < 1 || first.MemoryBytes < 16<<20 || first.Hostname == "" {
		t.Errorf("unlikely machine: %+v", first)
	}
}

func TestBootErrors(t *testing.T) {
	cases := []struct{ name, meminfo, want string }{
		{"good", "MemTotal:       2048 kB\nMemFree: 1 kB\n", ""},
		{"no total", "MemFree:       2048 kB\n", "has no MemTotal"},
		{"no number", "MemTotal:       lots kB\n", "lots"},
		{"none", "MemTotal:       0 kB\n", "it has none"},
		{"negative", "MemTotal:       -5 kB\n", "-5"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			root := t.TempDir()
			write(t, filepath.Join(root, "proc/sys/kernel/random/boot_id"), "a-b-c\n")
			write(t, filepath.Join(root, "proc/meminfo"), c.meminfo)
			boot, err := host.Boot(root, root, host.IDFiles{})
			switch {
			case c.want == "" && err != nil:
				t.Errorf("unexpected error: %v", err)
			case c.want == "" && (boot.MemoryBytes != 2048<<10 || boot.BootID != "a-b-c"):
				t.Errorf("got %+v", boot)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
	if _, err := host.Boot(t.TempDir(), "/", host.IDFiles{}); err == nil {
		t.Error("no error without a boot id")
	}
}

// An uptime that cannot be read is not known; the agent starts all the same.
func TestUptime(t *testing.T) {
	root := t.TempDir()
	write(t, filepath.Join(root, "proc/sys/kernel/random/boot_id"), "a\n")
	write(t, filepath.Join(root, "proc/meminfo"), "MemTotal: 2048 kB\n")
	for _, c := range []struct {
		text string
		want time.Duration
	}{{"", 0}, {"350735.47 234388.90\n", 350735470 * time.Millisecond}, {"12\n", 12 * time.Second},
		{"long\n", 0}, {"-5.00 1.00\n", 0}, {"1e400 1\n", 0}} {
		if c.text != "" {
			write(t, filepath.Join(root, "proc/uptime"), c.text)
		}
		boot, err := host.Boot(root, root, host.IDFiles{})
		if err != nil {
			t.Fatal(err)
		}
		if boot.Uptime != c.want {
			t.Errorf("%q: %v, want %v", c.text, boot.Uptime, c.want)
		}
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// The CPUs are the machine's, not those that the process may run on.
func TestCPUsOfTheMachine(t *testing.T) {
	root := t.TempDir()
	write(t, filepath.Join(root, "proc/sys/kernel/random/boot_id"), "a\n")
	write(t, filepath.Join(root, "proc/meminfo"), "MemTotal: 2048 kB\n")
	for _, c := range []struct {
		online string
		want   int
	}{{"0-63\n", 64}, {"0,2-3,1021\n", 4}, {"garbage\n", runtime.NumCPU()}, {"\n", runtime.NumCPU()}} {
		write(t, filepath.Join(root, "sys/devices/system/cpu/online"), c.online)
		boot, err := host.Boot(root, root, host.IDFiles{})
		if err != nil || boot.CPUs != c.want {
			t.Errorf("%q: %+v, %v; want %d CPUs", c.online, boot, err, c.want)
		}
	}
}
