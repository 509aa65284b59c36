package e2e

import (
	"cmp"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

var (
	createdContainer = regexp.MustCompile(`msg="CreateContainer within sandbox .* for ` +
		`name:\\"([^\\"]+)\\"(?:\s+attempt:([0-9]+))? returns container id \\"([0-9a-f]{64})\\"`)
	processExit = regexp.MustCompile(`received container exit event container_id:` +
		`\\"([0-9a-f]{64})\\"\s+id:\\"([0-9a-f]{64})\\" .*` +
		`exited_at:\{seconds:([0-9]+)(?:\s+nanos:([0-9]+))?\}`)
)

// processExits returns when the processes of containers have exited, by "NAME ATTEMPT", from the
// log of containerd: its shim is the parent of the process, so neither the agent nor a cancelled
// request has a part in that.
func processExits(log string) map[string]time.Time {
	exits, named := map[string]time.Time{}, map[string]string{} // by ID of the container
	for _, l := range strings.Split(log, "\n") {
		if c := createdContainer.FindStringSubmatch(l); c != nil {
			named[c[3]] = c[1] + " " + cmp.Or(c[2], "0")
		}
		e := processExit.FindStringSubmatch(l)
		if e == nil || e[1] != e[2] || named[e[1]] == "" { // of a command in the container
			continue
		}
		seconds, _ := strconv.ParseInt(e[3], 10, 64) // digits
		nanos, _ := strconv.ParseInt(e[4], 10, 64)   // zero if they are left out
		if at := time.Unix(seconds, nanos); at.After(exits[named[e[1]]]) {
			exits[named[e[1]]] = at
		}
	}
	return exits
}

// TestProcessExits reads lines as containerd 2.4.2 writes them.
func TestProcessExits(t *testing.T) {
	id := func(digit string) string { return strings.Repeat(digit, 64) }
	created := func(metadata, container string) string {
		return `time="…" level=info msg="CreateContainer within sandbox \"` + id("0") + `\" for ` +
			metadata + ` returns container id \"` + id(container) + `\""`
	}
	exited := func(container, process, at string) string {
		return `time="…" level=info msg="received container exit event container_id:\"` +
			id(container) + `\" id:\"` + id(process) + `\" pid:7 exit_status:1 exited_at:{` + at + `}"`
	}
	exits := processExits(strings.Join([]string{
		created(`name:\"main-7\"`, "a"), exited("a", "a", "seconds:10 nanos:5"),
		created(`name:\"main-7\"  attempt:1`, "b"), exited("b", "c", "seconds:11"),
		created(`name:\"main-8\" attempt:12`, "d"), exited("d", "d", "seconds:12"),
		exited("e", "e", "seconds:13"), // a container of which the log does not tell
	}, "\n"))
	if len(exits) != 2 || !exits["main-7 0"].Equal(time.Unix(10, 5)) ||
		!exits["main-8 12"].Equal(time.Unix(12, 0)) {
		t.Errorf("exits %v", exits)
	}
}
