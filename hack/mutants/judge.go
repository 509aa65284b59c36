package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"seedlet.dev/hack/mutants/mutation"
)

// judge decides who finds a change. All changes are in one binary of seedsim, and in one of each
// package's tests.
type judge struct {
	root    string // the folder of the module
	sites   []mutation.Site
	seedsim string
	// scenarios are those with which each change is judged.
	scenarios []string
	tests     []testBinary
	first     uint64 // of the seeds
	last      uint64
	reached   map[int]bool
	within    time.Duration // for the whole of the runs; a change that takes longer is found
}

// testBinary is the compiled tests of a package, built when they are needed first.
type testBinary struct {
	folder string
	build  func() (path string, err error)
}

// memoryMax bounds the address space of a run: a change may make a loop endless.
const memoryMax = 16 << 30

// newJudge builds the binaries, and runs them without a change.
func newJudge(ctx context.Context, root, dir string, sites []mutation.Site,
	o *options) (*judge, error) {
	j := &judge{root: root, sites: sites, reached: map[int]bool{},
		scenarios: strings.Split(o.scenarios, ",")}
	if _, err := fmt.Sscanf(o.seeds, "%d-%d", &j.first, &j.last); err != nil || j.last < j.first {
		return nil, fmt.Errorf("%q is no range of seeds", o.seeds)
	}
	overlay := mutation.NewOverlay(root)
	for i := range sites {
		if err := overlay.Add(i+1, sites[i].Edits()); err != nil {
			return nil, fmt.Errorf("%s: %w", sites[i].String(), err)
		}
	}
	var err error
	if j.seedsim, err = overlay.Build(dir); err != nil {
		return nil, err
	}
	if err := j.listTests(root, dir); err != nil {
		return nil, err
	}
	began, reached := time.Now(), filepath.Join(dir, "reached")
	if why := j.simulate(ctx, 0, j.first, j.last, time.Hour,
		mutation.ReachedVariable+"="+reached); why != "" {
		return nil, fmt.Errorf("a run without a change fails: %s", why)
	}
	j.within = 10*time.Since(began) + time.Minute
	text, err := os.ReadFile(reached)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	for _, line := range strings.Fields(string(text)) {
		if number, err := strconv.Atoi(line); err == nil {
			j.reached[number] = true
		}
	}
	return j, nil
}

// listTests lists the packages that have tests.
func (j *judge) listTests(root, dir string) error {
	list := exec.Command("go", "list", "-f",
		"{{if or .TestGoFiles .XTestGoFiles}}{{.Dir}}{{end}}", "./core/...", "./world/...")
	list.Dir = root
	out, err := list.Output()
	if err != nil {
		return fmt.Errorf("go list: %w", err)
	}
	for i, folder := range strings.Fields(string(out)) {
		path := filepath.Join(dir, fmt.Sprintf("%d.test", i))
		j.tests = append(j.tests, testBinary{folder, sync.OnceValues(func() (string, error) {
			build := exec.Command("go", "test", "-c", "-overlay", filepath.Join(dir, "overlay.json"),
				"-o", path, folder)
			build.Dir = root
			if out, err := build.CombinedOutput(); err != nil {
				return "", fmt.Errorf("building the tests of %s: %w\n%s", folder, err, out)
			}
			return path, nil
		})})
	}
	return nil
}

// judge decides about one change: by few seeds first, since most are found by the first ones.
func (j *judge) judge(ctx context.Context, number int) (r result, err error) {
	r = result{site: j.sites[number-1], reached: j.reached[number]}
	for from, to := j.first, j.first+1; r.reached && from <= j.last; from, to = to+1, 4*to {
		if r.by = j.simulate(ctx, number, from, min(to, j.last), j.within); r.by != "" {
			r.verdict = byOracles
			return r, nil
		}
	}
	if r.by, err = j.test(ctx, number); r.by != "" || err != nil {
		r.verdict = byUnitTests
		return r, err
	}
	r.verdict, r.by = byNone, "no run calls the function"
	if r.reached {
		r.by = "runs call the function"
	}
	return r, nil
}

// simulate runs the scenarios, and returns why they fail; empty if they do not.
func (j *judge) simulate(ctx context.Context, number int, from, to uint64, within time.Duration,
	environment ...string) string {
	for _, name := range j.scenarios {
		if why := j.simulateOne(ctx, name, number, from, to, within, environment...); why != "" {
			return why
		}
	}
	return ""
}

func (j *judge) simulateOne(ctx context.Context, name string, number int, from, to uint64,
	within time.Duration, environment ...string) string {
	jobs := "1" // changes are judged in parallel
	if number == 0 {
		jobs = strconv.Itoa(runtime.NumCPU())
	}
	out, err := j.run(ctx, number, within, "", environment, j.seedsim, "run", name, "--seeds",
		fmt.Sprintf("%d-%d", from, to), "--json", "--fail-fast", "--jobs", jobs)
	if err == nil {
		return ""
	}
	var report struct {
		Failures []struct {
			Scenario string
			Seed     uint64
			Oracle   string
		}
	}
	if json.Unmarshal(out, &report) == nil && len(report.Failures) > 0 {
		f := report.Failures[0]
		return fmt.Sprintf("%s, %s seed %d", f.Oracle, f.Scenario, f.Seed)
	}
	return "no result: " + err.Error()
}

// test runs the unit tests, those of the changed package first. It returns the package whose tests
// fail; empty if none does.
func (j *judge) test(ctx context.Context, number int) (failed string, err error) {
	own := "/" + filepath.Dir(j.sites[number-1].File)
	for _, isOwn := range []bool{true, false} {
		for _, b := range j.tests {
			if strings.HasSuffix(b.folder, own) != isOwn {
				continue
			}
			path, err := b.build()
			if err != nil {
				return "", err
			}
			if _, err := j.run(ctx, number, 10*time.Minute, b.folder, nil, path, "-test.short",
				"-test.failfast"); err != nil {
				return strings.TrimPrefix(b.folder, j.root+"/"), nil
			}
		}
	}
	return "", nil
}

// run runs a command with a change selected, in a bounded time and address space.
func (j *judge) run(ctx context.Context, number int, within time.Duration, dir string,
	environment []string, name string, arguments ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	command := exec.CommandContext(ctx, "prlimit", append([]string{
		fmt.Sprintf("--as=%d", memoryMax), name}, arguments...)...)
	command.Dir = dir
	command.Env = append(append(os.Environ(), environment...),
		mutation.SelectVariable+"="+strconv.Itoa(number))
	return command.Output()
}
