package host

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The kernel's settings are never those of the machine that runs the tests.
func TestKernelSettings(t *testing.T) {
	right := map[string]string{"vm/overcommit_memory": "1", "vm/panic_on_oom": "0",
		"kernel/panic": "10", "kernel/panic_on_oops": "1", "kernel/keys/root_maxkeys": "1000000",
		"kernel/keys/root_maxbytes": "25000000"}
	for _, c := range []struct {
		name    string
		change  map[string]string // of a kernel whose settings are right; empty: no such setting
		protect bool
		changed string
		errs    []string // parts of the error; none: no error
	}{
		{"right", nil, false, "", nil},
		{"right and protected", nil, true, "", nil},
		{"others", map[string]string{"vm/overcommit_memory": "0", "kernel/panic": "-1"}, false,
			"vm.overcommit_memory 0 1, kernel.panic -1 10", nil},
		{"others and protected", map[string]string{"vm/overcommit_memory": "0", "kernel/panic": "0"},
			true, "", []string{"vm.overcommit_memory: is 0, must be 1", "kernel.panic: is 0, must be 10",
				"protectKernelDefaults"}},
		{"missing, and no number", map[string]string{"vm/panic_on_oom": "", "kernel/panic": "x"}, false,
			"", []string{"vm.panic_on_oom: reading", `kernel.panic: "x\n" is no number`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := t.TempDir()
			writeFiles(t, root, right)
			for name, text := range c.change {
				writeFiles(t, root, map[string]string{name: text})
				if text == "" {
					if err := os.Remove(filepath.Join(root, name)); err != nil {
						t.Fatal(err)
					}
				}
			}
			var changed []string
			err := SetKernelSettings(root, c.protect, func(name string, from, to int64) {
				changed = append(changed, fmt.Sprint(name, " ", from, " ", to))
			})
			if got := strings.Join(changed, ", "); got != c.changed {
				t.Errorf("changed %s, want %s", got, c.changed)
			}
			if (err != nil) != (len(c.errs) > 0) {
				t.Fatalf("error %v", err)
			}
			for _, part := range c.errs {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("error %v lacks %q", err, part)
				}
			}
			if err == nil {
				checkFiles(t, root, right)
			} else if c.protect {
				checkFiles(t, root, c.change)
			}
		})
	}
}
