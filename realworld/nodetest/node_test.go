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

	"seedlet.dev/realworld/cleanup"
	"seedlet.dev/realworld/porttest"
)

// ownerEnv is the environment variable that makes this test binary a process that owns a node, to
// be killed (TestGuard). Its value is the version of containerd.
const ownerEnv = "SEEDLET_NODE_OWNER"

func TestMain(m *testing.M) {
	if version := os.Getenv(ownerEnv); version != "" {
		runNodeOwner(version)
	}
	os.Exit(m.Run())
}

// runNodeOwner starts a node with a pod, prints the node's directory and the error, and waits to be
// killed.
func runNodeOwner(version string) {
	n, err := Start(context.Background(), Options{Version: version})
	if err == nil {
		_, err = startPod(context.Background(), n, "victim")
	}
	fmt.Println(n.Dir, err)
	select {}
}

// startPod runs a pod of one sleeping container and returns the container's id.
func startPod(ctx context.Context, n *Node, name string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, porttest.Patience)
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
	created, err := n.Runtime().CreateContainer(ctx, &runtimeapi.CreateContainerRequest{
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
		&runtimeapi.StartContainerRequest{ContainerId: created.ContainerId})
	return created.ContainerId, err
}

// TestNode runs a pod on every version, and kills and restarts containerd meanwhile. The clean-up
// of New fails the test if Close leaves anything.
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
				t.Fatal("containerd still runs after Kill")
			}
			if err := n.Restart(t.Context()); err != nil {
				t.Fatal(err)
			}
			after := containerStatus(t, n, id)
			if after.State != runtimeapi.ContainerState_CONTAINER_RUNNING ||
				after.StartedAt != before.StartedAt {
				t.Errorf("the container did not survive the restart of containerd: %v, then %v", before,
					after)
			}
			if !strings.HasPrefix(after.ImageRef, n.registry.Address) &&
				!strings.HasPrefix(after.ImageRef, "sha256:") {
				t.Errorf("image reference %q is not from the loopback registry", after.ImageRef)
			}
			checkReachable(t, n)
		})
	}
}

func containerStatus(t *testing.T, n *Node, id string) *runtimeapi.ContainerStatus {
	t.Helper()
	response, err := n.Runtime().ContainerStatus(t.Context(),
		&runtimeapi.ContainerStatusRequest{ContainerId: id})
	if err != nil {
		t.Fatal(err)
	}
	return response.Status
}

// checkReachable checks that the pod has an address in the node's own network.
func checkReachable(t *testing.T, n *Node) {
	t.Helper()
	list, err := n.Runtime().ListPodSandbox(t.Context(), &runtimeapi.ListPodSandboxRequest{})
	if err != nil || len(list.Items) != 1 {
		t.Fatalf("pods: %v, %v; want one", list, err)
	}
	response, err := n.Runtime().PodSandboxStatus(t.Context(),
		&runtimeapi.PodSandboxStatusRequest{PodSandboxId: list.Items[0].Id})
	if err != nil {
		t.Fatal(err)
	}
	if ip := response.Status.GetNetwork().GetIp(); !strings.HasPrefix(ip, "10.2") {
		t.Errorf("the pod's address is %q, want one of 10.2xx", ip)
	}
}

// TestGuard kills the owner of a node with a running pod; the guard must remove everything.
func TestGuard(t *testing.T) {
	for _, version := range Versions() {
		t.Run(version, func(t *testing.T) {
			if _, err := findTools(version); err != nil || testing.Short() {
				t.Skipf("a real node is not available: %v", err)
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
			_ = cmd.Wait() // the error is that of a killed process
			dir, startErr, _ := strings.Cut(strings.TrimSpace(line), " ")
			if err != nil || killed != nil || startErr != "<nil>" {
				t.Fatalf("the owner printed %q; %v, %v", line, err, killed)
			}
			waitNothingLeft(t, dir, porttest.Patience)
		})
	}
}

// waitNothingLeft waits until a node whose owner was killed has left nothing.
func waitNothingLeft(t *testing.T, dir string, within time.Duration) {
	t.Helper()
	deadline := time.Now().Add(within)
	for {
		left, err := Leftovers(dir)
		if err == nil && len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%v after the owner was killed, %q is left, %v", within, left, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// TestPowerOff: after a power failure nothing of a pod is left but what is on the disk. The next
// boot finds its container exited and its sandbox not ready, and runs other pods.
func TestPowerOff(t *testing.T) {
	for _, version := range Versions() {
		t.Run(version, func(t *testing.T) {
			n := New(t, version)
			id, err := startPod(t.Context(), n, "first")
			if err != nil {
				t.Fatalf("starting a pod: %v", err)
			}
			if err := n.PowerOff(); err != nil {
				t.Fatal(err)
			}
			left, err := n.PodLeftovers()
			if err != nil {
				t.Fatal(err)
			}
			for _, line := range left {
				if !strings.HasPrefix(line, "file /var/lib/") && !strings.HasPrefix(line, "address ") {
					t.Errorf("left without power: %s", line)
				}
			}
			if err := n.Restart(t.Context()); err != nil {
				t.Fatal(err)
			}
			if s := containerStatus(t, n, id); s.State != runtimeapi.ContainerState_CONTAINER_EXITED {
				t.Errorf("the container is %v", s)
			}
			list, err := n.Runtime().ListPodSandbox(t.Context(), &runtimeapi.ListPodSandboxRequest{})
			if err != nil || len(list.Items) != 1 ||
				list.Items[0].State != runtimeapi.PodSandboxState_SANDBOX_NOTREADY {
				t.Errorf("sandboxes: %v, %v; want one that is not ready", list, err)
			}
			if _, err := startPod(t.Context(), n, "second"); err != nil {
				t.Errorf("starting another pod: %v", err)
			}
		})
	}
}

// TestLeftovers checks that Leftovers lists every kind of part of a running node.
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
		"bridge " + cleanup.BridgeName(n.Dir), "directory " + n.Dir} {
		matches := func(line string) bool { return strings.Contains(line, want) }
		if !slices.ContainsFunc(left, matches) {
			t.Errorf("Leftovers of a running node has no %q: %q", want, left)
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
		t.Errorf("a file that is not the node's was removed: %v", err)
	}
}
