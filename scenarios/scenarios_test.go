package scenarios_test

import (
	"io/fs"
	"strings"
	"testing"

	"seedlet.dev/scenarios"
	"seedlet.dev/sim"
	"seedlet.dev/sim/plan"
)

// No plan that once failed because of a bug fails now.
func TestBugs(t *testing.T) {
	files, err := fs.Glob(scenarios.Bugs, "bugs/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		data, err := fs.ReadFile(scenarios.Bugs, file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(string(data), "# ") {
			t.Errorf("%s: the file does not begin with a comment that describes the bug", file)
		}
		p, err := plan.Parse(file, data)
		if err != nil {
			t.Error(err)
			continue
		}
		verdict, err := sim.Run(p, sim.Options{})
		if err != nil {
			t.Errorf("%s: %v", file, err)
		} else if f := verdict.Failure; f != nil {
			t.Errorf("%s fails again: %s: %s", file, f.Oracle, f.Message)
		}
	}
}
