// Testoutput prints what matters of the output of go test -json: a line for each package, skipped
// tests with their reasons, failed tests with all of their output, and once a minute what is under
// way. At the end it names what failed, each with its first lines. The output of passed tests is
// dropped, what servers and libraries write to standard error included. Its exit code is 1 if a
// test failed, or if no test with a required name passed:
//
//	go test -json ./... | testoutput -require Determinis
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"
)

// progressInterval is the time between two lines about what is under way.
const progressInterval = time.Minute

// underWayMax bounds the tests that such a line names for one package.
const underWayMax = 3

// What the summary repeats of a failed test: the messages before its servers' logs.
const (
	repeatedLinesMax = 4
	repeatedBytesMax = 300 // of one line
)

func main() {
	require := flag.String("require", "", "a part of the name of a test that must pass")
	flag.Parse()
	r := newReport(os.Stdout, time.Now())
	lines := make(chan []byte)
	go readLines(os.Stdin, lines)
	r.read(lines, time.Tick(progressInterval))
	if !r.finish(*require) {
		os.Exit(1)
	}
}

// readLines sends each line of the input, and closes the channel at its end.
func readLines(in io.Reader, lines chan<- []byte) {
	defer close(lines)
	scanner := bufio.NewScanner(in)
	scanner.Buffer(nil, 64<<20)
	for scanner.Scan() {
		lines <- bytes.Clone(scanner.Bytes())
	}
	if err := scanner.Err(); err != nil {
		lines <- []byte("reading the output of go test: " + err.Error())
	}
}

// event is a line of go test -json; see go doc test2json.
type event struct {
	Action  string
	Package string
	Test    string
	Elapsed float64 // in seconds
	Output  string
}

// testName names a test, or a package if test is empty.
type testName struct{ pkg, test string }

// report is the state of the tests so far.
type report struct {
	out     io.Writer
	start   time.Time
	running map[testName]time.Time // since when
	paused  map[testName]bool
	output  map[testName][]string // of tests and packages without a result
	passed  []string              // top-level tests
	failed  []failure
	skipped int
}

// failure is a failed test or package, with the first lines of its own output.
type failure struct {
	testName
	lines []string
}

func newReport(out io.Writer, start time.Time) *report {
	return &report{out: out, start: start, running: map[testName]time.Time{},
		paused: map[testName]bool{}, output: map[testName][]string{}}
}

// read handles lines until there are no more, and says at every tick what is under way.
func (r *report) read(lines <-chan []byte, ticks <-chan time.Time) {
	for {
		select {
		case line, ok := <-lines:
			if !ok {
				return
			}
			r.handleLine(line, time.Now())
		case now := <-ticks:
			r.printUnderWay(now)
		}
	}
}

// handleLine handles one line of the input. A line that is no event is printed, for example one of
// a compiler.
func (r *report) handleLine(line []byte, now time.Time) {
	var e event
	if json.Unmarshal(line, &e) != nil {
		fmt.Fprintf(r.out, "%s\n", line)
		return
	}
	name := testName{e.Package, e.Test}
	switch e.Action {
	case "build-output":
		fmt.Fprint(r.out, e.Output)
	case "start", "run":
		r.running[name] = now
	case "pause":
		r.paused[name] = true
	case "cont":
		delete(r.paused, name)
		r.running[name] = now
	case "output":
		r.output[name] = append(r.output[name], e.Output)
	case "pass", "fail", "skip":
		r.end(name, e)
	}
}

// end handles the result of a test or a package.
func (r *report) end(name testName, e event) {
	switch {
	case name.test == "":
		r.endPackage(name, e)
	case e.Action == "fail":
		r.failed = append(r.failed, failure{name, r.firstMessages(name)})
		r.printOutput(name)
	case e.Action == "skip":
		r.skipped++
		r.printOutput(name)
	case !strings.Contains(name.test, "/"):
		r.passed = append(r.passed, name.test)
	}
	r.forget(name)
}

// endPackage prints the result of a package. If it failed, the output of tests without a result is
// printed too: the process may have panicked in one of them.
func (r *report) endPackage(name testName, e event) {
	if e.Action == "fail" {
		r.failed = append(r.failed, failure{testName: name})
	}
	for _, other := range sortedNames(r.output) {
		if other.pkg == name.pkg && other.test != "" {
			if e.Action == "fail" {
				r.printOutput(other)
			}
			r.forget(other)
		}
	}
	switch e.Action {
	case "fail":
		r.printOutput(name)
	case "pass":
		fmt.Fprintf(r.out, "ok  \t%s\t%.1fs\n", name.pkg, e.Elapsed)
	}
}

func (r *report) forget(name testName) {
	delete(r.running, name)
	delete(r.paused, name)
	delete(r.output, name)
}

// printOutput prints what a test or a package has written, without the lines that say which test
// runs.
func (r *report) printOutput(name testName) {
	for _, text := range r.output[name] {
		if !strings.HasPrefix(text, "=== ") {
			fmt.Fprint(r.out, text)
		}
	}
}

// firstMessages returns the first messages of a test, which the package testing indents.
func (r *report) firstMessages(name testName) []string {
	var lines []string
	for _, text := range r.output[name] {
		if strings.HasPrefix(text, "    ") && !strings.HasPrefix(text, "    --- ") &&
			len(lines) < repeatedLinesMax {
			text = strings.TrimRight(text, "\n")
			lines = append(lines, strings.ToValidUTF8(text[:min(len(text), repeatedBytesMax)], ""))
		}
	}
	return lines
}

// printUnderWay prints the running packages, each with the tests that have run longest.
func (r *report) printUnderWay(now time.Time) {
	for _, pkg := range sortedNames(r.running) {
		if pkg.test != "" {
			continue
		}
		var tests []testName
		for _, name := range sortedNames(r.running) {
			if name.pkg == pkg.pkg && name.test != "" && !r.paused[name] && !r.hasRunningPart(name) {
				tests = append(tests, name)
			}
		}
		slices.SortStableFunc(tests, func(a, b testName) int {
			return r.running[a].Compare(r.running[b])
		})
		text := ""
		for _, name := range tests[:min(len(tests), underWayMax)] {
			text += fmt.Sprintf(" %s (%v)", name.test, age(now, r.running[name]))
		}
		if more := len(tests) - underWayMax; more > 0 {
			text += fmt.Sprintf(" and %d more", more)
		}
		fmt.Fprintf(r.out, "… %v: %s%s\n", age(now, r.start), pkg.pkg, text)
	}
}

func (r *report) hasRunningPart(name testName) bool {
	for other := range r.running { //ordered: any will do
		if other.pkg == name.pkg && strings.HasPrefix(other.test, name.test+"/") {
			return true
		}
	}
	return false
}

// finish prints a summary, and reports whether all tests passed, and one that was required.
func (r *report) finish(require string) bool {
	fmt.Fprintf(r.out, "%d tests passed, %d were skipped, after %v\n", len(r.passed), r.skipped,
		age(time.Now(), r.start))
	for _, f := range r.failed {
		fmt.Fprintf(r.out, "failed: %s %s\n", f.pkg, f.test)
		for _, line := range f.lines {
			fmt.Fprintln(r.out, line)
		}
	}
	isRequired := func(test string) bool { return strings.Contains(test, require) }
	if require != "" && !slices.ContainsFunc(r.passed, isRequired) {
		fmt.Fprintf(r.out, "failed: no test named *%s* passed\n", require)
		return false
	}
	return len(r.failed) == 0
}

func age(now, since time.Time) time.Duration { return now.Sub(since).Round(time.Second) }

func sortedNames[V any](of map[testName]V) []testName {
	return slices.SortedFunc(maps.Keys(of), func(a, b testName) int {
		return strings.Compare(a.pkg+" "+a.test, b.pkg+" "+b.test)
	})
}
