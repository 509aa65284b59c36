package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"seedlet.dev/sim/fuzz"
	"seedlet.dev/sim/marks"
	"seedlet.dev/sim/plan"
	"seedlet.dev/sim/shrink"
)

func fuzzCommand() *cobra.Command {
	var flags fuzzFlags
	c := &cobra.Command{
		Use:   "fuzz [SCENARIO…] --budget 10m",
		Short: "Search for failures with ever new seeds, and with plans that reach rare situations",
		Long: "Search for failures with ever new seeds of scenarios, and with mutations of plans that\n" +
			"reach rare marks. Without a scenario: of all. What was found is kept in a folder, from\n" +
			"which the next search goes on: corpus.json, and the smallest plan of each failure in\n" +
			"failures. An interrupt ends the search.",
		RunE: func(c *cobra.Command, args []string) error {
			s, err := flags.newSearch(args, c.Flags().Changed("from"))
			if err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt)
			defer stop()
			context.AfterFunc(ctx, stop) // a second interrupt ends the process
			return s.run(ctx, flags.budget, c.OutOrStdout())
		},
	}
	c.Flags().DurationVar(&flags.budget, "budget", 10*time.Minute,
		"the length of the search, without the shrinking of plans; 0: until it is interrupted")
	addJobs(c, &flags.jobs)
	c.Flags().StringVar(&flags.corpus, "corpus", filepath.Join(".cache", "fuzz"),
		"the folder of what was found")
	c.Flags().Uint64Var(&flags.from, "from", 1, "the first seed, of a new corpus")
	return c
}

// fuzzFlags say how to search.
type fuzzFlags struct {
	budget time.Duration
	jobs   int
	corpus string
	from   uint64
}

// search is a search in progress.
type search struct {
	corpus    *fuzz.Corpus
	dir       string
	jobs      int
	scenarios []*plan.Scenario
	names     map[string]string // or files, as given, by the names of the scenarios
	progress  *progress
	started   time.Time

	mu       sync.Mutex // guards the fields below
	runs     int        // in this process
	failures int        // of them
	virtual  time.Duration
}

// newSearch reads the corpus of a search, if there is one.
func (f *fuzzFlags) newSearch(names []string, hasFrom bool) (*search, error) {
	if f.budget < 0 {
		return nil, fmt.Errorf("--budget %s: must not be negative", f.budget)
	}
	if err := checkJobs(f.jobs); err != nil {
		return nil, err
	}
	s := &search{dir: f.corpus, jobs: f.jobs, corpus: fuzz.New(f.from),
		names: map[string]string{}, progress: newProgress(os.Stderr)}
	s.progress.every = 10 * time.Second
	tasks, err := tasksOf(names, seeds{1, 1}, []strategy{{}})
	if err != nil {
		return nil, err
	}
	for _, t := range tasks {
		s.scenarios = append(s.scenarios, t.scenario)
		s.names[t.scenario.Metadata.Name] = t.name
	}
	data, err := os.ReadFile(s.corpusFile())
	if errors.Is(err, fs.ErrNotExist) {
		return s, os.MkdirAll(filepath.Join(s.dir, "failures"), 0o755)
	}
	if err == nil {
		s.corpus, err = fuzz.Parse(s.corpusFile(), data)
	}
	if err == nil && hasFrom && s.corpus.From != f.from {
		err = fmt.Errorf("--from %d: %s began with %d", f.from, s.corpusFile(), s.corpus.From)
	}
	if err != nil {
		return nil, fmt.Errorf("--corpus: %w", err)
	}
	return s, nil
}

func (s *search) corpusFile() string { return filepath.Join(s.dir, "corpus.json") }

// roundRuns is how many runs are drawn at once. A search that is killed repeats that many.
const roundRuns = 16

// run searches until the budget, if there is one, is used up or the context ends, and prints what
// was found. The plan of a failure that was found by then is still shrunk.
func (s *search) run(ctx context.Context, budget time.Duration, w io.Writer) error {
	s.started = time.Now()
	isOver := func() bool {
		return ctx.Err() != nil || budget > 0 && time.Since(s.started) > budget
	}
	for !isOver() {
		if err := s.runRound(ctx, isOver, w); err != nil {
			s.progress.end()
			return err
		}
	}
	s.progress.end()
	fmt.Fprintf(w, "%s\n%d runs in all, %d plans in %s\n", s.status(), s.corpus.Runs(),
		len(s.corpus.Entries), s.corpusFile())
	if s.failures > 0 {
		return errFailed
	}
	return nil
}

// runRound runs the draws of a round, up to those that have not started when the search is at its
// end.
func (s *search) runRound(ctx context.Context, isOver func() bool, w io.Writer) error {
	var tasks []*task
	for _, draw := range s.corpus.Draw(s.scenarios, roundRuns) {
		for _, scenario := range s.scenarios {
			if scenario.Metadata.Name == draw.Scenario {
				tasks = append(tasks, &task{name: draw.Scenario, scenario: scenario, draw: &draw})
				break
			}
		}
	}
	runEach(tasks, s.jobs, s.done, isOver)
	var results []fuzz.Result
	for _, t := range tasks {
		if t.err != nil {
			return fmt.Errorf("%s: %w", t.draw, t.err)
		}
		if t.verdict == nil {
			break // it has not started, nor has any after it
		}
		r := fuzz.Result{Draw: *t.draw, Verdict: t.verdict}
		if t.verdict.Failure != nil {
			r.Signature = fuzz.Signature(t.verdict.Failure)
		}
		results = append(results, r)
	}
	for _, found := range s.corpus.Merge(results) {
		if err := s.report(ctx, w, found); err != nil {
			return err
		}
	}
	return writeAtomically(s.corpusFile(), s.corpus.JSON())
}

// done counts a run, and shows the state of the search.
func (s *search) done(t *task) {
	if t.err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.runs++
	s.virtual += t.verdict.Virtual
	if t.failed() {
		s.failures++
	}
	s.progress.show("%s, at %s", s.status(), t.draw)
}

// status is the state of the search, in a line.
func (s *search) status() string {
	seconds := time.Since(s.started).Seconds()
	return fmt.Sprintf("%d runs, %.0f seeds a minute, %.0f virtual seconds per second, "+
		"%d of %d marks, %d runs failed with %d signatures", s.runs, float64(s.runs)/seconds*60,
		s.virtual.Seconds()/seconds, len(s.corpus.Marks), len(marks.Catalogue()), s.failures,
		len(s.corpus.Failures))
}

// shrinkTries bounds the runs for the smallest plan of a failure.
const shrinkTries = 300

// report writes the plan of a new failure, first as it is, then as small as it gets.
func (s *search) report(ctx context.Context, w io.Writer, found fuzz.Result) error {
	p, err := found.Plan(s.scenarios)
	if err != nil {
		return err
	}
	file := filepath.Join(s.dir, "failures", found.Signature+".yaml")
	write := func(p *plan.Plan, message string) error {
		head := fmt.Sprintf("# %s: %s\n# %s\n", found.Verdict.Failure.Oracle,
			strings.Join(strings.Fields(message), " "), found.Draw)
		return writeAtomically(file, append([]byte(head), p.YAML()...))
	}
	if err := write(p, found.Verdict.Failure.Message); err != nil {
		return err
	}
	small, verdict, err := shrink.Minimize(ctx, p, shrinkTries, func(tried, entries int) {
		s.progress.show("shrinking %s: %d tries, %d entries", found.Signature, tried, entries)
	})
	if err != nil {
		return err
	}
	s.progress.end()
	fmt.Fprintf(w, "FAIL %s: %s: %s\n     seedsim replay %s --plan %s --log\n", found.Draw,
		verdict.Failure.Oracle, verdict.Failure.Message, s.names[found.Scenario], file)
	return write(small, verdict.Failure.Message)
}

// writeAtomically replaces a file. A reader finds the whole of the old content or of the new one,
// also after a crash.
func writeAtomically(file string, data []byte) error {
	f, err := os.OpenFile(file+".new", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Rename(f.Name(), file)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}
