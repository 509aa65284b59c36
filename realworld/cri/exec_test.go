package cri_test

import (
	"bytes"
	"context"
	"testing"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/realworld/porttest"
	"seedlet.dev/world"
	"seedlet.dev/world/parity"
)

func TestCommandOutputIsTruncated(t *testing.T) {
	r := newRuntime(t)
	stdout := bytes.Repeat([]byte("o"), 10<<10)
	stderr := bytes.Repeat([]byte("e"), 10<<10)
	r.handle = func(context.Context, string) (proto.Message, error) {
		return &runtimeapi.ExecSyncResponse{
			ExitCode: 7, Stdout: append(stdout, "more"...), Stderr: stderr}, nil
	}
	r.start(t)
	defer r.kill(t)
	h := newHarness(t, r)
	body, err := h.call(&runtimeapi.ExecSyncRequest{}, porttest.Patience)
	if err != nil {
		t.Fatal(err)
	}
	got := body.(*runtimeapi.ExecSyncResponse)
	if got.ExitCode != 7 || !bytes.Equal(got.Stdout, stdout) || !bytes.Equal(got.Stderr, stderr) {
		t.Errorf("code %d, %d and %d bytes of output, want 7 and 10 KiB of each", got.ExitCode,
			len(got.Stdout), len(got.Stderr))
	}
}

// testExecTimeoutKillsCommand checks on a real runtime a fact that the core cannot observe: a
// command is dead after its timeout. The command listens on a port; if the first were still alive,
// the second would end at once, because the port is in use.
//
// If the effect's deadline passes first, containerd tries to kill the command in the context of the
// call that has just ended. That mostly works, but is not guaranteed.
func testExecTimeoutKillsCommand(t *testing.T, n *node) {
	container := n.runContainer()
	for range 2 {
		body, err := n.Call(&runtimeapi.ExecSyncRequest{
			ContainerId: container, Timeout: 1, Cmd: []string{"/sample", "web", "--port", "9999"},
		})
		if !err.Has(world.KindTimeout) {
			t.Errorf("completed by %v, %v, want Timeout", body, err)
		}
	}
}

// runContainer creates a pod with a running container; the node's cleanup removes it.
func (n *node) runContainer() (container string) {
	sandbox := n.Sandbox()
	sandbox.Metadata = &runtimeapi.PodSandboxMetadata{Name: "p", Namespace: "cri", Uid: "p"}
	pod := mustCall[*runtimeapi.RunPodSandboxResponse](n, &runtimeapi.RunPodSandboxRequest{
		Config: sandbox})
	config := n.Container(parity.Runs)
	config.Metadata = &runtimeapi.ContainerMetadata{Name: "c"}
	made := mustCall[*runtimeapi.CreateContainerResponse](n, &runtimeapi.CreateContainerRequest{
		PodSandboxId: pod.PodSandboxId, Config: config, SandboxConfig: sandbox})
	mustCall[*runtimeapi.StartContainerResponse](n, &runtimeapi.StartContainerRequest{
		ContainerId: made.ContainerId})
	return made.ContainerId
}

func mustCall[Answer any](n *node, request any) Answer {
	n.t.Helper()
	body, err := n.Call(request)
	if err != nil {
		n.t.Fatal(err)
	}
	return body.(Answer)
}
