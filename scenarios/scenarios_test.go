package scenarios_test

import (
	"io/fs"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"seedlet.dev/scenarios"
	"seedlet.dev/sim"
	"seedlet.dev/sim/plan"
)

// The table of the README has a row for each field of a scenario, and no other.
func TestFieldsAreDescribed(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(readme), "| field of `spec` |")
	table, _, _ = strings.Cut(table, "\n\n")
	described := map[string]bool{}
	for _, row := range strings.Split(table, "\n")[1:] {
		for i, name := range strings.Split(strings.SplitN(row, "|", 3)[1], "`") {
			if i%2 == 1 {
				described[name] = true
			}
		}
	}
	fields := reflect.TypeFor[plan.ScenarioSpec]()
	for i := range fields.NumField() {
		name, _, _ := strings.Cut(fields.Field(i).Tag.Get("json"), ",")
		if !described[name] {
			t.Errorf("README.md has no row for the field %s", name)
		}
		delete(described, name)
	}
	for name := range described {
		t.Errorf("README.md has a row for %s, which is no field", name)
	}
}

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

// The examples of the README are valid, and runs of them pass.
func TestReadme(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(text), "```yaml\n")[1:]
	if len(blocks) != 2 {
		t.Fatalf("%d examples, want a scenario and a plan", len(blocks))
	}
	for i := range blocks {
		blocks[i], _, _ = strings.Cut(blocks[i], "```")
	}
	s, err := plan.ParseScenario("README.md", []byte(blocks[0]), scenarios.Files)
	if err != nil {
		t.Fatal(err)
	}
	byHand, err := plan.Parse("README.md", []byte(blocks[1]))
	if err != nil {
		t.Fatal(err)
	}
	plans := []*plan.Plan{byHand}
	for seed := range uint64(20) {
		p, err := plan.Generate(s, seed)
		if err != nil {
			t.Fatal(err)
		}
		plans = append(plans, p)
	}
	for _, p := range plans {
		happened := 0
		verdict, err := sim.Run(p, sim.Options{
			WatchHappening: func(time.Time, *plan.Happening) { happened++ }})
		if err != nil || verdict.Failure != nil {
			t.Errorf("%s: %v, %+v", p.Metadata.Name, err, verdict.Failure)
		}
		if p == byHand && happened != len(p.Spec.Happenings) {
			t.Errorf("%d of %d happenings of the plan have happened", happened, len(p.Spec.Happenings))
		}
	}
}

// The Go examples of the README are parts of the files that they name.
func TestReadmeExcerpts(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(text), "```go ")[1:]
	if len(blocks) < 10 {
		t.Errorf("%d excerpts, want those of a fault, a mark and an oracle", len(blocks))
	}
	for _, block := range blocks {
		file, rest, _ := strings.Cut(block, "\n")
		excerpt, _, isClosed := strings.Cut(rest, "\n```")
		source, err := os.ReadFile("../" + file)
		if err != nil {
			t.Error(err)
			continue
		}
		if !isClosed || !strings.Contains(string(source), excerpt) {
			t.Errorf("%s does not have the lines that the README shows:\n%s", file, excerpt)
		}
	}
}
