package cri_test

import (
	"bytes"
	"context"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/world"
	"seedlet.dev/world/parity"
)

func TestCommandOutputIsCut(t *testing.T) {
	r := newRuntime(t)
	stdout := bytes.Repeat([]byte("o"), 10<<10)
	stderr := bytes.Repeat([]byte("e"), 10<<10)
	r.answer = func(context.Context, string) (proto.Message, error) {
		return &runtimeapi.ExecSyncResponse{
			ExitCode: 7, Stdout: append(stdout, "more"...), Stderr: stderr}, nil
	}
	r.start(t)
	defer r.kill(t)
	b := newBench(t, r)
	body, err := b.do(&runtimeapi.ExecSyncRequest{}, 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	got := body.(*runtimeapi.ExecSyncResponse)
	if got.ExitCode != 7 || !bytes.Equal(got.Stdout, stdout) || !bytes.Equal(got.Stderr, stderr) {
		t.Errorf("code %d, %d and %d bytes of output, want 7 and 10 KiB of each", got.ExitCode,
			len(got.Stdout), len(got.Stderr))
	}
}

// commandsAreKilled checks on a real runtime what a core cannot see: that a command is really
// gone when its time has run out. The command listens on a port; if it still lived, the second of
// its kind would end at once, because the port is taken.
//
// When it is the effect's deadline that passes first, containerd tries to kill the command in the
// context of the call that has just ended. That mostly works, and nobody promises it.
func commandsAreKilled(t *testing.T, n *node) {
	container := n.running()
	for range 2 {
		body, err := n.Call(&runtimeapi.ExecSyncRequest{
			ContainerId: container, Timeout: 1, Cmd: []string{"/sample", "web", "--port", "9999"},
		})
		if !err.Has(world.KindTimeout) {
			t.Errorf("answered by %v, %v, want Timeout", body, err)
		}
	}
}

// running makes a pod with a container that runs; it goes with the node.
func (n *node) running() (container string) {
	sandbox := n.Sandbox()
	sandbox.Metadata = &runtimeapi.PodSandboxMetadata{Name: "p", Namespace: "cri", Uid: "p"}
	pod := called[*runtimeapi.RunPodSandboxResponse](n, &runtimeapi.RunPodSandboxRequest{
		Config: sandbox})
	config := n.Container(parity.Runs)
	config.Metadata = &runtimeapi.ContainerMetadata{Name: "c"}
	made := called[*runtimeapi.CreateContainerResponse](n, &runtimeapi.CreateContainerRequest{
		PodSandboxId: pod.PodSandboxId, Config: config, SandboxConfig: sandbox})
	called[*runtimeapi.StartContainerResponse](n, &runtimeapi.StartContainerRequest{
		ContainerId: made.ContainerId})
	return made.ContainerId
}

func called[Answer any](n *node, request any) Answer {
	n.t.Helper()
	body, err := n.Call(request)
	if err != nil {
		n.t.Fatal(err)
	}
	return body.(Answer)
}
