package e2e

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/realworld/nodetest"
	"seedlet.dev/realworld/porttest"
)

// suite is a node with an agent on it. Its methods change and check both. The parts of a test may
// share a suite.
type suite struct {
	node  *nodetest.Node
	agent *agent
}

// eventually waits until a condition holds, and fails the test when it does not in time.
func (s *suite) eventually(t testing.TB, condition string, holds func() bool) {
	t.Helper()
	deadline := time.Now().Add(porttest.Patience)
	for !holds() {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s\ncontainers of the runtime: %v", porttest.Patience, condition,
				s.containerLines(t, ""))
		}
		time.Sleep(150 * time.Millisecond)
	}
}

// eventuallyAfterKill is eventually for tests that kill the agent. If the agent is killed while a
// container starts, containerd may regard the container as exited and yet keep its task. Then it
// refuses for ever to remove the container ("cannot delete running task"), and only a restart of
// containerd helps. So eventuallyAfterKill restarts containerd in this case, after a while.
func (s *suite) eventuallyAfterKill(t testing.TB, condition string, holds func() bool) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for !holds() && time.Now().Before(deadline) {
		time.Sleep(500 * time.Millisecond)
	}
	if !holds() && strings.Contains(s.runtimeLog(t), "cannot delete running task") {
		t.Logf("containerd is restarted, because it refuses to remove one of %q",
			s.containerLines(t, ""))
		if err := s.node.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	s.eventually(t, condition, holds)
}

// runtimeLog returns the log of containerd.
func (s *suite) runtimeLog(t testing.TB) string {
	t.Helper()
	log, err := os.ReadFile(s.node.LogFile())
	if err != nil {
		t.Fatal(err)
	}
	return string(log)
}

// containerLines returns the runtime's containers of a pod, or of all pods for an empty name, as
// sorted lines that can be compared and printed.
func (s *suite) containerLines(t testing.TB, pod string) []string {
	t.Helper()
	var lines []string
	for _, c := range s.listContainers(t, pod, "") {
		lines = append(lines, fmt.Sprintf("%s/%s#%d %s %.12s",
			c.Labels["io.kubernetes.pod.name"], c.Metadata.Name, c.Metadata.Attempt, c.State, c.Id))
	}
	slices.Sort(lines)
	return lines
}

// listContainers returns the runtime's containers of a pod and with a container name; an empty name
// selects all. It selects them by the labels that the agent must set.
func (s *suite) listContainers(t testing.TB, pod, container string) []*runtimeapi.Container {
	t.Helper()
	labels := map[string]string{}
	if pod != "" {
		labels["io.kubernetes.pod.name"] = pod + "-" + nodeName
	}
	if container != "" {
		labels["io.kubernetes.container.name"] = container
	}
	ctx, cancel := context.WithTimeout(t.Context(), porttest.Patience)
	defer cancel()
	filter := &runtimeapi.ContainerFilter{LabelSelector: labels}
	response, err := s.node.Runtime().ListContainers(ctx,
		&runtimeapi.ListContainersRequest{Filter: filter})
	if err != nil {
		t.Fatalf("listing containers: %v", err)
	}
	return response.Containers
}

// newestContainer returns the runtime's status of the newest instance of a container. If there is
// none it returns nil, whose getters return zero values. The test fails if two instances run at
// once.
func (s *suite) newestContainer(t testing.TB, pod, name string) *runtimeapi.ContainerStatus {
	t.Helper()
	var newest *runtimeapi.Container
	runningCount := 0
	for _, c := range s.listContainers(t, pod, name) {
		if c.State == running {
			runningCount++
		}
		if newest == nil || c.CreatedAt > newest.CreatedAt {
			newest = c
		}
	}
	if runningCount > 1 {
		t.Errorf("%d instances of %s/%s run at once", runningCount, pod, name)
	}
	if newest == nil {
		return nil
	}
	response, err := s.node.Runtime().ContainerStatus(t.Context(),
		&runtimeapi.ContainerStatusRequest{ContainerId: newest.Id})
	if err != nil {
		return nil // removed since it was listed
	}
	return response.Status
}

// runningLines returns all running containers with their start times, and all sandboxes with their
// states, as sorted lines.
func (s *suite) runningLines(t testing.TB) []string {
	t.Helper()
	lines := s.sandboxLines(t, "")
	for _, c := range s.listContainers(t, "", "") {
		if c.State != running {
			continue
		}
		response, err := s.node.Runtime().ContainerStatus(t.Context(),
			&runtimeapi.ContainerStatusRequest{ContainerId: c.Id})
		if err != nil {
			t.Fatalf("requesting the status of container %s: %v", c.Id, err)
		}
		lines = append(lines, fmt.Sprintf("%s %.12s since %d",
			c.Metadata.Name, c.Id, response.Status.StartedAt))
	}
	slices.Sort(lines)
	return lines
}

// sandboxLines returns the sandboxes of a pod, or of all pods for an empty name, with their states,
// as sorted lines.
func (s *suite) sandboxLines(t testing.TB, pod string) []string {
	t.Helper()
	filter := &runtimeapi.PodSandboxFilter{}
	if pod != "" {
		filter.LabelSelector = map[string]string{"io.kubernetes.pod.name": pod + "-" + nodeName}
	}
	response, err := s.node.Runtime().ListPodSandbox(t.Context(),
		&runtimeapi.ListPodSandboxRequest{Filter: filter})
	if err != nil {
		t.Fatalf("listing sandboxes: %v", err)
	}
	var lines []string
	for _, p := range response.Items {
		lines = append(lines, fmt.Sprintf("%s %.12s %s", p.Metadata.Name, p.Id, p.State))
	}
	slices.Sort(lines)
	return lines
}

// isRemoved reports whether the runtime has neither a container nor a sandbox of a pod; of any pod
// for an empty name.
func (s *suite) isRemoved(t testing.TB, pod string) bool {
	t.Helper()
	return len(s.containerLines(t, pod)) == 0 && len(s.sandboxLines(t, pod)) == 0
}

// signalContainer sends a signal to the main process of a container without the runtime, as the
// kernel's OOM killer does.
func (s *suite) signalContainer(t testing.TB, id string, signal syscall.Signal) {
	t.Helper()
	pid := s.processOf(t, id)
	process, err := os.FindProcess(pid)
	if err != nil {
		t.Fatal(err)
	}
	if err := process.Signal(signal); err != nil {
		t.Fatalf("sending %v to process %d: %v", signal, pid, err)
	}
}

func isRunning(c *runtimeapi.Container) bool { return c.State == running }
