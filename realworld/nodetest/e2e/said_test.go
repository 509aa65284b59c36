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

// line is a line of a container's log, with the time at which the runtime got it.
type line struct {
	at   time.Time
	text string
}

// logPath is the log of an attempt of a container; empty as long as there is none.
func (s *scene) logPath(t *testing.T, pod, container, attempt string) string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(s.agent.logs,
		"default_"+pod+"-"+nodeName+"_*", container, attempt+".log"))
	if err != nil {
		t.Fatal(err)
	}
	if len(paths) != 1 {
		return ""
	}
	return paths[0]
}

// said is what an attempt of a container has written so far.
func (s *scene) said(t *testing.T, pod, container, attempt string) []line {
	t.Helper()
	file, err := os.Open(s.logPath(t, pod, container, attempt))
	if err != nil {
		return nil
	}
	defer func() { _ = file.Close() }() // nothing was written
	return linesOf(t, file)
}

// linesOf reads a log in the form of the CRI: time, stream, "F" for a whole line, text. A line
// that is being written is left out; parts of a long one ("P") are joined.
func linesOf(t *testing.T, log io.Reader) []line {
	t.Helper()
	var lines []line
	scanner := bufio.NewScanner(log)
	scanner.Buffer(nil, 1<<20)
	begun := ""
	for scanner.Scan() {
		fields := strings.SplitN(scanner.Text(), " ", 4)
		if len(fields) < 4 {
			continue
		}
		at, err := time.Parse(time.RFC3339Nano, fields[0])
		if err != nil {
			t.Fatalf("a line of a log has no time: %q", scanner.Text())
		}
		begun += fields[3]
		if fields[2] == "F" {
			lines = append(lines, line{at, begun})
			begun = ""
		}
	}
	return lines
}

// when is the time of the first line with a text; zero if there is none.
func when(lines []line, text string) time.Time {
	for _, l := range lines {
		if strings.Contains(l.text, text) {
			return l.at
		}
	}
	return time.Time{}
}

// says waits for a line of an attempt of a container, and returns its time.
func (s *scene) says(t *testing.T, pod, container, attempt, text string) time.Time {
	t.Helper()
	var at time.Time
	s.eventually(t, soon, pod+"/"+container+" says "+text, func() bool {
		at = when(s.said(t, pod, container, attempt), text)
		return !at.IsZero()
	})
	return at
}

// finds waits for the report of a container that runs "sample report".
func (s *scene) finds(t *testing.T, pod, container string) report {
	t.Helper()
	var r report
	s.eventually(t, soon, pod+"/"+container+" reports", func() bool {
		lines := s.said(t, pod, container, "0")
		return len(lines) > 0 && json.Unmarshal([]byte(lines[0].text), &r) == nil
	})
	return r
}

// report is what a process finds around it, as cmd/sample writes it.
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

// variables are the environment as a map.
func (r report) variables() map[string]string {
	all := map[string]string{}
	for _, v := range r.Env {
		name, value, _ := strings.Cut(v, "=")
		all[name] = value
	}
	return all
}
