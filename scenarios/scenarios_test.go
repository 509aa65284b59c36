package scenarios_test

import (
	"io/fs"
	"strings"
	"testing"

	"seedlet.dev/scenarios"
	"seedlet.dev/sim"
)

// Every plan that ever failed holds now.
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
			t.Errorf("%s: does not begin with a sentence that says what was wrong", file)
		}
		plan, err := sim.ParsePlan(file, data)
		if err != nil {
			t.Error(err)
			continue
		}
		verdict, err := sim.Run(plan, sim.Options{})
		if err != nil {
			t.Errorf("%s: %v", file, err)
		} else if f := verdict.Failure; f != nil {
			t.Errorf("%s is back: %s: %s", file, f.Oracle, f.Message)
		}
	}
}
