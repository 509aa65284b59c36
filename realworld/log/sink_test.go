package log_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/klog/v2"

	"seedlet.dev/realworld/log"
	"seedlet.dev/realworld/porttest"
	"seedlet.dev/world"
)

const (
	linesLogged = 8000 // of 2000 bytes, more than fit into the queue
	fewLines    = 1000 // fewer
)

// configured returns a port after logging as text has been configured.
func configured() *log.Port {
	if err := log.Configure(logsapi.NewLoggingConfiguration(), nil); err != nil {
		panic(err)
	}
	return &log.Port{}
}

func logLines(port *log.Port, n int) {
	line := &world.Log{Level: world.LevelInfo, Message: "a line",
		Fields: []any{"text", strings.Repeat("x", 2000)}}
	for range n {
		port.Do(world.Effect{Body: line})
	}
}

// logWhileStuck is a process that logs more than its standard error takes, reports that on standard
// output, and ends after its standard input says that standard error is read again.
func logWhileStuck() {
	port := configured()
	logLines(port, linesLogged)
	fmt.Println("logged")
	fmt.Println("check:", port.Check())
	log.Flush() // standard error is read after the next line
	fmt.Println("flushed")
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
	for port.Check() != nil {
		time.Sleep(10 * time.Millisecond)
	}
	klog.InfoS("the last line")
	log.Flush()
}

// logAndPanic is a process that panics after it has logged lines.
func logAndPanic() {
	port := configured()
	logLines(port, fewLines)
	klog.ErrorS(nil, "the core panicked")
	log.Flush()
	panic("the reason")
}

func child(mode string) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), formatVariable+"="+mode)
	return cmd
}

// A stuck log sink stops no caller. The health check reports it, and later a line says how many
// lines were dropped.
func TestStuckLog(t *testing.T) {
	cmd := child("stuck")
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	stuck := time.AfterFunc(porttest.Patience, func() { _ = cmd.Process.Kill() })
	defer stuck.Stop()
	reports := bufio.NewReader(stdout)
	for _, want := range []string{"logged\n",
		"check: the log sink has not been flushed within 1s\n", "flushed\n"} {
		if got, err := reports.ReadString('\n'); got != want {
			t.Errorf("the process reports %q, %v; want %q", got, err, want)
		}
	}
	if _, err := stdin.Write([]byte("\n")); err != nil {
		t.Error(err)
	}
	log, err := io.ReadAll(stderr)
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	lines := bytes.Count(log, []byte("a line"))
	dropped := 0
	for _, m := range regexp.MustCompile(`(?m)^E.* were dropped .* lines=(\d+)$`).
		FindAllSubmatch(log, -1) {
		n, _ := strconv.Atoi(string(m[1]))
		dropped += n
	}
	if err != nil || dropped == 0 || lines+dropped != linesLogged {
		t.Errorf("%d lines were written and %d dropped of %d, %v", lines, dropped, linesLogged, err)
	}
	if !bytes.HasSuffix(log, []byte("\"the last line\"\n")) {
		t.Errorf("the log ends with %q", log[max(0, len(log)-200):])
	}
}

// All lines before a panic are written before its trace.
func TestPanic(t *testing.T) {
	out, err := child("panic").CombinedOutput()
	if err == nil {
		t.Error("the process did not panic")
	}
	before, trace, found := strings.Cut(string(out), "panic: the reason")
	if n := strings.Count(before, "a line"); n != fewLines || !found ||
		!strings.Contains(before, "the core panicked") || !strings.Contains(trace, "goroutine") {
		t.Errorf("%d lines before the trace, want %d; it is %q", n, fewLines, trace)
	}
}
