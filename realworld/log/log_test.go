package log_test

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/klog/v2"

	"seedlet.dev/realworld/log"
	"seedlet.dev/realworld/porttest"
	"seedlet.dev/world"
)

// formatVariable is the environment variable with the format. Logging is configured once per
// process, so each case is a process: this test binary, started again.
const formatVariable = "LOG_TEST_FORMAT"

func TestMain(m *testing.M) {
	switch format := os.Getenv(formatVariable); format {
	case "":
	case "stuck":
		logWhileStuck()
		return
	case "panic":
		logAndPanic()
	default:
		writeLines(format)
		return
	}
	os.Exit(m.Run())
}

func writeLines(format string) {
	c := logsapi.NewLoggingConfiguration()
	gates := map[string]bool{"NodeSwap": true} // of another component
	switch c.Format, c.Verbosity = format, 2; format {
	case "split":
		c.Format, c.Options.Text.SplitStream = "text", true
		gates["LoggingAlphaOptions"] = true
	case "split without gate":
		c.Format, c.Options.Text.SplitStream = "text", true
	case "module":
		c.Format, c.Verbosity = "text", 0
		c.VModule = logsapi.VModuleConfiguration{{FilePattern: "log", Verbosity: 2}}
	}
	if err := log.Configure(c, gates); err != nil {
		os.Stderr.WriteString(err.Error() + "\n")
		os.Exit(1)
	}
	var port log.Port
	for _, line := range []world.Log{
		{Level: world.LevelError, Message: "an error"},
		{Level: world.LevelWarning, Message: "a warning", Fields: []any{"pod", "web"}},
		{Level: world.LevelInfo, Message: "said", Fields: []any{"restarts", 3, "ready", true}},
		{Level: world.LevelDebug, Message: "said at two"},
		{Level: world.LevelTrace, Message: "said at four"},
	} {
		port.Do(world.Effect{Body: &line})
	}
	port.Do(world.Effect{Body: &world.RecordEvent{
		Regarding: v1.ObjectReference{Kind: "Pod", Namespace: "ns", Name: "web"},
		Type:      v1.EventTypeNormal, Reason: "Pulled", Message: "there"}})
	if err := port.Check(); err != nil {
		os.Stderr.WriteString("check failed:  " + err.Error() + "\n")
	}
	log.Flush()
}

func output(t *testing.T, format string) (string, error) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), formatVariable+"="+format)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func TestText(t *testing.T) {
	out, err := output(t, "text")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	want := []string{
		`] "an error"`,
		`] "a warning" severity="warning" pod="web"`,
		`] "said" restarts=3 ready=true`,
		`] "said at two"`,
		`] "Event occurred" object="ns/web" fieldPath="" kind="Pod" type="Normal" ` +
			`reason="Pulled" message="there"`,
	}
	if len(lines) != len(want) {
		t.Fatalf("output %q, want %d lines", lines, len(want))
	}
	for i, line := range lines {
		if !strings.HasSuffix(line, want[i]) || (line[0] == 'E') != (i == 0) {
			t.Errorf("line %d is %q, want one with %q", i, line, want[i])
		}
	}
}

// The verbosity of a source file overrides the general one: log.go writes all lines of the core.
func TestModules(t *testing.T) {
	out, err := output(t, "module")
	if err != nil || !strings.Contains(out, "said at two") || strings.Contains(out, "said at four") {
		t.Errorf("%v: %s", err, out)
	}
}

// With the feature gate of logging, information is written to standard output, and only errors to
// standard error.
func TestSplitStreams(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), formatVariable+"=split")
	var info, errors strings.Builder
	cmd.Stdout, cmd.Stderr = &info, &errors
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(info.String(), "said at two") || strings.Contains(errors.String(), "said") ||
		!strings.Contains(errors.String(), "an error") {
		t.Errorf("standard output %q, standard error %q", info.String(), errors.String())
	}
	out, err := output(t, "split without gate")
	if err == nil || !strings.Contains(out, "logging.options.text.splitStream") {
		t.Errorf("without the feature gate: %v, %s", err, out)
	}
}

func TestJSON(t *testing.T) {
	out, err := output(t, "json")
	if err != nil {
		t.Fatal(err)
	}
	var messages []string
	for decoder := json.NewDecoder(strings.NewReader(out)); ; {
		var line struct {
			Msg      string
			Severity string
			Restarts int
		}
		err := decoder.Decode(&line)
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatalf("%s: %v", out, err)
		}
		messages = append(messages, line.Msg)
		if (line.Severity == "warning") != (line.Msg == "a warning") ||
			(line.Restarts == 3) != (line.Msg == "said") {
			t.Errorf("unlikely line %+v", line)
		}
	}
	if got := strings.Join(messages, ", "); got != "an error, a warning, said, said at two, "+
		"Event occurred" {
		t.Errorf("messages %q", got)
	}
}

func TestInvalidFormat(t *testing.T) {
	out, err := output(t, "yaml")
	if err == nil || !strings.Contains(out, "logging.format") || strings.Count(out, "\n") != 1 {
		t.Errorf("output %q, %v; want one line that names logging.format", out, err)
	}
}

// stuckSink is a sink whose writes block until it is released.
type stuckSink struct {
	bytes.Buffer
	once     sync.Once
	stuck    chan struct{} // closed by the first write
	released chan struct{}
}

func (s *stuckSink) Write(p []byte) (int, error) {
	s.once.Do(func() { close(s.stuck) })
	<-s.released
	return len(p), nil
}

// Concurrent checks do not make each other fail.
func TestConcurrentChecks(t *testing.T) {
	var port log.Port
	var checks sync.WaitGroup
	for range 100 {
		checks.Go(func() {
			if err := port.Check(); err != nil {
				t.Error(err)
			}
		})
	}
	checks.Wait()
}

func TestCheckOfStuckSink(t *testing.T) {
	state := klog.CaptureState()
	defer state.Restore()
	sink := &stuckSink{stuck: make(chan struct{}), released: make(chan struct{})}
	klog.LogToStderr(false)
	klog.SetOutput(sink)
	go func() {
		for range 10_000 { // more than klog's buffer
			klog.InfoS("a line", "text", strings.Repeat("x", 1000))
		}
	}()
	<-sink.stuck
	var port log.Port
	err := port.Check() // returns, though the sink does not
	if err == nil {
		t.Error("the check succeeded with a stuck sink")
	}
	if err := port.Check(); err == nil {
		t.Error("the check succeeded while the first one is stuck")
	}
	close(sink.released)
	porttest.Eventually(t, "the check succeeds again", func() bool { return port.Check() == nil })
}
