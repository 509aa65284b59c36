package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// eventually waits until a condition holds, and fails the test when it does not in time.
func (s *scene) eventually(t testing.TB, within time.Duration, what string, holds func() bool) {
	t.Helper()
	deadline := time.Now().Add(within)
	for !holds() {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s\nthe runtime has %v", within, what, s.containers(t, ""))
		}
		time.Sleep(150 * time.Millisecond)
	}
}

// recovers is eventually where the agent was killed. When that happens while a container starts,
// containerd may take the container for exited and yet keep its task, so that it refuses for ever
// to remove it ("cannot delete running task"). Only a restart of containerd mends that.
func (s *scene) recovers(t testing.TB, what string, holds func() bool) {
	t.Helper()
	deadline := time.Now().Add(soon)
	for !holds() && time.Now().Before(deadline) {
		time.Sleep(500 * time.Millisecond)
	}
	if !holds() && strings.Contains(s.runtimeLog(t), "cannot delete running task") {
		t.Logf("containerd refuses to remove one of %q and is restarted", s.containers(t, ""))
		if err := s.node.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	s.eventually(t, 2*soon, what, holds)
}

// runtimeLog is what containerd has logged.
func (s *scene) runtimeLog(t testing.TB) string {
	t.Helper()
	log, err := os.ReadFile(s.node.LogFile())
	if err != nil {
		t.Fatal(err)
	}
	return string(log)
}

// containers are the runtime's containers of a pod, of all pods for an empty name; as lines, so
// that they can be compared and printed.
func (s *scene) containers(t testing.TB, pod string) []string {
	t.Helper()
	var lines []string
	for _, c := range s.list(t, pod, "") {
		lines = append(lines, fmt.Sprintf("%s/%s#%d %s %.12s",
			c.Labels["io.kubernetes.pod.name"], c.Metadata.Name, c.Metadata.Attempt, c.State, c.Id))
	}
	slices.Sort(lines)
	return lines
}

// list asks the runtime for containers by the labels that the agent must have given them.
func (s *scene) list(t testing.TB, pod, container string) []*runtimeapi.Container {
	t.Helper()
	labels := map[string]string{}
	if pod != "" {
		labels["io.kubernetes.pod.name"] = pod + "-" + nodeName
	}
	if container != "" {
		labels["io.kubernetes.container.name"] = container
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	filter := &runtimeapi.ContainerFilter{LabelSelector: labels}
	answer, err := s.node.Runtime().ListContainers(ctx,
		&runtimeapi.ListContainersRequest{Filter: filter})
	if err != nil {
		t.Fatalf("listing containers: %v", err)
	}
	return answer.Containers
}

// container is the newest instance of a container; nil, whose getters are all zero, if there is
// none. Two that run at once are an error.
func (s *scene) container(t testing.TB, pod, name string) *runtimeapi.ContainerStatus {
	t.Helper()
	var newest *runtimeapi.Container
	live := 0
	for _, c := range s.list(t, pod, name) {
		if c.State == running {
			live++
		}
		if newest == nil || c.CreatedAt > newest.CreatedAt {
			newest = c
		}
	}
	if live > 1 {
		t.Errorf("%d instances of %s/%s run at once", live, pod, name)
	}
	if newest == nil {
		return nil
	}
	answer, err := s.node.Runtime().ContainerStatus(t.Context(),
		&runtimeapi.ContainerStatusRequest{ContainerId: newest.Id})
	if err != nil {
		return nil // removed since it was listed
	}
	return answer.Status
}

// alive are all running containers with their start times, and all ready sandboxes.
func (s *scene) alive(t testing.TB) []string {
	t.Helper()
	lines := s.sandboxes(t, "")
	for _, c := range s.list(t, "", "") {
		if c.State != running {
			continue
		}
		answer, err := s.node.Runtime().ContainerStatus(t.Context(),
			&runtimeapi.ContainerStatusRequest{ContainerId: c.Id})
		if err != nil {
			t.Fatalf("asking for container %s: %v", c.Id, err)
		}
		lines = append(lines, fmt.Sprintf("%s %.12s since %d",
			c.Metadata.Name, c.Id, answer.Status.StartedAt))
	}
	slices.Sort(lines)
	return lines
}

// sandboxes are the sandboxes of a pod, of all pods for an empty name, with their states.
func (s *scene) sandboxes(t testing.TB, pod string) []string {
	t.Helper()
	filter := &runtimeapi.PodSandboxFilter{}
	if pod != "" {
		filter.LabelSelector = map[string]string{"io.kubernetes.pod.name": pod + "-" + nodeName}
	}
	answer, err := s.node.Runtime().ListPodSandbox(t.Context(),
		&runtimeapi.ListPodSandboxRequest{Filter: filter})
	if err != nil {
		t.Fatalf("listing sandboxes: %v", err)
	}
	var lines []string
	for _, p := range answer.Items {
		lines = append(lines, fmt.Sprintf("%s %.12s %s", p.Metadata.Name, p.Id, p.State))
	}
	slices.Sort(lines)
	return lines
}

// gone reports whether the runtime holds nothing of a pod any more.
func (s *scene) gone(t testing.TB, pod string) bool {
	t.Helper()
	return len(s.containers(t, pod)) == 0 && len(s.sandboxes(t, pod)) == 0
}

// signal sends a signal to the main process of a container, from outside, as the kernel's
// out-of-memory killer would.
func (s *scene) signal(t testing.TB, id string, signal syscall.Signal) {
	t.Helper()
	answer, err := s.node.Runtime().ContainerStatus(t.Context(),
		&runtimeapi.ContainerStatusRequest{ContainerId: id, Verbose: true})
	if err != nil {
		t.Fatalf("asking for container %s: %v", id, err)
	}
	var info struct{ Pid int }
	if err := json.Unmarshal([]byte(answer.Info["info"]), &info); err != nil || info.Pid <= 1 {
		t.Fatalf("no process of container %s in %q: %v", id, answer.Info["info"], err)
	}
	process, err := os.FindProcess(info.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if err := process.Signal(signal); err != nil {
		t.Fatalf("sending %v to process %d: %v", signal, info.Pid, err)
	}
}

func isRunning(c *runtimeapi.Container) bool { return c.State == running }
