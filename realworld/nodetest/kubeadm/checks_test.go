package kubeadm

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// missingUnless returns an error that says what is the case, unless the awaited is.
func missingUnless(is bool, format string, args ...any) error {
	if is {
		return nil
	}
	return fmt.Errorf(format, args...)
}

// unitStarted is the MESSAGE_ID of systemd's message about a unit that has been started.
const unitStarted = "39f53479d3a045ac8e11786248231fbf"

// checkNodes checks at the end of a step that the agent of each node was started as often as the
// steps expect, is the same process if not at all, and that the same containers run. A crash would
// otherwise be hidden, since systemd starts the agent again.
func (s *suite) checkNodes(t *testing.T) {
	t.Helper()
	for _, n := range s.nodes() {
		s.checkNode(t, n)
	}
}

func (s *suite) checkNode(t *testing.T, n *node) {
	t.Helper()
	properties := map[string]string{}
	for line := range strings.Lines(n.commandOutput(t, "systemctl", "show", "kubelet",
		"--property=MainPID", "--property=NRestarts")) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		properties[name] = value
	}
	journal := n.commandOutput(t, "journalctl", "--unit=kubelet", "--quiet", "--no-pager",
		"--output=cat", "MESSAGE_ID="+unitStarted)
	pid, restarts, starts := properties["MainPID"], properties["NRestarts"],
		strings.Count(journal, "\n")
	if restarts != "0" {
		t.Errorf("systemd has started the agent of %s again %s times", n.HostName, restarts)
	}
	if starts != n.starts {
		t.Errorf("the agent of %s was started %d times, want %d", n.HostName, starts, n.starts)
	}
	if n.runs != (pid != "0") {
		t.Errorf("the agent of %s is process %s; it should run: %v", n.HostName, pid, n.runs)
	}
	if n.runs && (pid == n.pid) != (starts == n.startsSeen) {
		t.Errorf("the agent of %s is process %s after %d starts, and was %s after %d", n.HostName, pid,
			starts, n.pid, n.startsSeen)
	}
	n.pid, n.startsSeen = pid, starts
	containers, err := n.runningContainers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(containers, n.containers) {
		t.Errorf("%s runs the containers %v, want %v", n.HostName, containers, n.containers)
	}
	s.say(t, "%s: the agent is process %s, started %d times, %s of them after an end by itself; "+
		"%d containers run", n.HostName, pid, starts, restarts, len(containers))
}

// keepContainers has the next steps expect the containers that a node runs now.
func (s *suite) keepContainers(t *testing.T, n *node) {
	t.Helper()
	var err error
	if n.containers, err = n.runningContainers(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// runningContainers returns the names of the containers that run on a node, by their IDs.
func (n *node) runningContainers(ctx context.Context) (map[string]string, error) {
	list, err := n.runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{
		Filter: &runtimeapi.ContainerFilter{State: &runtimeapi.ContainerStateValue{
			State: runtimeapi.ContainerState_CONTAINER_RUNNING}}})
	if err != nil {
		return nil, err
	}
	found := make(map[string]string, len(list.Containers))
	for _, c := range list.Containers {
		found[c.Id] = c.Metadata.Name
	}
	return found, nil
}

// allContainers returns a line for each container of a node, whatever its state.
func (n *node) allContainers(t *testing.T) []string {
	t.Helper()
	list, err := n.runtime.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{})
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, c := range list.Containers {
		lines = append(lines, fmt.Sprintf("%s attempt %d: %s %s", c.Metadata.Name,
			c.Metadata.Attempt, c.Id[:12], c.State))
	}
	slices.Sort(lines)
	return lines
}

// commandOutput returns what a program of the node prints.
func (n *node) commandOutput(t *testing.T, program string, args ...string) string {
	t.Helper()
	out, err := n.Command(t.Context(), program, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s on %s: %v\n%s", program, n.HostName, err, out)
	}
	return string(out)
}
