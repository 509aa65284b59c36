package e2e

import (
	"compress/gzip"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

var logParts = []part{
	{"termination messages", false, terminationMessages},
	{"a log is linked to and rotated", false, rotation},
}

func terminationMessages(t *testing.T, s *scene) {
	long := strings.Repeat("x", 5000)
	s.run(t, "messages", `
  restartPolicy: Never
  containers:
  - {name: file, image: sample, args: [exit, --code, "1", --message, because, --say, unheard]}
  - name: path
    image: sample
    terminationMessagePath: /tmp/why
    args: [exit, --message, by path, --message-path, /tmp/why]
  - {name: log, image: sample, args: [exit, --code, "1", --say, last words]}
  - name: fallback
    image: sample
    terminationMessagePolicy: FallbackToLogsOnError
    args: [exit, --code, "1", --say, last words]
  - name: fine
    image: sample
    terminationMessagePolicy: FallbackToLogsOnError
    args: [exit, --say, last words]
  - {name: long, image: sample, args: [exit, --message, `+long+`]}`)
	s.reaches(t, "messages", v1.PodFailed)
	for name, want := range map[string]string{
		"file": "because", "path": "by path", "log": "", "fine": "",
		"fallback": "exiting with 1 after 0s\nlast words\n",
		"long":     long[:12<<10/6], // six containers share what a pod may say
	} {
		terminated := s.status(t, "messages", name).State.Terminated
		if terminated == nil {
			t.Errorf("%s has not terminated", name)
			continue
		}
		if got := terminated.Message; got != want {
			t.Errorf("the message of %s is %.50q (%d bytes), want %.50q (%d bytes)",
				name, got, len(got), want, len(want))
		}
	}
}

// rotation has a container write twenty times what its log may hold, and sees that few files are
// kept, and that no line is missing from the last one back to where the oldest file begins.
func rotation(t *testing.T, s *scene) {
	const lines = 12000
	s.run(t, "talker", fmt.Sprintf(`
  containers:
  - {name: main, image: sample, args: [talk, --lines, "%d", --bytes, "120", --every, 100ms]}`,
		lines))
	s.runs(t, "talker", "main", 0)
	link := filepath.Join(s.agent.links, fmt.Sprintf("talker-%s_default_main-%s.log", nodeName,
		s.container(t, "talker", "main").GetId()))
	s.eventually(t, soon, "the link leads to the log", func() bool {
		target, err := os.Readlink(link)
		return err == nil && target == s.logPath(t, "talker", "main", "0")
	})
	log := s.logPath(t, "talker", "main", "0")
	var files []string
	var all []line
	s.eventually(t, 2*soon, "all has been written and rotated", func() bool {
		found, err := filepath.Glob(log + ".*")
		if err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(log)
		if err != nil || info.Size() >= 64<<10 || len(found) != 2 {
			return false // it is to be rotated, or is being
		}
		slices.Sort(found)
		files, all = found, nil
		for _, path := range append(slices.Clone(files), log) {
			all = append(all, s.contents(t, path)...)
		}
		return len(all) > 0 &&
			strings.HasPrefix(all[len(all)-1].text, fmt.Sprintf("line %d ", lines-1))
	})
	if !strings.HasSuffix(files[0], ".gz") || strings.HasSuffix(files[1], ".gz") {
		t.Errorf("the rotated files are %q, want the older one compressed", files)
	}
	first := lines - len(all)
	for i, l := range all {
		if want := fmt.Sprintf("line %d ", first+i); !strings.HasPrefix(l.text, want) {
			t.Fatalf("where %q should be is %.30q, of %d lines", want, l.text, len(all))
		}
	}
	if c := s.container(t, "talker", "main"); c.GetState() != running ||
		c.GetMetadata().GetAttempt() != 0 {
		t.Errorf("the container was disturbed: %v", c)
	}
}

// contents are the lines of a log, which may be compressed; none if it has just been renamed.
func (s *scene) contents(t *testing.T, path string) []line {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer func() { _ = file.Close() }() // nothing was written
	if !strings.HasSuffix(path, ".gz") {
		return linesOf(t, file)
	}
	unpacked, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	return linesOf(t, unpacked)
}
