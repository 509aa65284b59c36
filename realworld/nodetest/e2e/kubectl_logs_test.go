package e2e

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// talked are some of the lines of "sample talk".
func talked(from, to, bytes int) string {
	var text strings.Builder
	for i := from; i < to; i++ {
		line := fmt.Sprintf("line %d ", i)
		text.WriteString(line + strings.Repeat(".", bytes-len(line)-1) + "\n")
	}
	return text.String()
}

func (c *town) logs(t *testing.T) {
	all := talked(0, 20, 40)
	for _, is := range []struct{ args, want string }{
		{"statue-" + nodeName, "sleeping\n"}, // a mirror
		{"pair", "sleeping\n"},               // of the first container
		{"pair -c first", "exiting with 0 after 0s\nprepared\n"},
		{"pair -c two", all},
		{"pair -c two --tail=3", talked(17, 20, 40)},
		{"pair -c two --tail=0", ""},
		{"pair -c two --limit-bytes=50", all[:50]},
		{"pair -c two --tail=2 --limit-bytes=50", talked(18, 20, 40)[:50]},
		{"pair -c two --since=10h", all},
	} {
		out, problems, code := c.tried(t, append([]string{"logs"}, strings.Fields(is.args)...)...)
		if code != 0 || out != is.want {
			t.Errorf("logs %s: code %d, %q, %q; want %q", is.args, code, out, problems, is.want)
		}
	}
	prefixed := c.kubectl(t, "logs", "pair", "--all-containers", "--prefix")
	for _, want := range []string{"[pod/pair/first] prepared\n", "[pod/pair/one] sleeping\n",
		"[pod/pair/two] line 19 ", "[pod/pair/spent] exiting with 0 after 0s\n"} {
		if !strings.Contains(prefixed, want) {
			t.Errorf("no %q in %q", want, prefixed)
		}
	}
	c.fails(t, "container nope is not valid for pod pair", "logs", "pair", "-c", "nope")
	c.until(t, late, "the image is found missing", func() bool {
		waiting := c.pod(t, "missing").Status.ContainerStatuses[0].State.Waiting
		return waiting != nil && (waiting.Reason == "ErrImagePull" ||
			waiting.Reason == "ImagePullBackOff")
	})
	_, problems, code := c.tried(t, "logs", "missing")
	if code != 1 || !strings.Contains(problems, `container "main" in pod "missing" is waiting `+
		`to start: `) || !strings.Contains(problems, "pull") {
		t.Errorf("logs of what never ran: code %d, %q", code, problems)
	}
}

// logsOfThePast are about time: since when, at what time, and of which run.
func (c *town) logsOfThePast(t *testing.T) {
	c.fails(t, `previous terminated container "main" in pod "mortal" not found`,
		"logs", "mortal", "--previous")
	stamped := func() (times []time.Time) {
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
	c.until(t, soon, "lines are of different seconds", func() bool {
		say("one more")
		times = stamped()
		return len(times) > 1 && times[0].Unix() < times[len(times)-1].Unix()
	})
	if !slices.IsSortedFunc(times, time.Time.Compare) {
		t.Errorf("times %v", times)
	}
	since := times[len(times)-1].Truncate(time.Second)
	later := slices.IndexFunc(times, func(at time.Time) bool { return !at.Before(since) })
	out := c.kubectl(t, "logs", "mortal", "--since-time="+since.Format(time.RFC3339))
	if want := strings.Repeat("one more\n", len(times)-later); out != want {
		t.Errorf("since %v: %q, want %q of %v", since, out, want, times)
	}
	c.until(t, soon, "all is older than a second", func() bool {
		return c.kubectl(t, "logs", "mortal", "--since=1s") == ""
	})
	c.signal(t, idOf(c.pod(t, "mortal").Status.ContainerStatuses), syscall.SIGKILL)
	c.until(t, late, "it runs again", func() bool {
		p := c.pod(t, "mortal")
		return podReady(p) && p.Status.ContainerStatuses[0].RestartCount == 1
	})
	say("in another life")
	if out := c.kubectl(t, "logs", "mortal"); out != "sleeping\nin another life\n" {
		t.Errorf("now: %q", out)
	}
	want := "sleeping\n" + strings.Repeat("one more\n", len(times)-1)
	if out := c.kubectl(t, "logs", "mortal", "-p"); out != want {
		t.Errorf("before: %q, want %q", out, want)
	}
}

// logsFollowed end with the container.
func (c *town) logsFollowed(t *testing.T) {
	s, last := c.begin(t, "logs", "-f", "brief"), c.begin(t, "logs", "-f", "brief", "--tail=0")
	s.shows(t, "sleeping\n")
	c.until(t, soon, "what is said is shown", func() bool {
		c.kubectl(t, "exec", "brief", "--", "/sample", "say", "a word")
		return strings.Contains(last.out.String(), "a word")
	})
	c.signal(t, idOf(c.pod(t, "brief").Status.ContainerStatuses), syscall.SIGTERM)
	for _, s := range []*session{s, last} {
		if code := s.code(t); code != 0 ||
			!strings.HasSuffix(s.out.String(), "a word\nasked to stop: terminated\n") {
			t.Errorf("code %d: %s", code, s)
		}
	}
	if strings.Contains(last.out.String(), "sleeping") {
		t.Errorf("from now on: %s", last)
	}
}

// logsRotated are followed while they are rotated: no line is missing and none comes twice.
func (c *town) logsRotated(t *testing.T) {
	const lines, bytes = 9000, 120
	if err := c.cluster.Apply(t.Context(), strings.ReplaceAll(`apiVersion: v1
kind: Pod
metadata: {name: talker, namespace: town}
spec:
  terminationGracePeriodSeconds: 600
  containers:
  - {name: main, image: IMAGE, args: [talk, --lines, "9000", --bytes, "120", --every, 100ms]}
`, "IMAGE", c.agent.image)); err != nil {
		t.Fatal(err)
	}
	c.until(t, late, "it talks", func() bool { return podReady(c.pod(t, "talker")) })
	s := c.begin(t, "logs", "-f", "talker")
	s.shows(t, fmt.Sprintf("line %d ", lines-1))
	whole := talked(0, lines, bytes)
	// What was rotated away before, only the node could tell.
	if got := s.out.String(); !strings.HasSuffix(whole, got) || len(got) < 2*64<<10 {
		t.Errorf("%d bytes were followed of %d, from %.40q: %s", len(got), len(whole), got,
			firstGap(got))
	}
	c.kubectl(t, "delete", "pod", "talker", "--wait=false")
	if code := s.code(t); code != 0 {
		t.Errorf("code %d: %s", code, s)
	}
	if out := s.out.String(); !strings.HasSuffix(whole, out) {
		t.Errorf("more came at the end: %q", out[max(0, len(out)-300):])
	}
}

// firstGap is where numbered lines do not follow each other.
func firstGap(text string) string {
	before := -1
	for line := range strings.Lines(text) {
		var n int
		if _, err := fmt.Sscanf(line, "line %d ", &n); err != nil {
			return fmt.Sprintf("%q is no line", line)
		}
		if before >= 0 && n != before+1 {
			return fmt.Sprintf("line %d comes after line %d", n, before)
		}
		before = n
	}
	return "no gap"
}

// logsLeaving are of a pod that is being deleted, and does not mind.
func (c *town) logsLeaving(t *testing.T) {
	s := c.begin(t, "logs", "-f", "leaving")
	s.shows(t, "sleeping")
	c.kubectl(t, "delete", "pod", "leaving", "--wait=false")
	s.shows(t, "asked to stop")
	if out := c.kubectl(t, "logs", "leaving"); !strings.Contains(out, "asked to stop") {
		t.Errorf("its log is %q", out)
	}
	c.kubectl(t, "exec", "leaving", "--", "/sample", "say", "not yet")
	s.shows(t, "not yet")
	c.kubectl(t, "delete", "pod", "leaving", "--grace-period=1", "--timeout=60s")
	if code := s.code(t); code != 0 {
		t.Errorf("code %d: %s", code, s)
	}
}
