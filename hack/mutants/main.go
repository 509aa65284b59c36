// Mutants measures the tests: it makes random changes of one place of the source, and says which of
// them the oracles of the simulator find, which the unit tests, and which none of both:
//
//	mutants -count 300 -seed 1 -seeds 1-40
//
// The changes are drawn from -seed. Each is judged by all scenarios with -seeds, then by the unit
// tests of the core. A change that survives is a hole in the oracles, or it has no effect that
// can be observed: such ones are listed in equivalent.txt with the reason, and are not drawn again.
// The exit code is 1 if a change survived.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"seedlet.dev/hack/mutants/mutation"
)

// folders are the parts of the source that are changed.
var folders = []string{"core", "world/loop"}

// isChanged reports whether a file is one of those that are changed. Configuration is read once and
// checked by its own tests; documents, metrics and logs are texts for people.
func isChanged(name string) bool {
	for _, part := range []string{"core/config/", "core/document/", "core/metrics", "core/redact.go"} {
		if strings.HasPrefix(name, part) {
			return false
		}
	}
	return !strings.HasSuffix(name, "/doc.go")
}

func main() {
	count := flag.Int("count", 45, "the number of changes")
	seed := flag.Uint64("seed", 1, "what the changes are drawn from")
	seeds := flag.String("seeds", "1-40", "the seeds of each scenario")
	jobs := flag.Int("jobs", 2, "the number of changes judged in parallel")
	only := flag.String("only", "",
		"parts of the keys of the changes to judge, such as files, separated by semicolons")
	scenarios := flag.String("scenarios", "all", "the scenarios, separated by commas")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	survived, err := measure(ctx, options{*count, *seed, *seeds, *jobs, *only,
		*scenarios}, os.Stdout)
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(2)
	case survived > 0:
		os.Exit(1)
	}
}

type options struct {
	count int
	seed  uint64
	seeds string
	jobs  int
	only  string

	scenarios string
}

// verdict is who found a change.
type verdict string

const (
	byOracles   verdict = "oracles"
	byUnitTests verdict = "unit tests"
	byNone      verdict = "none"
)

// result is what became of one change.
type result struct {
	site    mutation.Site
	verdict verdict
	by      string // the oracle and the seed, or the package
	reached bool   // a run of the simulator calls the changed function
}

// measure judges changes, prints what becomes of each, and returns how many survived.
func measure(ctx context.Context, o options, out io.Writer) (survived int, err error) {
	root, err := moduleRoot()
	if err != nil {
		return 0, err
	}
	sites, err := draw(root, o)
	if err != nil {
		return 0, err
	}
	dir, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	fmt.Fprintf(out, "building %d changes drawn from seed %d\n", len(sites), o.seed)
	j, err := newJudge(ctx, root, dir, sites, &o)
	if err != nil {
		return 0, err
	}
	began, results := time.Now(), make([]result, len(sites))
	var printing sync.Mutex
	done, slots, wait := 0, make(chan bool, max(1, o.jobs)), sync.WaitGroup{}
	for i := range sites {
		slots <- true
		wait.Add(1)
		go func() {
			defer wait.Done()
			r, problem := j.judge(ctx, i+1)
			printing.Lock()
			defer printing.Unlock()
			results[i], done, err = r, done+1, errors.Join(err, problem)
			if ctx.Err() == nil && problem == nil {
				fmt.Fprintf(out, "%3d/%d %s %-10s %s (%s)\n", done, len(sites),
					time.Since(began).Round(time.Second), r.verdict, r.site.String(), r.by)
			}
			<-slots
		}()
	}
	wait.Wait()
	if err := errors.Join(ctx.Err(), err); err != nil {
		return 0, err
	}
	return summarize(results, out), nil
}

// summarize prints the table and the survivors, and returns their number.
func summarize(results []result, out io.Writer) int {
	counts, reached := map[verdict]int{}, 0
	for i := range results {
		counts[results[i].verdict]++
		if results[i].reached {
			reached++
		}
	}
	fmt.Fprintf(out, "\n%d changes, %d in functions that a run calls:\n", len(results), reached)
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, v := range []verdict{byOracles, byUnitTests, byNone} {
		fmt.Fprintf(table, "found by %s\t%d\t%.0f %%\n", v, counts[v],
			100*float64(counts[v])/float64(max(1, len(results))))
	}
	_ = table.Flush()
	for i := range results {
		if r := &results[i]; r.verdict == byNone {
			fmt.Fprintf(out, "survived: %s\n  key: %s\n", r.site.String(), r.site.Key())
		}
	}
	return counts[byNone]
}

func moduleRoot() (string, error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}").Output()
	return strings.TrimSpace(string(out)), err
}

// equivalents is the list of the changes without an effect that can be observed, with reasons.
const equivalents = "hack/mutants/equivalent.txt"

// draw draws changes that compile. A binary has one function for each of them.
func draw(root string, o options) ([]mutation.Site, error) {
	equivalent, err := readEquivalents(filepath.Join(root, equivalents))
	if err != nil {
		return nil, err
	}
	var all []mutation.Site
	var patterns []string
	for _, folder := range folders {
		sites, err := mutation.Sites(root, folder, isChanged)
		if err != nil {
			return nil, err
		}
		all, patterns = append(all, sites...), append(patterns, "./"+folder+"/...")
	}
	sources, err := mutation.LoadSources(root, patterns...)
	if err != nil {
		return nil, err
	}
	var drawn []mutation.Site
	for _, i := range rand.New(rand.NewPCG(o.seed, 0)).Perm(len(all)) {
		site := &all[i]
		if len(drawn) == o.count {
			break
		}
		isWanted := slices.ContainsFunc(strings.Split(o.only, ";"), func(part string) bool {
			return strings.Contains(site.Key(), part)
		})
		if equivalent[site.Key()] || !isWanted || sources.Check(site.Edits()) != nil {
			continue
		}
		drawn = append(drawn, *site)
	}
	if len(drawn) == 0 {
		return nil, errors.New("there is no change to draw")
	}
	return drawn, nil
}

// readEquivalents reads the keys of the list: lines of a key, " # " and the reason.
func readEquivalents(name string) (map[string]bool, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	keys := map[string]bool{}
	lines := bufio.NewScanner(f)
	for number := 1; lines.Scan(); number++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		key, reason, found := strings.Cut(line, " # ")
		if !found || strings.TrimSpace(reason) == "" {
			return nil, fmt.Errorf("%s:%d: want a key, \" # \" and a reason", name, number)
		}
		keys[strings.TrimSpace(key)] = true
	}
	return keys, lines.Err()
}
