package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"seedlet.dev/sim"
	"seedlet.dev/sim/fuzz"
	"seedlet.dev/sim/plan"
)

// commandVariable makes the test binary the command itself, so that a test can kill it.
const commandVariable = "SEEDSIM_TEST_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(commandVariable) != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// start starts a search without a budget, and returns once it has ended some rounds.
func start(t *testing.T, dir string, rounds uint64) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "fuzz", "steady", "agent-restarts", "--budget", "0", "--corpus",
		dir, "--from", "100")
	cmd.Env = append(os.Environ(), commandVariable+"=1")
	var out bytes.Buffer
	cmd.Stdout = &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat(filepath.Join(dir, "corpus.json")); err == nil &&
			readCorpus(t, dir).Rounds >= rounds {
			return cmd, &out
		}
		if time.Now().After(deadline) {
			t.Fatal("no corpus")
		}
	}
}

func readCorpus(t *testing.T, dir string) *fuzz.Corpus {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "corpus.json"))
	if err != nil {
		t.Fatal(err)
	}
	c, err := fuzz.Parse("corpus.json", data)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A search that is killed again and again has the corpus of one that was not, as far as it came. An
// interrupt ends it with a summary.
func TestFuzzSurvives(t *testing.T) {
	dir := t.TempDir()
	for rounds := uint64(1); rounds <= 3; rounds++ {
		cmd, _ := start(t, dir, rounds)
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		cmd.Wait()
	}
	killed := readCorpus(t, dir)
	flags := fuzzFlags{jobs: 1, corpus: t.TempDir(), from: 100}
	s, err := flags.newSearch([]string{"steady", "agent-restarts"}, true)
	if err != nil {
		t.Fatal(err)
	}
	for s.corpus.Rounds < killed.Rounds {
		isOver := func() bool { return false }
		if err := s.runRound(t.Context(), isOver, &bytes.Buffer{}); err != nil {
			t.Fatal(err)
		}
	}
	if want := readCorpus(t, flags.corpus).JSON(); !bytes.Equal(killed.JSON(), want) {
		t.Errorf("killed:\n%s\nnot killed:\n%s", killed.JSON(), want)
	}
	if runs := killed.Scenarios["steady"]; runs.NextSeed <= 100 {
		t.Errorf("%+v", runs)
	}

	cmd, out := start(t, dir, killed.Rounds+1)
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil || !strings.Contains(out.String(), " seeds a minute, ") ||
		!strings.Contains(out.String(), " runs in all, ") {
		t.Errorf("%v: %s", err, out)
	}
	if ended := readCorpus(t, dir); ended.Runs() <= killed.Runs() {
		t.Errorf("%d runs after %d", ended.Runs(), killed.Runs())
	}
}

// In mortalPods a pod does not run in the end if its container was killed with exit code 0.
const mortalPods = `apiVersion: sim.seedlet.dev/v1alpha1
kind: Scenario
metadata: {name: mortal}
spec:
  description: d
  duration: 1m
  settle: 1m
  pods:
  - count: 4
    manifest:
      apiVersion: v1
      kind: Pod
      metadata: {name: web}
      spec:
        restartPolicy: OnFailure
        containers:
        - {name: web, image: "registry.test/web:1"}
  faults:
  - {class: latency, windows: 0..3, for: 1s..60s, probability: 0.05..0.6, takes: 10ms..5s}
  strikes: {containers: 0..5, agent: 0..3, agentDown: 10ms..3s}
  expect:
  - {pods: web, phase: Running}
`

// A failure is found once by its signature, with its smallest plan, and known to the next search.
func TestFuzzFindsFailures(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "mortal.yaml")
	if err := os.WriteFile(file, []byte(mortalPods), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, reported := range []int{1, 0} {
		out, err := call("fuzz", file, "--budget", "3s", "--corpus", dir)
		if !errors.Is(err, errFailed) || strings.Count(out, "FAIL mortal seed ") != reported {
			t.Fatalf("%v: want %d failures reported: %s", err, reported, out)
		}
	}
	c := readCorpus(t, dir)
	files, err := filepath.Glob(filepath.Join(dir, "failures", "*"))
	if err != nil || len(files) != 1 || len(c.Failures) != 1 {
		t.Fatalf("%v: %q, %v", err, files, c.Failures)
	}
	signature := strings.TrimSuffix(filepath.Base(files[0]), ".yaml")
	if known := c.Failures[signature]; known == nil || known.Runs < 2 {
		t.Errorf("%+v", c.Failures)
	}
	data, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	p, err := plan.Parse(files[0], data)
	if err != nil {
		t.Fatal(err)
	}
	verdict, err := sim.Run(p, sim.Options{})
	if err != nil || verdict.Failure == nil || fuzz.Signature(verdict.Failure) != signature {
		t.Errorf("%v: %+v", err, verdict)
	}
	if _, err := call("replay", file, "--plan", files[0]); !errors.Is(err, errFailed) {
		t.Errorf("the replay does not fail: %v", err)
	}
	kills := 0
	for i := range p.Spec.Happenings {
		if p.Spec.Happenings[i].KillContainer != nil {
			kills++
		}
	}
	if kills != 1 || len(p.Spec.Pods) != 1 || p.EntryCount() > 3 ||
		!strings.HasPrefix(string(data), "# expect: pod ") {
		t.Errorf("not the smallest plan:\n%s", data)
	}
}

func TestFuzzBadInput(t *testing.T) {
	dir := t.TempDir()
	corpus := filepath.Join(dir, "corpus.json")
	for text, want := range map[string]string{
		`{"version": 99}`: "--corpus: " + corpus + ": version: want 1, have 99",
		"nonsense":        "--corpus: " + corpus + ": not a corpus: ",
	} {
		if err := os.WriteFile(corpus, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		_, err := call("fuzz", "--corpus", dir, "--budget", "1s")
		if err == nil || errors.Is(err, errFailed) || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	if err := os.WriteFile(corpus, fuzz.New(3).JSON(), 0o644); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]string{
		"--from 4":           "--corpus: --from 4: " + corpus + " began with 3",
		"--budget -1s":       "--budget -1s: must not be negative",
		"--budget soon":      `invalid argument "soon" for "--budget"`,
		"--jobs 0":           "--jobs 0: must be at least 1",
		"nonsense":           `unknown scenario "nonsense"`,
		"--corpus " + corpus: "--corpus: ",
		"no-such-file.yaml":  "open no-such-file.yaml",
	} {
		_, err := call(append([]string{"fuzz", "--corpus", dir}, strings.Fields(args)...)...)
		if err == nil || errors.Is(err, errFailed) || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("fuzz %s: %v, want %s", args, err, want)
		}
	}
}
