package nodetest

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/realworld/owned"
)

// ownerEnv makes this test binary a process that owns a node and is killed (TestGuard).
const ownerEnv = "SEEDLET_NODE_OWNER"

func TestMain(m *testing.M) {
	if version := os.Getenv(ownerEnv); version != "" {
		own(version)
	}
	os.Exit(m.Run())
}

// own starts a node with a pod, says so, and waits to be killed.
func own(version string) {
	n, err := Start(context.Background(), Options{Version: version})
	if err == nil {
		_, err = startPod(context.Background(), n, "victim")
	}
	fmt.Println(n.Dir, err)
	select {}
}

// startPod runs a pod of one sleeping container and returns the container's id.
func startPod(ctx context.Context, n *Node, name string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	sandbox := &runtimeapi.PodSandboxConfig{
		Metadata:     &runtimeapi.PodSandboxMetadata{Name: name, Uid: name, Namespace: "default"},
		LogDirectory: filepath.Join(n.Dir, "logs", name),
		Linux:        &runtimeapi.LinuxPodSandboxConfig{},
	}
	pod, err := n.Runtime().RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: sandbox})
	if err != nil {
		return "", err
	}
	image := &runtimeapi.ImageSpec{Image: n.Images.Sample}
	pull := &runtimeapi.PullImageRequest{Image: image, SandboxConfig: sandbox}
	if _, err := n.ImageService().PullImage(ctx, pull); err != nil {
		return "", err
	}
	made, err := n.Runtime().CreateContainer(ctx, &runtimeapi.CreateContainerRequest{
		PodSandboxId: pod.PodSandboxId, SandboxConfig: sandbox,
		Config: &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: "main"}, Image: image,
			Args: []string{"sleep", "--ignore-term"}, LogPath: "main.log",
			Linux: &runtimeapi.LinuxContainerConfig{},
		},
	})
	if err != nil {
		return "", err
	}
	_, err = n.Runtime().StartContainer(ctx,
		&runtimeapi.StartContainerRequest{ContainerId: made.ContainerId})
	return made.ContainerId, err
}

// TestNode runs pods on every version, kills and restarts containerd below them, and leaves it
// to the clean-up of New to find what Close forgets.
func TestNode(t *testing.T) {
	for _, version := range Versions() {
		t.Run(version, func(t *testing.T) {
			n := New(t, version)
			id, err := startPod(t.Context(), n, "first")
			if err != nil {
				t.Fatalf("starting a pod: %v", err)
			}
			before := containerStatus(t, n, id)
			if err := n.Kill(); err != nil {
				t.Fatal(err)
			}
			if n.Endpoint == "" || n.daemon.Running() {
				t.Fatal("containerd runs after Kill")
			}
			if err := n.Restart(t.Context()); err != nil {
				t.Fatal(err)
			}
			after := containerStatus(t, n, id)
			if after.State != runtimeapi.ContainerState_CONTAINER_RUNNING ||
				after.StartedAt != before.StartedAt {
				t.Errorf("the container did not live through it: %v, then %v", before, after)
			}
			if !strings.HasPrefix(after.ImageRef, n.registry.Address) &&
				!strings.HasPrefix(after.ImageRef, "sha256:") {
				t.Errorf("image reference %q is not of the loopback registry", after.ImageRef)
			}
			wantReachable(t, n)
		})
	}
}

func containerStatus(t *testing.T, n *Node, id string) *runtimeapi.ContainerStatus {
	t.Helper()
	answer, err := n.Runtime().ContainerStatus(t.Context(),
		&runtimeapi.ContainerStatusRequest{ContainerId: id})
	if err != nil {
		t.Fatal(err)
	}
	return answer.Status
}

// wantReachable checks that the pod has an address of the node's own network.
func wantReachable(t *testing.T, n *Node) {
	t.Helper()
	list, err := n.Runtime().ListPodSandbox(t.Context(), &runtimeapi.ListPodSandboxRequest{})
	if err != nil || len(list.Items) != 1 {
		t.Fatalf("pods: %v, %v; want one", list, err)
	}
	answer, err := n.Runtime().PodSandboxStatus(t.Context(),
		&runtimeapi.PodSandboxStatusRequest{PodSandboxId: list.Items[0].Id})
	if err != nil {
		t.Fatal(err)
	}
	if ip := answer.Status.GetNetwork().GetIp(); !strings.HasPrefix(ip, "10.2") {
		t.Errorf("the pod's address is %q, want one of 10.2xx", ip)
	}
}

// TestGuard kills the owner of a node with a running pod; the guard must remove everything.
func TestGuard(t *testing.T) {
	for _, version := range Versions() {
		t.Run(version, func(t *testing.T) {
			if _, err := findTools(version); err != nil || testing.Short() {
				t.Skipf("a real node is not to be had: %v", err)
			}
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), ownerEnv+"="+version)
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			line, err := bufio.NewReader(out).ReadString('\n')
			killed := cmd.Process.Kill()
			_ = cmd.Wait() // it was killed, which is what it will say
			dir, said, _ := strings.Cut(strings.TrimSpace(line), " ")
			if err != nil || killed != nil || said != "<nil>" {
				t.Fatalf("the owner said %q; %v, %v", line, err, killed)
			}
			wantNothing(t, dir, 20*time.Second)
		})
	}
}

func wantNothing(t *testing.T, dir string, within time.Duration) {
	t.Helper()
	deadline := time.Now().Add(within)
	for {
		left, err := Leftovers(dir)
		if err == nil && len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%v after the owner died there is still %q, %v", within, left, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// TestLeftovers checks that a running node is seen, with all its kinds of parts.
func TestLeftovers(t *testing.T) {
	n := New(t, Debian)
	if _, err := startPod(t.Context(), n, "seen"); err != nil {
		t.Fatal(err)
	}
	left, err := Leftovers(n.Dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"(containerd)", "(containerd-shim)", "(sample)", "mount " + n.Dir,
		"bridge " + owned.BridgeName(n.Dir), "directory " + n.Dir} {
		has := func(line string) bool { return strings.Contains(line, want) }
		if !slices.ContainsFunc(left, has) {
			t.Errorf("a running node has no %q among %q", want, left)
		}
	}
}

func TestStartRefuses(t *testing.T) {
	if _, err := findTools(Debian); err != nil {
		t.Skipf("%v", err)
	}
	foreign := t.TempDir()
	if err := os.WriteFile(filepath.Join(foreign, "thesis.tex"), []byte("…"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		options Options
		want    string
	}{
		{Options{Version: Debian, Dir: foreign}, "holds files that are not a node's"},
		{Options{Version: Debian, Dir: "/tmp/" + strings.Repeat("x", 120)}, "too long for a socket"},
		{Options{Version: "1.7"}, `want "debian", "2.x" or the path of a binary`},
	} {
		_, err := Start(t.Context(), c.options)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("Start(%+v): %v, want %q", c.options, err, c.want)
		}
	}
	if _, err := os.Stat(filepath.Join(foreign, "thesis.tex")); err != nil {
		t.Errorf("a foreign file was touched: %v", err)
	}
}
