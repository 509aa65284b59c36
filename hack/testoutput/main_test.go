package main

import (
	"strings"
	"testing"
	"time"
)

// printed returns what is printed about events, a minute after the last one and at the end.
func printed(require string, events ...string) (text string, good bool) {
	var out strings.Builder
	start := time.Now()
	r := newReport(&out, start)
	for _, e := range events {
		r.handleLine([]byte(e), start)
	}
	r.printUnderWay(start.Add(time.Minute))
	good = r.finish(require)
	return out.String(), good
}

const (
	begin    = `{"Action":"start","Package":"p"}`
	runA     = `{"Action":"run","Package":"p","Test":"TestA"}`
	says     = `{"Action":"output","Package":"p","Test":"TestA","Output":"noise of a server\n"}`
	runB     = `{"Action":"run","Package":"p","Test":"TestB"}`
	saysB    = `{"Action":"output","Package":"p","Test":"TestB","Output":"a reason\n"}`
	packages = `{"Action":"output","Package":"p","Output":"FAIL\tp\t1s\n"}`
)

// The output of a passed test is dropped, that of a failed or skipped one is printed.
func TestOutputOfTests(t *testing.T) {
	text, good := printed("TestA", begin, runA, says, `{"Action":"pass","Package":"p","Test":"TestA"}`,
		runB, saysB, `{"Action":"skip","Package":"p","Test":"TestB"}`,
		`{"Action":"pass","Package":"p","Elapsed":1.5}`)
	want := "a reason\nok  \tp\t1.5s\n1 tests passed, 1 were skipped, after 0s\n"
	if text != want || !good {
		t.Errorf("got %q, %v; want %q", text, good, want)
	}
	text, good = printed("", begin, runA, says, `{"Action":"fail","Package":"p","Test":"TestA"}`,
		packages, `{"Action":"fail","Package":"p","Elapsed":1.5}`)
	want = "noise of a server\nFAIL\tp\t1s\n0 tests passed, 0 were skipped, after 0s\n" +
		"failed: p TestA\nfailed: p \n"
	if text != want || good {
		t.Errorf("got %q, %v; want %q", text, good, want)
	}
}

// The summary repeats the first messages of a failed test: the rest may be a long log.
func TestSummaryRepeatsMessages(t *testing.T) {
	output := func(text string) string {
		return `{"Action":"output","Package":"p","Test":"TestA","Output":"` + text + `\n"}`
	}
	long := strings.Repeat("x", 2*repeatedBytesMax)
	text, _ := printed("", begin, runA, output("=== RUN   TestA"), output("noise of a server"),
		output("    a_test.go:1: first"), output("    a_test.go:2: "+long),
		output("        of two lines"),
		output("    a_test.go:3: fourth"), output("    a_test.go:4: fifth"),
		output("    --- FAIL: TestA (0.1s)"), `{"Action":"fail","Package":"p","Test":"TestA"}`)
	want := "failed: p TestA\n    a_test.go:1: first\n" +
		("    a_test.go:2: " + long)[:repeatedBytesMax] + "\n" +
		"        of two lines\n    a_test.go:3: fourth\n"
	if !strings.HasSuffix(text, want) {
		t.Errorf("got %q, want the end %q", text, want)
	}
}

// A process that ends within a test leaves no result of the test.
func TestOutputOfPanic(t *testing.T) {
	text, good := printed("", begin, runA, says, packages, `{"Action":"fail","Package":"p"}`)
	if !strings.HasPrefix(text, "noise of a server\nFAIL\tp\t1s\n") || good {
		t.Errorf("got %q, %v", text, good)
	}
}

// Once a minute a line names the tests under way, without those that wait for their parts or turn.
func TestUnderWay(t *testing.T) {
	text, good := printed("TestC", begin, runA,
		`{"Action":"run","Package":"p","Test":"TestA/part"}`,
		runB, `{"Action":"pause","Package":"p","Test":"TestB"}`)
	want := "… 1m0s: p TestA/part (1m0s)\n"
	if !strings.HasPrefix(text, want) || good ||
		!strings.HasSuffix(text, "no test named *TestC* passed\n") {
		t.Errorf("got %q, %v; want %q", text, good, want)
	}
}

// Lines that are no events are printed: go vet and compilers write them.
func TestOtherLines(t *testing.T) {
	text, _ := printed("", "p/a.go:1: no", `{"Action":"build-output","Output":"b.go:2: no\n"}`)
	if !strings.HasPrefix(text, "p/a.go:1: no\nb.go:2: no\n") {
		t.Errorf("got %q", text)
	}
}
