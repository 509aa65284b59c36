package e2e

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

var logParts = []part{
	{"termination messages", false, testTerminationMessages},
	{"a log has a link and is rotated", false, testLogRotation},
	{"names of links and log directories may be too long", false, testLongNames},
}

func testTerminationMessages(t *testing.T, s *suite) {
	long := strings.Repeat("x", 5000)
	s.runPod(t, "messages", `
  restartPolicy: Never
  containers:
  - {name: file, image: sample, args: [exit, --code, "1", --message, because, --say, ignored]}
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
	s.waitPhase(t, "messages", v1.PodFailed)
	for name, want := range map[string]string{
		"file": "because", "path": "by path", "log": "", "fine": "",
		"fallback": "exiting with 1 after 0s\nlast words\n",
		"long":     long[:12<<10/6], // six containers share the limit of a pod, 12 KiB
	} {
		terminated := s.containerStatus(t, "messages", name).State.Terminated
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

// testLogRotation has a container write twenty times the maximum size of its log. Only the maximum
// number of files is kept, and no line is missing between the start of the oldest file and the end.
// The runtime may begin a line in one file and end it in the next: it opens a new log between any
// two pieces of output that it reads.
func testLogRotation(t *testing.T, s *suite) {
	const lines = 12000
	s.runPod(t, "talker", fmt.Sprintf(`
  containers:
  - {name: main, image: sample, args: [talk, --lines, "%d", --bytes, "120", --every, 100ms]}`,
		lines))
	s.waitRunning(t, "talker", "main", 0)
	link := filepath.Join(s.agent.logLinkDir, fmt.Sprintf("talker-%s_default_main-%s.log", nodeName,
		s.newestContainer(t, "talker", "main").GetId()))
	s.eventually(t, "the link points to the log", func() bool {
		target, err := os.Readlink(link)
		return err == nil && target == s.logPath(t, "talker", "main", "0")
	})
	log := s.logPath(t, "talker", "main", "0")
	var files []string
	var all []logLine
	s.eventually(t, "all lines are written and rotated", func() bool {
		found, err := filepath.Glob(log + ".*")
		if err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(log)
		if err != nil || info.Size() >= 64<<10 || len(found) != 2 {
			return false // a rotation is due or in progress
		}
		slices.Sort(found)
		files = found
		all = parseLog(t, io.MultiReader(unpacked(files[0]), unpacked(files[1]), unpacked(log)))
		if len(all) > 0 && !strings.HasPrefix(all[0].text, "line ") {
			all = all[1:] // the end of a line that began in a file that is gone
		}
		if again, err := filepath.Glob(log + ".*"); err != nil || !slices.Equal(again, files) {
			return false // rotated while they were read
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
			t.Fatalf("line is %.30q, want %q; the files have %d lines", l.text, want, len(all))
		}
	}
	if c := s.newestContainer(t, "talker", "main"); c.GetState() != running ||
		c.GetMetadata().GetAttempt() != 0 {
		t.Errorf("the container was restarted or does not run: %v", c)
	}
}

// testLongNames runs a pod with a name that leaves no room for the whole ID of a container in the
// name of its link, and one with a name that is too long for a log directory.
func testLongNames(t *testing.T, s *suite) {
	long, longer := "long-"+strings.Repeat("n", 190), "longer-"+strings.Repeat("n", 215)
	for _, name := range []string{long, longer} {
		s.agent.addManifest(t, name, fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: %s},
			spec: {containers: [{name: main, image: "seedlet.dev/sample:v1", args: [exit]}]}}`, name))
	}
	message := s.waitWaiting(t, longer, "main", "ContainerCreating")
	if !strings.Contains(message, "/default_"+longer) || len(s.sandboxLines(t, longer)) > 0 {
		t.Errorf("waits with the message %q, and has the sandboxes %v", message,
			s.sandboxLines(t, longer))
	}
	s.waitRestarted(t, long, "main", 2)
	s.eventually(t, "the first run is removed", func() bool {
		isFirst := func(c *runtimeapi.Container) bool { return c.Metadata.Attempt == 0 }
		return !slices.ContainsFunc(s.listContainers(t, long, "main"), isFirst)
	})
	links, err := filepath.Glob(filepath.Join(s.agent.logLinkDir, long+"*"))
	if err != nil || len(links) == 0 || len(filepath.Base(links[0])) != 255 {
		t.Errorf("links %q, %v, want names of 255 bytes", links, err)
	}
	for _, name := range []string{long, longer} {
		s.agent.removeManifest(t, name)
		s.eventually(t, name+" is removed", func() bool { return s.isRemoved(t, name) })
	}
}

// unpacked returns the content of a log file, which may be compressed; nothing if the file has just
// been renamed.
func unpacked(path string) io.Reader {
	content, err := os.ReadFile(path)
	if err == nil && strings.HasSuffix(path, ".gz") {
		var packed *gzip.Reader
		if packed, err = gzip.NewReader(bytes.NewReader(content)); err == nil {
			content, err = io.ReadAll(packed)
		}
	}
	if err != nil {
		return strings.NewReader("")
	}
	return bytes.NewReader(content)
}
