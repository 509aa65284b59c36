package e2e

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// talkLines returns the lines of "sample talk" with the numbers from (inclusive) to (exclusive).
func talkLines(from, to, bytes int) string {
	var text strings.Builder
	for i := from; i < to; i++ {
		line := fmt.Sprintf("line %d ", i)
		text.WriteString(line + strings.Repeat(".", bytes-len(line)-1) + "\n")
	}
	return text.String()
}

// testLogs reads logs of containers in every state, with the options that limit their size.
func (c *clusterSuite) testLogs(t *testing.T) {
	all := talkLines(0, 20, 40)
	for _, test := range []struct{ args, want string }{
		{"statue-" + nodeName, "sleeping\n"}, // a mirror pod
		{"pair", "sleeping\n"},               // the first container is the default
		{"pair -c first", "exiting with 0 after 0s\nprepared\n"},
		{"pair -c two", all},
		{"pair -c two --tail=3", talkLines(17, 20, 40)},
		{"pair -c two --tail=0", ""},
		{"pair -c two --limit-bytes=50", all[:50]},
		{"pair -c two --tail=2 --limit-bytes=50", talkLines(18, 20, 40)[:50]},
		{"pair -c two --since=10h", all},
	} {
		args := append([]string{"logs"}, strings.Fields(test.args)...)
		stdout, stderr, code := c.runKubectl(t, args...)
		if code != 0 || stdout != test.want {
			t.Errorf("logs %s: code %d, %q, %q; want %q", test.args, code, stdout, stderr, test.want)
		}
	}
	prefixed := ""
	c.waitUntil(t, "all containers of pair have logs", func() bool { // another test adds one to it
		stdout, _, code := c.runKubectl(t, "logs", "pair", "--all-containers", "--prefix")
		prefixed = stdout
		return code == 0
	})
	for _, want := range []string{"[pod/pair/first] prepared\n", "[pod/pair/one] sleeping\n",
		"[pod/pair/two] line 19 ", "[pod/pair/spent] exiting with 0 after 0s\n"} {
		if !strings.Contains(prefixed, want) {
			t.Errorf("no %q in %q", want, prefixed)
		}
	}
	c.checkKubectlFails(t, "container nope is not valid for pod pair", "logs", "pair", "-c", "nope")
	c.waitUntil(t, "the pull of the missing image fails", func() bool {
		waiting := c.apiPod(t, "missing").Status.ContainerStatuses[0].State.Waiting
		return waiting != nil && (waiting.Reason == "ErrImagePull" ||
			waiting.Reason == "ImagePullBackOff")
	})
	_, stderr, code := c.runKubectl(t, "logs", "missing")
	if code != 1 || !strings.Contains(stderr, `container "main" in pod "missing" is waiting `+
		`to start: `) || !strings.Contains(stderr, "pull") {
		t.Errorf("logs of a container that never ran: code %d, %q", code, stderr)
	}
}

// testLogTimesAndPrevious reads logs with timestamps, since a time, and of the previous run of a
// container.
func (c *clusterSuite) testLogTimesAndPrevious(t *testing.T) {
	c.checkKubectlFails(t, `previous terminated container "main" in pod "mortal" not found`,
		"logs", "mortal", "--previous")
	timestamps := func() (times []time.Time) {
		for line := range strings.Lines(c.kubectl(t, "logs", "mortal", "--timestamps")) {
			text, _, _ := strings.Cut(line, " ")
			at, err := time.Parse(time.RFC3339Nano, text)
			if err != nil {
				t.Fatal(err)
			}
			times = append(times, at)
		}
		return times
	}
	say := func(text string) { c.kubectl(t, "exec", "mortal", "--", "/sample", "say", text) }
	var times []time.Time
	c.waitUntil(t, "the log has lines of different seconds", func() bool {
		say("one more")
		times = timestamps()
		return len(times) > 1 && times[0].Unix() < times[len(times)-1].Unix()
	})
	if !slices.IsSortedFunc(times, time.Time.Compare) {
		t.Errorf("timestamps are not in order: %v", times)
	}
	since := times[len(times)-1].Truncate(time.Second)
	later := slices.IndexFunc(times, func(at time.Time) bool { return !at.Before(since) })
	out := c.kubectl(t, "logs", "mortal", "--since-time="+since.Format(time.RFC3339))
	if want := strings.Repeat("one more\n", len(times)-later); out != want {
		t.Errorf("since %v: %q, want %q of %v", since, out, want, times)
	}
	c.waitUntil(t, "all lines are older than a second", func() bool {
		return c.kubectl(t, "logs", "mortal", "--since=1s") == ""
	})
	main := onlyContainerID(c.apiPod(t, "mortal").Status.ContainerStatuses)
	c.signalContainer(t, main, syscall.SIGKILL)
	c.waitUntil(t, "the killed container runs again", func() bool {
		p := c.apiPod(t, "mortal")
		return isPodReady(p) && p.Status.ContainerStatuses[0].RestartCount == 1 &&
			c.kubectl(t, "logs", "mortal") == "sleeping\n"
	})
	say("in another life")
	if out := c.kubectl(t, "logs", "mortal"); out != "sleeping\nin another life\n" {
		t.Errorf("the log of the current run is %q", out)
	}
	want := "sleeping\n" + strings.Repeat("one more\n", len(times)-1)
	if out := c.kubectl(t, "logs", "mortal", "-p"); out != want {
		t.Errorf("the log of the previous run is %q, want %q", out, want)
	}
}

// testLogsFollowed follows a log from its start and from its end. Both streams end with the
// container.
func (c *clusterSuite) testLogsFollowed(t *testing.T) {
	fromStart := c.startKubectl(t, "logs", "-f", "brief")
	fromEnd := c.startKubectl(t, "logs", "-f", "brief", "--tail=0")
	fromStart.waitOutput(t, "sleeping\n")
	c.waitUntil(t, "new lines are followed", func() bool {
		c.kubectl(t, "exec", "brief", "--", "/sample", "say", "a word")
		return strings.Contains(fromEnd.stdout.String(), "a word")
	})
	main := onlyContainerID(c.apiPod(t, "brief").Status.ContainerStatuses)
	c.signalContainer(t, main, syscall.SIGTERM)
	for _, s := range []*kubectlProcess{fromStart, fromEnd} {
		if code := s.waitExitCode(t); code != 0 ||
			!strings.HasSuffix(s.stdout.String(), "a word\nasked to stop: terminated\n") {
			t.Errorf("code %d: %s", code, s)
		}
	}
	if strings.Contains(fromEnd.stdout.String(), "sleeping") {
		t.Errorf("with --tail=0 there is an old line: %s", fromEnd)
	}
}

// testLogsRotated follows a log while it is rotated. No line is missing and none comes twice.
func (c *clusterSuite) testLogsRotated(t *testing.T) {
	const lines, bytes = 9000, 120
	if err := c.cluster.Apply(t.Context(), strings.ReplaceAll(`apiVersion: v1
kind: Pod
metadata: {name: talker, namespace: town}
spec:
  terminationGracePeriodSeconds: 600
  containers:
  - {name: main, image: IMAGE, args: [talk, --lines, "9000", --bytes, "120", --every, 100ms]}
`, "IMAGE", c.agent.sampleImage)); err != nil {
		t.Fatal(err)
	}
	c.waitUntil(t, "pod talker is ready", func() bool {
		return isPodReady(c.apiPod(t, "talker"))
	})
	s := c.startKubectl(t, "logs", "-f", "talker")
	s.waitOutput(t, fmt.Sprintf("line %d ", lines-1))
	whole := talkLines(0, lines, bytes)
	// The stream starts at the oldest line of the current file: kubectl cannot read rotated files.
	if got := s.stdout.String(); !strings.HasSuffix(whole, got) || len(got) < 2*64<<10 {
		t.Errorf("%d bytes of %d were followed, from %.40q: %s", len(got), len(whole), got,
			firstGap(got))
	}
	c.kubectl(t, "delete", "pod", "talker", "--wait=false")
	if code := s.waitExitCode(t); code != 0 {
		t.Errorf("code %d: %s", code, s)
	}
	if out := s.stdout.String(); !strings.HasSuffix(whole, out) {
		t.Errorf("more lines followed the last one: %q", out[max(0, len(out)-300):])
	}
}

// firstGap returns the first place at which numbered lines are not consecutive.
func firstGap(text string) string {
	before := -1
	for line := range strings.Lines(text) {
		var n int
		if _, err := fmt.Sscanf(line, "line %d ", &n); err != nil {
			return fmt.Sprintf("%q has no line number", line)
		}
		if before >= 0 && n != before+1 {
			return fmt.Sprintf("line %d comes after line %d", n, before)
		}
		before = n
	}
	return "no gap"
}

// testLogsOfTerminatingPod reads and follows the log of a pod that is being deleted and ignores
// TERM.
func (c *clusterSuite) testLogsOfTerminatingPod(t *testing.T) {
	s := c.startKubectl(t, "logs", "-f", "leaving")
	s.waitOutput(t, "sleeping")
	c.kubectl(t, "delete", "pod", "leaving", "--wait=false")
	s.waitOutput(t, "asked to stop")
	if out := c.kubectl(t, "logs", "leaving"); !strings.Contains(out, "asked to stop") {
		t.Errorf("the log of the terminating pod is %q", out)
	}
	c.kubectl(t, "exec", "leaving", "--", "/sample", "say", "not yet")
	s.waitOutput(t, "not yet")
	c.kubectl(t, "delete", "pod", "leaving", "--grace-period=1", patience)
	if code := s.waitExitCode(t); code != 0 {
		t.Errorf("code %d: %s", code, s)
	}
}
