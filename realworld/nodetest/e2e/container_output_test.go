package e2e

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// logLine is a line of a container's log, with the time at which the runtime received it.
type logLine struct {
	at   time.Time
	text string
}

// anyAttempt stands for the latest attempt of a container that has a log. The agent removes the
// logs of earlier ones.
const anyAttempt = "*"

// logPath returns the path of the log of an attempt of a container; empty while there is none.
func (s *suite) logPath(t *testing.T, pod, container, attempt string) string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(s.agent.podLogDir,
		"default_"+pod+"-"+nodeName+"_*", container, attempt+".log"))
	if err != nil {
		t.Fatal(err)
	}
	if len(paths) == 0 || len(paths) > 1 && attempt != anyAttempt {
		return ""
	}
	return paths[len(paths)-1]
}

// logLines returns the lines that an attempt of a container has written so far.
func (s *suite) logLines(t *testing.T, pod, container, attempt string) []logLine {
	t.Helper()
	file, err := os.Open(s.logPath(t, pod, container, attempt))
	if err != nil {
		return nil
	}
	defer func() { _ = file.Close() }() // the file was only read
	return parseLog(t, file)
}

// parseLog parses a log in the format of the CRI: time, stream, tag, text. Parts of a long line
// (tag "P") are joined with its last part (tag "F"). A line that is still being written is left
// out.
func parseLog(t *testing.T, log io.Reader) []logLine {
	t.Helper()
	var lines []logLine
	scanner := bufio.NewScanner(log)
	scanner.Buffer(nil, 1<<20)
	partial := ""
	for scanner.Scan() {
		fields := strings.SplitN(scanner.Text(), " ", 4)
		if len(fields) < 4 {
			continue
		}
		at, err := time.Parse(time.RFC3339Nano, fields[0])
		if err != nil {
			t.Fatalf("a line of a log has no time: %q", scanner.Text())
		}
		partial += fields[3]
		if fields[2] == "F" {
			lines = append(lines, logLine{at, partial})
			partial = ""
		}
	}
	return lines
}

// firstTimeOf returns the time of the first line that contains a text; zero if there is none.
func firstTimeOf(lines []logLine, text string) time.Time {
	for _, l := range lines {
		if strings.Contains(l.text, text) {
			return l.at
		}
	}
	return time.Time{}
}

// waitLogLine waits until the log of an attempt of a container has a line that contains a text, and
// returns the time of that line.
func (s *suite) waitLogLine(t *testing.T, pod, container, attempt, text string) time.Time {
	t.Helper()
	var at time.Time
	s.eventually(t, pod+"/"+container+" logs "+text, func() bool {
		at = firstTimeOf(s.logLines(t, pod, container, attempt), text)
		return !at.IsZero()
	})
	return at
}

// waitReport waits for the report of a container that runs "sample report", and returns it.
func (s *suite) waitReport(t *testing.T, pod, container string) report {
	t.Helper()
	var r report
	s.eventually(t, pod+"/"+container+" reports", func() bool {
		lines := s.logLines(t, pod, container, "0")
		return len(lines) > 0 && json.Unmarshal([]byte(lines[0].text), &r) == nil
	})
	return r
}

// report is the environment of a process, in the JSON form of "sample report" (cmd/sample).
type report struct {
	Env       []string
	Args      []string
	Dir, Host string
	UID, GID  int
	Groups    []int
	Status    map[string]string
	Processes []string
	Writable  bool
	Paths     map[string]struct {
		Mode            string
		UID, GID        uint32
		Tmpfs, ReadOnly bool
		Text, Problem   string
		Entries         []string
	}
}

// environment returns the environment variables as a map.
func (r report) environment() map[string]string {
	all := map[string]string{}
	for _, v := range r.Env {
		name, value, _ := strings.Cut(v, "=")
		all[name] = value
	}
	return all
}
