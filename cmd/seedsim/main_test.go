package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// call runs a command line, and returns its output and error.
func call(args ...string) (string, error) {
	var out bytes.Buffer
	c := newCommand()
	c.SetArgs(args)
	c.SetOut(&out)
	c.SetErr(&out)
	err := c.Execute()
	return out.String(), err
}

func TestBadInput(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad.yaml")
	if err := os.WriteFile(bad, []byte("kind: Plan\nspec: {seed: x}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ args, want string }{
		{"run nonsense --seeds 1-2", "there are "},
		{"run steady --seeds 9-3", "must be A-B with A not above B"},
		{"run steady --seeds x", "must be A-B with A not above B"},
		{"run steady --seeds -3", "must be A-B with A not above B"},
		{"run steady --jobs 0", "must be at least 1"},
		{"run", "usage: seedsim run SCENARIO|all"},
		{"replay steady --plan " + bad, "bad.yaml"},
		{"replay steady --plan /no/such/file", "no such file"},
		{"replay steady --dump x", "--until"},
		{"replay steady --until 99999999", "has only"},
		{"replay steady --pod x", "need --log"},
		{"replay steady --log --pod x", "--pod x: the plan has "},
		{"replay steady --log --only x", "want events, effects, facts or plan"},
		{"replay steady --html /no/such/file", "--html: open /no/such/file: no such file"},
		{"replay steady --trace /no/such/file", "--trace: open /no/such/file: no such file"},
		{"replay steady --html x --trace ./x", "--trace ./x: --html writes to the same file"},
		{"replay steady --until 1 --dump x --html x", "--html x: --dump writes to the same file"},
		{"plan all", "seedsim list"},
		{"shrink steady", "steady-1 does not fail: nothing to shrink"},
		{"sweep steady --after 999999", "--after 999999: the plan has "},
		{"sweep steady --every 0", "--every 0: must be at least 1"},
		{"sweep steady -o x", "-o x: needs --after and one strike"},
		{"run steady --strategy x", "want one of [uniform priority pct]"},
		{"marks --strategy x", "want one of [uniform priority pct], or both"},
		{"replay steady --strategy pct --plan x", "--strategy pct: a plan has its own, spec.order"},
		{"marks nonsense", "there are "},
		{"marks --seeds 9-3", "must be A-B with A not above B"},
		{"marks --jobs 0", "must be at least 1"},
		{"bake", "unknown command"},
		{"list --nonsense", "nonsense"},
	} {
		_, err := call(strings.Fields(test.args)...)
		if err == nil || errors.Is(err, errFailed) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("seedsim %s: %v, want an error with %q", test.args, err, test.want)
		}
	}
}

func TestRunJSON(t *testing.T) {
	var hashes []string
	for _, jobs := range []string{"1", "3"} {
		out, err := call("run", "steady", "--seeds", "1-4", "--json", "--jobs", jobs)
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		var fields map[string]any
		if err := json.Unmarshal([]byte(out), &fields); err != nil {
			t.Fatalf("not one JSON object: %v", err)
		}
		for _, name := range []string{"scenario", "seeds", "failures", "virtualSeconds",
			"wallSeconds", "events", "hash", "settled"} {
			if fields[name] == nil {
				t.Errorf("no field %s in %s", name, out)
			}
		}
		hashes = append(hashes, fields["hash"].(string))
		settled := fields["settled"].(map[string]any)
		half, most := settled["medianSeconds"].(float64), settled["mostSeconds"].(float64)
		if half <= 0 || most < half || most > 600 || settled["slowest"] == nil {
			t.Errorf("settled: %v", settled)
		}
	}
	if hashes[0] != hashes[1] {
		t.Errorf("the hash depends on the number of jobs: %v", hashes)
	}
}

// The printed plan has the same run as the seed.
func TestPlanReplays(t *testing.T) {
	plan, err := call("plan", "crashloop", "--seed", "5")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "plan.yaml")
	if err := os.WriteFile(file, []byte(plan), 0o644); err != nil {
		t.Fatal(err)
	}
	bySeed, err := call("replay", "crashloop", "--seed", "5")
	if err != nil {
		t.Fatal(err)
	}
	byFile, err := call("replay", "crashloop", "--plan", file)
	if err != nil || byFile != bySeed {
		t.Errorf("the seed prints %q, its plan %q, %v", bySeed, byFile, err)
	}
	alone, err := call("replay", "--plan", file)
	if err != nil || alone != bySeed {
		t.Errorf("the plan without a scenario prints %q, %v", alone, err)
	}
	if _, err := call("replay"); err == nil || !strings.Contains(err.Error(), "--plan FILE") {
		t.Errorf("without a scenario and a plan: %v", err)
	}
}

func TestReplayDump(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state.json")
	out, err := call("replay", "steady", "--seed", "2", "--until", "50", "--dump", file, "--log")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out, "→ ListContainers") || !strings.Contains(out, "\n#50 ") ||
		strings.Contains(out, "\n#51 ") {
		t.Errorf("the log does not have 50 events:\n%s", out)
	}
	state, err := os.ReadFile(file)
	var fields map[string]any
	if err != nil || json.Unmarshal(state, &fields) != nil || fields["pods"] == nil {
		t.Errorf("the dump is not a state: %v", err)
	}
}

// The run is written as a page and as a trace, and the outcome is that of any replay.
func TestReplayReport(t *testing.T) {
	html, trace := filepath.Join(t.TempDir(), "run.html"), filepath.Join(t.TempDir(), "run.json")
	plain, err := call("replay", "crashloop", "--seed", "7", "--log")
	if err != nil {
		t.Fatal(err)
	}
	out, err := call("replay", "crashloop", "--seed", "7", "--log", "--html", html, "--trace", trace)
	if err != nil || out != plain {
		t.Errorf("%v: other lines with outputs", err)
	}
	for file, want := range map[string]string{html: "Content-Security-Policy",
		trace: `"traceEvents"`} {
		data, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(data), want) {
			t.Errorf("%s, %d bytes: no %q, %v", file, len(data), want, err)
		}
	}
}

func TestList(t *testing.T) {
	out, err := call("list")
	for _, name := range []string{"steady", "crashloop", "init-chain", "runtime-flaky",
		"agent-restarts", "manifest-churn"} {
		if err != nil || !strings.Contains(out, name) {
			t.Errorf("%s is not listed: %v", name, err)
		}
	}
	if out, err = call("oracles"); err != nil || !strings.Contains(out, "back") {
		t.Errorf("the oracles are not listed: %q, %v", out, err)
	}
}

// A scenario may lie anywhere.
func TestScenarioOfAbsolutePath(t *testing.T) {
	file := filepath.Join(t.TempDir(), "still.yaml")
	text, err := os.ReadFile("../../scenarios/steady.yaml")
	if err == nil {
		err = os.WriteFile(file, text, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	if out, err := call("run", file, "--seeds", "1-1"); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// The README shows the output of the command.
func TestReadme(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, shown, found := strings.Cut(string(readme), "$ bin/seedsim replay crashloop --seed 7 --log\n")
	shown, _, _ = strings.Cut(shown, "```")
	printed, err := call("replay", "crashloop", "--seed", "7", "--log")
	if err != nil || !found || !strings.Contains(printed, shown) {
		t.Errorf("%v; the README shows\n%s\nand the command does not print it", err, shown)
	}
}

// The catalogue does not depend on the number of jobs.
func TestMarks(t *testing.T) {
	var printed []string
	for _, jobs := range []string{"1", "3"} {
		out, err := call("marks", "steady", "hooks", "--seeds", "1-4", "--jobs", jobs)
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		printed = append(printed, out)
	}
	if printed[0] != printed[1] {
		t.Errorf("one job prints\n%s\nthree print\n%s", printed[0], printed[1])
	}
	for _, text := range []string{"MARK ", "kill-after-grace ", "hooks seed ", "never reached:",
		"reboot during ", " marks reached by 8 runs"} {
		if !strings.Contains(printed[0], text) {
			t.Errorf("no %q in\n%s", text, printed[0])
		}
	}
	out, err := call("marks", "steady", "--seeds", "1-1", "--json")
	var fields struct {
		Runs, Reached int
		Marks         []struct{ Name string }
	}
	if err != nil || json.Unmarshal([]byte(out), &fields) != nil || fields.Runs != 1 ||
		fields.Reached == 0 || len(fields.Marks) < 500 {
		t.Errorf("%v: %+v", err, fields)
	}
}

// A strategy is another run of the seed. Both are compared over the same seeds.
func TestStrategies(t *testing.T) {
	var hashes []string
	for _, strategy := range []string{"uniform", "pct"} {
		out, err := call("replay", "steady", "--seed", "1", "--strategy", strategy)
		if err != nil {
			t.Fatal(err)
		}
		hashes = append(hashes, out[strings.LastIndexByte(out, ' '):])
	}
	if hashes[0] == hashes[1] {
		t.Errorf("one hash: %q", hashes)
	}
	if out, err := call("run", "steady", "--seeds", "1-2", "--strategy", "pct"); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	out, err := call("marks", "steady", "agent-restarts", "--seeds", "1-3", "--strategy", "both")
	if err != nil || !strings.HasPrefix(out, "MARK ") || !strings.Contains(out, " UNIFORM  PCT\n") ||
		!strings.Contains(out, "6 runs by each strategy reach: uniform ") {
		t.Errorf("%v: %s", err, out)
	}
	out, err = call("marks", "steady", "--seeds", "1-1", "--strategy", "both", "--json")
	var fields struct{ Marks []struct{ Uniform, PCT int } }
	if err != nil || json.Unmarshal([]byte(out), &fields) != nil || len(fields.Marks) < 500 {
		t.Errorf("%v: %d marks", err, len(fields.Marks))
	}
}
