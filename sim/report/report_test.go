package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"seedlet.dev/scenarios"
	"seedlet.dev/sim"
	"seedlet.dev/sim/plan"
)

// node is a scenario of thirty pods on a node that is rebooted, and whose agent is killed.
const node = `apiVersion: sim.seedlet.dev/v1alpha1
kind: Scenario
metadata: {name: node}
spec:
  description: Thirty pods on a node that is rebooted.
  duration: 1m
  settle: 5m
  node: {api: true}
  pods:
  - count: 30
    api: true
    manifest:
      apiVersion: v1
      kind: Pod
      metadata: {name: web}
      spec: {containers: [{name: app, image: "registry.test/web:1"}]}
    behaviour: [{container: app, runs: 10s..40s, times: 1, exitCodes: [3]}]
  faults: [{class: latency, windows: 2, for: 10s, probability: 0.5, takes: 300ms, always: true}]
  strikes:
   {agent: 1, agentDown: 2s, runtime: 1, runtimeDown: 2s, reboots: 1, rebootTakes: 5s, always: true}
  expect: [{pods: web, phase: %s}]
`

func generate(t *testing.T, text string) *plan.Plan {
	t.Helper()
	scenario, err := plan.ParseScenario("node", []byte(text), scenarios.Files)
	if err != nil {
		t.Fatal(err)
	}
	p, err := plan.Generate(scenario, 1)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func record(t *testing.T, p *plan.Plan) (*Run, *sim.Verdict) {
	t.Helper()
	var o sim.Options
	r := New(p)
	r.Attach(p, &o)
	verdict, err := sim.Run(p, o)
	if err != nil {
		t.Fatal(err)
	}
	return r.Finish(verdict), verdict
}

// A recorded run is the same as any other.
func TestRecordingChangesNothing(t *testing.T) {
	for _, phase := range []string{"Running", "Succeeded"} {
		p := generate(t, fmt.Sprintf(node, phase))
		_, recorded := record(t, p)
		plain, err := sim.Run(p, sim.Options{})
		if err != nil || plain.Hash != recorded.Hash || plain.Events != recorded.Events {
			t.Errorf("hash %x when recorded, %x otherwise, %v", recorded.Hash, plain.Hash, err)
		}
	}
}

// Attach keeps what has observed the run before.
func TestAttachKeepsObservers(t *testing.T) {
	p := generate(t, fmt.Sprintf(node, "Running"))
	var o sim.Options
	steps := 0
	o.Watch = func(sim.Step) { steps++ }
	r := New(p)
	r.Attach(p, &o)
	verdict, err := sim.Run(p, o)
	if err != nil || steps == 0 || uint64(steps) != verdict.Events {
		t.Errorf("%d steps observed of %d, %v", steps, verdict.Events, err)
	}
}

// states returns which states lanes have had, and fails if those of a lane overlap.
func states(t *testing.T, run *Run) map[State]int {
	t.Helper()
	seen := map[State]int{}
	for i, lane := range run.Lanes {
		last := int64(0)
		for _, s := range lane.Spans {
			if s.From < last || s.To <= s.From || s.To > run.End || s.Row < 0 {
				t.Fatalf("lane %d %s: %+v after %d", i, lane.Name, s, last)
			}
			last = s.To
			seen[s.State]++
		}
		if lane.Pod >= 0 && (lane.Pod >= i || run.Lanes[lane.Pod].Pod >= 0) {
			t.Errorf("lane %d %s does not follow that of its pod, %d", i, lane.Name, lane.Pod)
		}
	}
	return seen
}

func TestRun(t *testing.T) {
	p := generate(t, fmt.Sprintf(node, "Running"))
	run, verdict := record(t, p)
	if verdict.Failure != nil || run.Verdict != nil {
		t.Fatalf("%+v, %+v", verdict.Failure, run.Verdict)
	}
	pods := 0
	for _, lane := range run.Lanes[1:] {
		if lane.Pod < 0 {
			pods++
		}
	}
	if pods != 30 {
		t.Errorf("%d pods", pods)
	}
	seen := states(t, run)
	for _, s := range []State{waiting, running, ready, failed} {
		if seen[s] < 30 {
			t.Errorf("%d spans are %s", seen[s], stateNames[s])
		}
	}
	bars := map[string]int{}
	for _, bar := range run.Bars {
		bars[bar.Kind]++
		if bar.From > bar.To || bar.To > run.End {
			t.Errorf("%+v", bar)
		}
	}
	faults := 0
	for _, h := range p.Spec.Happenings {
		if h.Fault != nil {
			faults++
		}
	}
	if bars["agent"] != verdict.Incarnations || bars["machineDown"] != 1 || bars["runtimeDown"] != 1 ||
		bars["fault"] != faults || faults < 2 {
		t.Errorf("%d incarnations, bars %v", verdict.Incarnations, bars)
	}
	rows := &run.Rows
	if !slices.IsSorted(rows.At) {
		t.Error("the rows are not in the order of their times")
	}
	events := map[int]uint64{}
	for _, kind := range rows.Kind {
		events[kind]++
	}
	if events[0] != verdict.Events || events[2] == 0 || events[3] == 0 {
		t.Errorf("%d events, %v", verdict.Events, events)
	}
	checkOps(t, run)
}

// checkOps checks that operations relate effects to answers.
func checkOps(t *testing.T, run *Run) {
	t.Helper()
	rows, answered := &run.Rows, 0
	for i, op := range run.Ops {
		if rows.Op[op.Effect] != i || rows.Kind[op.Effect] != 1 || op.End < rows.At[op.Effect] ||
			op.Reached > op.End {
			t.Fatalf("operation %d: %+v", i, op)
		}
		if op.Answer < 0 {
			continue
		}
		answered++
		if rows.Op[op.Answer] != i || rows.Kind[op.Answer] != 0 ||
			rows.Lane[op.Answer] != rows.Lane[op.Effect] {
			t.Fatalf("operation %d: %+v is not answered by its row", i, op)
		}
	}
	if answered < len(run.Ops)/2 {
		t.Errorf("%d of %d operations are answered", answered, len(run.Ops))
	}
}

// A violation is in both outputs, with its oracle and its message.
func TestVerdict(t *testing.T) {
	run, verdict := record(t, generate(t, fmt.Sprintf(node, "Succeeded")))
	f := verdict.Failure
	if f == nil || run.Verdict == nil || run.Verdict.Oracle != f.Oracle ||
		run.Verdict.At != f.Virtual.Microseconds() || run.Verdict.Row != len(run.Rows.At)-1 {
		t.Fatalf("%+v, %+v", f, run.Verdict)
	}
	states(t, run)
	page, trace := write(t, run)
	if !strings.Contains(page, "FAIL "+f.Oracle) || !strings.Contains(trace, "FAIL "+f.Oracle) {
		t.Error("an output does not have the violation")
	}
}

func write(t *testing.T, run *Run) (page, trace string) {
	t.Helper()
	var html, chrome bytes.Buffer
	if err := run.WriteHTML(&html); err != nil {
		t.Fatal(err)
	}
	if err := run.WriteTrace(&chrome); err != nil {
		t.Fatal(err)
	}
	return html.String(), chrome.String()
}

// The trace has a process for each pod, a thread for each container, and every begin has its end.
func TestTrace(t *testing.T) {
	run, _ := record(t, generate(t, fmt.Sprintf(node, "Running")))
	_, text := write(t, run)
	var trace struct{ TraceEvents []entry }
	if err := json.Unmarshal([]byte(text), &trace); err != nil {
		t.Fatal(err)
	}
	processes, threads, open, phases := map[int]bool{}, map[int]string{}, map[string]int{},
		map[string]int{}
	for _, e := range trace.TraceEvents {
		phases[e.Phase]++
		switch {
		case e.Name == "process_name":
			processes[e.Process] = true
		case e.Name == "thread_name":
			threads[e.Thread] = e.Args["name"].(string)
		case e.Phase == phaseAsyncBegin:
			open[e.ID]++
		case e.Phase == phaseAsyncEnd:
			open[e.ID]--
		}
		if !processes[e.Process] || e.Thread == 0 {
			t.Fatalf("%+v is in no process", e)
		}
	}
	containers := 0
	for _, name := range threads { //ordered: counts
		if name == "app" {
			containers++
		}
	}
	if len(processes) != 31 || containers != 30 {
		t.Errorf("%d processes, %d threads of containers", len(processes), containers)
	}
	for id, n := range open { //ordered: each is checked by itself
		if n != 0 {
			t.Errorf("%s: %d", id, n)
		}
	}
	if phases[phaseComplete] == 0 || phases[phaseInstant] != len(run.Rows.At) {
		t.Errorf("%v, want %d instants", phases, len(run.Rows.At))
	}
}

var (
	policyPattern = regexp.MustCompile(`http-equiv="Content-Security-Policy" content="([^"]*)"`)
	scriptPattern = regexp.MustCompile(`(?s)<script>(.*?)</script>`)
	stylePattern  = regexp.MustCompile(`(?s)<style>(.*?)</style>`)
	dataPattern   = regexp.MustCompile(`(?s)<script type="application/json" id="run">(.*?)</script>`)
)

// The page allows its own script and style by their hashes, and nothing else.
func TestPolicy(t *testing.T) {
	page, _ := write(t, hostileRun())
	policy := policyPattern.FindStringSubmatch(page)
	if policy == nil {
		t.Fatal("the page has no policy")
	}
	got := strings.ReplaceAll(policy[1], "&#43;", "+")
	got = strings.ReplaceAll(got, "&#39;", "'")
	want := "default-src 'none'; script-src '" + hash(scriptPattern.FindStringSubmatch(page)[1]) +
		"'; style-src '" + hash(stylePattern.FindStringSubmatch(page)[1]) +
		"'; base-uri 'none'; form-action 'none'"
	if got != want {
		t.Errorf("policy %s\nwant %s", got, want)
	}
	for _, word := range []string{" src=", "href=", "url(", "@import", "://", "innerHTML", "eval("} {
		if strings.Contains(page, word) {
			t.Errorf("the page has %q", word)
		}
	}
}

// hostile is a name that breaks out of scripts, comments and attributes that are not escaped.
const hostile = "</script><script>document.title='broken'</script>" +
	"<!-- \"><img onerror=x> {{.}} \u2028'"

func hostileRun() *Run {
	return &Run{Title: hostile, Summary: hostile, End: 1, Strings: []string{"", hostile},
		Lanes: []*Lane{{Name: hostile, Pod: -1}, {Name: hostile, Pod: 0, UID: hostile,
			Spans: []Span{{From: 0, To: 1, State: running, Label: 1}}}},
		Rows: Rows{At: []int64{0}, Kind: []int{2}, Number: []uint64{0}, Incarnation: []int{0},
			Name: []int{1}, Text: []int{1}, Lane: []int{1}, Op: []int{-1}},
		Bars:    []Bar{{Kind: "fault", Label: 1}},
		Verdict: &Verdict{Oracle: hostile, Message: hostile}}
}

// Names and messages cannot break out of the page.
func TestHostileNames(t *testing.T) {
	page, trace := write(t, hostileRun())
	if n := strings.Count(page, "<script"); n != 3 {
		t.Errorf("%d scripts", n)
	}
	if strings.Contains(page, "<img") || strings.Contains(page, "<!-- ") {
		t.Error("a name has become markup")
	}
	data := dataPattern.FindStringSubmatch(page)
	var run struct {
		Title   string
		Strings []string
		Verdict Verdict
	}
	if err := json.Unmarshal([]byte(data[1]), &run); err != nil || run.Title != hostile ||
		run.Strings[1] != hostile || run.Verdict.Message != hostile {
		t.Errorf("%v: %+v", err, run)
	}
	if !json.Valid([]byte(trace)) {
		t.Error("the trace is not valid")
	}
}

// A text is cut before it is too long, and stays valid.
func TestLongText(t *testing.T) {
	r := New(&plan.Plan{})
	n := r.number(strings.Repeat("ä", textMax))
	if text := r.run.Strings[n]; len(text) > textMax+3 || !strings.HasSuffix(text, "ä…") {
		t.Errorf("%d bytes", len(text))
	}
}

func TestCompareNames(t *testing.T) {
	names := []string{"web-10", "db", "web-2", "web-09", "web"}
	slices.SortFunc(names, compareNames)
	if got := strings.Join(names, " "); got != "db web web-2 web-09 web-10" {
		t.Error(got)
	}
}
