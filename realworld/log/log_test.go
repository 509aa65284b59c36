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
	"time"

	v1 "k8s.io/api/core/v1"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/klog/v2"

	"seedlet.dev/realworld/log"
	"seedlet.dev/world"
)

// Logging is configured once in a process, so each case is a process: this test binary, started
// again with the format in the environment.
const formatVariable = "LOG_TEST_FORMAT"

func TestMain(m *testing.M) {
	if format := os.Getenv(formatVariable); format != "" {
		speak(format)
		return
	}
	os.Exit(m.Run())
}

func speak(format string) {
	c := logsapi.NewLoggingConfiguration()
	c.Format, c.Verbosity = format, 2
	if err := log.Configure(c); err != nil {
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
		os.Stderr.WriteString("not well: " + err.Error() + "\n")
	}
	klog.Flush()
}

func said(t *testing.T, format string) (string, error) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), formatVariable+"="+format)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func TestText(t *testing.T) {
	out, err := said(t, "text")
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
		t.Fatalf("said %q, want %d lines", lines, len(want))
	}
	for i, line := range lines {
		if !strings.HasSuffix(line, want[i]) || (line[0] == 'E') != (i == 0) {
			t.Errorf("line %d is %q, want one with %q", i, line, want[i])
		}
	}
}

func TestJSON(t *testing.T) {
	out, err := said(t, "json")
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
		t.Errorf("said %q", got)
	}
}

func TestBadFormat(t *testing.T) {
	out, err := said(t, "yaml")
	if err == nil || !strings.Contains(out, "logging.format") || strings.Count(out, "\n") != 1 {
		t.Errorf("said %q, %v; want one line that names logging.format", out, err)
	}
}

// stuck is a sink that takes nothing until it is let go.
type stuck struct {
	bytes.Buffer
	gone chan struct{}
}

func (s *stuck) Write(p []byte) (int, error) {
	<-s.gone
	return len(p), nil
}

// Checks at the same time do not fail each other.
func TestChecksAtOnce(t *testing.T) {
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
	sink := &stuck{gone: make(chan struct{})}
	klog.LogToStderr(false)
	klog.SetOutput(sink)
	for range 10_000 { // more than klog's buffer
		if !fill(sink) {
			break
		}
	}
	var port log.Port
	began := time.Now()
	err := port.Check()
	if err == nil || time.Since(began) > 3*time.Second {
		t.Errorf("error %v after %v, want one after about a second", err, time.Since(began))
	}
	if err := port.Check(); err == nil {
		t.Error("well while the first check is stuck")
	}
	close(sink.gone)
	for range 200 {
		if err = port.Check(); err == nil {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("not well again: %v", err)
}

// fill writes a line and reports whether it was taken at once.
func fill(*stuck) bool {
	taken := make(chan struct{})
	go func() {
		klog.InfoS("a line", "text", strings.Repeat("x", 1000))
		close(taken)
	}()
	select {
	case <-taken:
		return true
	case <-time.After(200 * time.Millisecond):
		return false
	}
}
