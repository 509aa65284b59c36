package main

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"seedlet.dev/sim"
	"seedlet.dev/sim/fuzz"
	"seedlet.dev/sim/plan"
)

// report is the result of runs of many seeds. With --json it is printed as JSON.
type report struct {
	Scenario       string    `json:"scenario"`
	Seeds          string    `json:"seeds"`
	What           string    `json:"-"` // scenario and seeds, or the sweep
	Failures       []failure `json:"failures"`
	VirtualSeconds float64   `json:"virtualSeconds"`
	WallSeconds    float64   `json:"wallSeconds"`
	Events         uint64    `json:"events"`
	Hash           string    `json:"hash"` // of all runs, in the order of scenarios and seeds
	Settled        settled   `json:"settled"`
}

// settled is how long after the end of all faults everything was right in the runs that held, in
// seconds.
type settled struct {
	Median  float64 `json:"medianSeconds"`
	Most    float64 `json:"mostSeconds"`
	Slowest string  `json:"slowest,omitempty"` // the run with the most
}

type failure struct {
	Scenario    string  `json:"scenario"`
	Seed        uint64  `json:"seed"`
	Oracle      string  `json:"oracle"`
	Message     string  `json:"message"`
	VirtualTime float64 `json:"virtualTime"` // seconds since the start of the run
	Run         string  `json:"run"`         // which it is
	Replay      string  `json:"replay"`
}

func runCommand() *cobra.Command {
	var seedRange string
	var jobs int
	var asJSON, failFast bool
	var order strategy
	c := &cobra.Command{
		Use:   "run SCENARIO|all --seeds A-B",
		Short: "Run a scenario with every seed of a range",
		Args:  exactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			list, err := find(args[0])
			if err != nil {
				return err
			}
			r, err := parseSeeds(seedRange)
			if err != nil {
				return err
			}
			if err := checkJobs(jobs); err != nil {
				return err
			}
			tasks := newTasks(list, args[0], r, order)
			rep, err := runAll(tasks, jobs, failFast, newProgress(os.Stderr))
			if err != nil {
				return err
			}
			rep.Scenario, rep.Seeds = args[0], fmt.Sprintf("%d-%d", r.from, r.to)
			rep.What = rep.Scenario + " seeds " + rep.Seeds
			return rep.print(c.OutOrStdout(), asJSON)
		},
	}
	c.Flags().StringVar(&seedRange, "seeds", "1-20", "the range of seeds, as A-B")
	addJobs(c, &jobs)
	c.Flags().BoolVar(&asJSON, "json", false, "print the result as a JSON object")
	c.Flags().BoolVar(&failFast, "fail-fast", false, "stop at the first failure")
	order.add(c)
	return c
}

// task is one run and its verdict.
type task struct {
	scenario *plan.Scenario
	name     string // of the scenario or of its file, for the replay command
	seed     uint64
	strategy strategy
	sweep    *sweepPoint // nil: the plan of the scenario and the seed
	draw     *fuzz.Draw  // nil: the same
	verdict  *sim.Verdict
	err      error
}

// newTasks returns the runs of every scenario with every seed.
func newTasks(list []*plan.Scenario, arg string, r seeds, by strategy) []*task {
	var tasks []*task
	for _, s := range list {
		for seed := r.from; ; seed++ {
			t := &task{scenario: s, name: s.Metadata.Name, seed: seed, strategy: by}
			if isFile(arg) {
				t.name = arg
			}
			tasks = append(tasks, t)
			if seed == r.to {
				break
			}
		}
	}
	return tasks
}

// runAll runs every task, or all up to the first that fails. The result does not depend on the
// number of jobs.
func runAll(tasks []*task, jobs int, failFast bool, p *progress) (*report, error) {
	start := time.Now()
	var failed atomic.Bool
	runEach(tasks, jobs, func(t *task) {
		if t.failed() {
			failed.Store(true)
		}
		p.done(t, len(tasks))
	}, func() bool { return failFast && failed.Load() })
	p.end()
	if first := slices.IndexFunc(tasks, (*task).failed); failFast && first >= 0 {
		tasks = tasks[:first+1]
	}
	rep := &report{Failures: []failure{}, WallSeconds: time.Since(start).Seconds()}
	return rep, rep.collect(tasks)
}

// runEach runs tasks in their order, some at once, until all are done or no more are to begin. Done
// is called for each as it ends.
func runEach(tasks []*task, jobs int, done func(*task), isStopped func() bool) {
	inParallel(len(tasks), jobs, isStopped, func(i int) {
		tasks[i].run()
		done(tasks[i])
	})
}

func (t *task) run() {
	p, err := t.plan()
	if err == nil {
		t.verdict, err = sim.Run(p, sim.Options{})
	}
	t.err = err
}

func (t *task) plan() (*plan.Plan, error) {
	switch {
	case t.sweep != nil:
		return t.sweep.plan(), nil
	case t.draw != nil:
		return t.draw.Plan([]*plan.Scenario{t.scenario})
	}
	return t.strategy.generate(t.scenario, t.seed)
}

// String says which run it is.
func (t *task) String() string {
	text := fmt.Sprintf("%s seed %d%s", t.scenario.Metadata.Name, t.seed, t.strategy.flagText())
	if t.sweep != nil {
		text += " " + t.sweep.String()
	}
	return text
}

// replayCommand returns the command that repeats the run.
func (t *task) replayCommand() string {
	if t.sweep != nil {
		return t.sweep.replayCommand(t.name, t.seed)
	}
	return fmt.Sprintf("seedsim replay %s --seed %d%s --log", t.name, t.seed, t.strategy.flagText())
}

func (t *task) failed() bool { return t.err != nil || t.verdict != nil && t.verdict.Failure != nil }

func (rep *report) collect(tasks []*task) error {
	hash := xxhash.New()
	var times []float64
	for _, t := range tasks {
		if t.err != nil {
			return t.err
		}
		v := t.verdict
		rep.VirtualSeconds += v.Virtual.Seconds()
		rep.Events += v.Events
		hash.Write(binary.LittleEndian.AppendUint64(nil, v.Hash))
		if took := v.SettledAfter.Seconds(); v.Failure == nil {
			if times = append(times, took); took > rep.Settled.Most {
				rep.Settled.Most, rep.Settled.Slowest = took, t.String()
			}
		}
		if v.Failure != nil {
			rep.Failures = append(rep.Failures, failure{
				Scenario: t.scenario.Metadata.Name, Seed: t.seed, Oracle: v.Failure.Oracle,
				Message: v.Failure.Message, VirtualTime: v.Failure.Virtual.Seconds(),
				Run: t.String(), Replay: t.replayCommand(),
			})
		}
	}
	if slices.Sort(times); len(times) > 0 {
		rep.Settled.Median = times[len(times)/2]
	}
	rep.Hash = fmt.Sprintf("%016x", hash.Sum64())
	return nil
}

func (rep *report) print(w io.Writer, asJSON bool) error {
	if asJSON {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		if err := enc.Encode(rep); err != nil {
			return err
		}
	} else {
		for _, f := range rep.Failures {
			fmt.Fprintf(w, "FAIL %s at %.3fs: %s: %s\n     %s\n", f.Run, f.VirtualTime, f.Oracle,
				f.Message, f.Replay)
		}
		if s := &rep.Settled; s.Slowest != "" {
			fmt.Fprintf(w, "after the faults all was right within %.0f s in half of the runs, and within "+
				"%.0f s in all (%s)\n", s.Median, s.Most, s.Slowest)
		}
		fmt.Fprintf(w, "%s: %d failures, %.0f virtual seconds in %.1f s (%.0f per "+
			"second), %d events, hash of all runs %s\n", rep.What, len(rep.Failures),
			rep.VirtualSeconds, rep.WallSeconds, rep.VirtualSeconds/rep.WallSeconds, rep.Events,
			rep.Hash)
	}
	if len(rep.Failures) > 0 {
		return errFailed
	}
	return nil
}

// progress reports failures at once, and the number of runs that are done: on a terminal in a line
// that is updated, elsewhere in a line per minute.
type progress struct {
	mu       sync.Mutex
	w        *os.File
	terminal bool
	every    time.Duration // between two lines that are not on a terminal
	count    int
	failed   int
	shown    time.Time
}

func newProgress(w *os.File) *progress {
	return &progress{w: w, terminal: term.IsTerminal(int(w.Fd())), every: time.Minute,
		shown: time.Now()}
}

func (p *progress) done(t *task, total int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count++
	if t.failed() {
		p.failed++
		p.end()
		// The report at the end has the details.
		fmt.Fprintf(p.w, "%s failed\n", t)
	}
	p.show("%d of %d runs, %d failed, at %s", p.count, total, p.failed, t)
}

// show prints the state of the work, unless it was printed a short time ago.
func (p *progress) show(format string, args ...any) {
	every, line := p.every, format+"\n"
	if p.terminal {
		every, line = 100*time.Millisecond, "\r\x1b[K"+format
	}
	if time.Since(p.shown) > every {
		p.shown = time.Now()
		fmt.Fprintf(p.w, line, args...)
	}
}

func (p *progress) end() {
	if p.terminal {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
}
