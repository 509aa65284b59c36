package e2e

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// interruptedStarts are the starts that containerd has cancelled, as it does when the agent is
// killed. In some of these cases it forgets the parts that exist already: an empty cgroup, the
// process of runc that would have become the container, its mount, the shim. No request of the CRI
// removes them. The process of the container itself may have been started as well; it is killed
// later, or ends by itself.
type interruptedStarts struct {
	ids map[string]bool // of sandboxes and containers
	// containers are those that may have run, as "NAME ATTEMPT". To the CRI each has exited since.
	containers map[string]bool
}

var (
	runtimeID        = regexp.MustCompile(`\b[0-9a-f]{64}\b`)
	createdContainer = regexp.MustCompile(`msg="CreateContainer within sandbox .* for ` +
		`name:\\"([^\\"]+)\\"(?:\s+attempt:([0-9]+))? returns container id \\"([0-9a-f]{64})\\"`)
	cancelledStart = regexp.MustCompile(
		`msg="StartContainer for \\"([0-9a-f]{64})\\" failed" error=.*context canceled`)
)

// findInterruptedStarts reads them from the log of containerd.
func findInterruptedStarts(log string) interruptedStarts {
	found := interruptedStarts{map[string]bool{}, map[string]bool{}}
	lines, started := strings.Split(log, "\n"), map[string]bool{}
	for _, l := range lines {
		if strings.Contains(l, "context canceled") {
			for _, id := range runtimeID.FindAllString(l, -1) {
				found.ids[id] = true
			}
		}
		if start := cancelledStart.FindStringSubmatch(l); start != nil {
			started[start[1]] = true
		}
	}
	for _, l := range lines {
		// The first ID is the sandbox's, the second one the container's.
		created := runtimeID.FindAllString(l, -1)
		if strings.Contains(l, "CreateContainer within sandbox") && len(created) == 2 {
			found.ids[created[0]] = found.ids[created[0]] || found.ids[created[1]]
		}
		if c := createdContainer.FindStringSubmatch(l); c != nil && started[c[3]] {
			found.containers[c[1]+" "+cmp.Or(c[2], "0")] = true
		}
	}
	return found
}

// haveLeft reports whether a leftover of the node is of an interrupted start. A process of the
// container itself is never excused.
func (s interruptedStarts) haveLeft(line string) bool {
	switch {
	case strings.HasPrefix(line, "file /run/containerd/s/"): // the name has no ID of a sandbox
		return len(s.ids) > 0
	case strings.HasPrefix(line, "process ") && !strings.Contains(line, "(containerd-shim)") &&
		!strings.Contains(line, "(runc"):
		return false
	}
	return s.ids[runtimeID.FindString(line)]
}

// TestFindInterruptedStarts reads lines that a containerd 2.4.2 has written.
func TestFindInterruptedStarts(t *testing.T) {
	id := func(digit string) string { return strings.Repeat(digit, 64) }
	created := func(sandbox, metadata, container string) string {
		return `time="…" level=info msg="CreateContainer within sandbox \"` + id(sandbox) + `\" for ` +
			metadata + ` returns container id \"` + id(container) + `\""`
	}
	failed := func(call, of, why string) string {
		return `time="…" level=error msg="` + call + ` for \"` + id(of) + `\" failed" error="rpc ` +
			`error: code = Unknown desc = failed to start containerd task \"` + id(of) + `\": ` + why + `"`
	}
	found := findInterruptedStarts(strings.Join([]string{
		created("1", `name:\"main-7\"`, "a"),
		failed("StartContainer", "a", "context canceled"),
		created("1", `name:\"main-7\" attempt:1`, "b"), // its end was cancelled, not its start
		failed("StopContainer", "b", "context canceled"),
		created("2", `name:\"main-8\"  attempt:12`, "c"),
		failed("StartContainer", "c", "container is already in starting state"),
		failed("StartContainer", "c", "context canceled"),
		created("3", `name:\"main-9\"`, "d"),
		failed("StartContainer", "d", "no such file"),
	}, "\n"))
	for container, want := range map[string]bool{ //ordered: each by itself
		"main-7 0": true, "main-7 1": false, "main-8 12": true, "main-8 1": false, "main-9 0": false,
	} {
		if found.containers[container] != want {
			t.Errorf("the start of %s was interrupted: %t, want %t", container, !want, want)
		}
	}
	var left []string
	for _, line := range []string{
		"cgroup /sys/fs/cgroup/pids/" + id("a"), "cgroup /sys/fs/cgroup/pids/" + id("d"),
		"mount /run/" + id("1"), "mount /run/" + id("3"), "file /run/containerd/s/" + id("e"),
		"process 7 (containerd-shim) -id " + id("2"), "process 8 (runc:[2:INIT]) " + id("c"),
		"process 9 (sample) " + id("a"),
	} {
		if found.haveLeft(line) {
			kind, rest, _ := strings.Cut(line, " ")
			left = append(left, kind+" "+rest[len(rest)-1:])
		}
	}
	want := []string{"cgroup a", "mount 1", "file e", "process 2", "process c"}
	if !slices.Equal(left, want) {
		t.Errorf("excused leftovers %q, want %q", left, want)
	}
}
