package main

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"seedlet.dev/realworld/podresources"
	"seedlet.dev/realworld/porttest"
)

// The agent serves its pods on the socket, also if a killed predecessor left a stale socket.
func TestPodResources(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "manifests", "web.yaml"), pod)
	config := write(t, filepath.Join(dir, "config.yaml"), header+
		"enableServer: false\nstaticPodPath: manifests\npodLogsDir: "+filepath.Join(dir, "logs")+"\n")
	agent := func() *exec.Cmd {
		return command(t, "--config", config, "--root-dir", dir, "--hostname-override", "node-a",
			"--container-runtime-endpoint", "unix://"+filepath.Join(dir, "none.sock"),
			"--healthz-port", fmt.Sprint(freePort(t)))
	}
	for range 2 {
		cmd := agent()
		start(t, cmd)
		if got := awaitPodResources(t, dir); got != "web-node-a" {
			t.Errorf("it tells of %q, want web-node-a", got)
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // it was killed
	}
}

// awaitPodResources returns the name of the first pod that is served on the socket.
func awaitPodResources(t *testing.T, rootDir string) string {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+podresources.Socket(rootDir),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	client := podresourcesv1.NewPodResourcesListerClient(conn)
	for end := time.Now().Add(porttest.Patience); time.Now().Before(end); {
		answer, err := client.List(t.Context(), &podresourcesv1.ListPodResourcesRequest{},
			grpc.WaitForReady(true))
		if err == nil && len(answer.PodResources) > 0 {
			return answer.PodResources[0].Name
		}
		time.Sleep(20 * time.Millisecond)
	}
	return ""
}
