package containerapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/remotecommand"
	clientexec "k8s.io/client-go/util/exec"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/realworld/nodetest"
	"seedlet.dev/realworld/porttest"
	"seedlet.dev/world"
)

// The same with a real containerd: its log files, its streaming server, its errors.
func TestContainerd(t *testing.T) {
	n, real := newReal(t)
	t.Run("logs", func(t *testing.T) { testRealLogs(t, n, real) })
	t.Run("follow", func(t *testing.T) { testRealFollow(t, n, real) })
	for _, c := range clients {
		t.Run("exec "+c.name, func(t *testing.T) { testRealExec(t, n, real, c.name, c.dial) })
		t.Run("attach "+c.name, func(t *testing.T) { testRealAttach(t, n, real, c.name, c.dial) })
	}
	for _, tunnel := range []bool{false, true} {
		t.Run(fmt.Sprintf("port-forward tunnel=%v", tunnel), func(t *testing.T) {
			testRealForward(t, n, real, tunnel)
		})
	}
	t.Run("commands", func(t *testing.T) { testRealCommands(t, n, real) })
}

// pod is a sandbox on a real containerd, whose containers are created one by one.
type pod struct {
	t       *testing.T
	node    *nodetest.Node
	config  *runtimeapi.PodSandboxConfig
	sandbox string
}

// newReal starts a containerd with a pod, and the API on top of it.
func newReal(t *testing.T) (*node, *pod) {
	t.Helper()
	real := nodetest.New(t, nodetest.V2)
	n := &node{t: t, dir: real.Dir}
	n.api = New(Options{
		Resolve: n.resolve, Runtime: real.Runtime(), RuntimeTimeout: 30 * time.Second,
		IdleTimeout: time.Minute, LogsDir: filepath.Join(real.Dir, "pods"),
		CheckpointsDir: filepath.Join(real.Dir, "checkpoints"),
	})
	mux := http.NewServeMux()
	n.api.Register(mux)
	n.server = httptest.NewServer(mux)
	t.Cleanup(func() {
		n.api.Close()
		n.server.CloseClientConnections()
		n.server.Close()
		http.DefaultClient.CloseIdleConnections()
	})
	p := &pod{t: t, node: real, config: &runtimeapi.PodSandboxConfig{
		Metadata:     &runtimeapi.PodSandboxMetadata{Name: "web", Uid: "u1", Namespace: "default"},
		LogDirectory: filepath.Join(real.Dir, "pods", "default_web_u1"),
		Linux:        &runtimeapi.LinuxPodSandboxConfig{},
	}}
	created, err := real.Runtime().RunPodSandbox(t.Context(),
		&runtimeapi.RunPodSandboxRequest{Config: p.config})
	if err != nil {
		t.Fatal(err)
	}
	p.sandbox = created.PodSandboxId
	image := &runtimeapi.ImageSpec{Image: real.Images.Sample}
	if _, err := real.ImageService().PullImage(t.Context(),
		&runtimeapi.PullImageRequest{Image: image, SandboxConfig: p.config}); err != nil {
		t.Fatal(err)
	}
	return n, p
}

// start starts a container to which the fake core resolves requests.
func (p *pod) start(n *node, name string, args ...string) string {
	p.t.Helper()
	if err := os.MkdirAll(filepath.Join(p.config.LogDirectory, name), 0o700); err != nil {
		p.t.Fatal(err)
	}
	ctx := p.t.Context()
	created, err := p.node.Runtime().CreateContainer(ctx, &runtimeapi.CreateContainerRequest{
		PodSandboxId: p.sandbox, SandboxConfig: p.config,
		Config: &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: name},
			Image:    &runtimeapi.ImageSpec{Image: p.node.Images.Sample},
			Args:     args, LogPath: name + "/0.log", Stdin: true,
			Linux: &runtimeapi.LinuxContainerConfig{},
		},
	})
	if err == nil {
		_, err = p.node.Runtime().StartContainer(ctx,
			&runtimeapi.StartContainerRequest{ContainerId: created.ContainerId})
	}
	if err != nil {
		p.t.Fatal(err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.containerAnswer = world.ContainerAnswer{
		UID: "u1", SandboxID: p.sandbox, ContainerID: created.ContainerId, Status: &v1.ContainerStatus{
			ContainerID: "containerd://" + created.ContainerId,
			State:       v1.ContainerState{Running: &v1.ContainerStateRunning{}},
		}}
	return created.ContainerId
}

// waitListening waits until a process in the pod listens on a port.
func (p *pod) waitListening(port int) {
	p.t.Helper()
	status, err := p.node.Runtime().PodSandboxStatus(p.t.Context(),
		&runtimeapi.PodSandboxStatusRequest{PodSandboxId: p.sandbox})
	if err != nil {
		p.t.Fatal(err)
	}
	address := net.JoinHostPort(status.Status.Network.Ip, strconv.Itoa(port))
	porttest.Eventually(p.t, "a process listens on "+address, func() bool {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			_ = conn.Close() // the connection was not used
		}
		return err == nil
	})
}

func testRealLogs(t *testing.T, n *node, p *pod) {
	p.start(n, "talk", "talk", "--lines", "1000", "--bytes", "40000")
	porttest.Eventually(t, "all lines are in the log", func() bool {
		_, body := n.get(webLogs)
		return strings.Count(body, "\n") >= 1000
	})
	// Each line is longer than a chunk that the runtime writes.
	_, body := n.get(webLogs + "?timestamps=true")
	for i, line := range strings.SplitAfter(body, "\n")[:1000] {
		begins, _, _ := strings.Cut(line[len(timestampFormat)-len("Z07:00")+1:], ".")
		if !strings.HasSuffix(begins, fmt.Sprintf(" line %d ", i)) || len(line) < 40_000 {
			t.Fatalf("line %d is %q... of %d bytes", i, line[:60], len(line))
		}
	}
	if _, body := n.get(webLogs + "?limitBytes=50"); len(body) != 50 {
		t.Errorf("limited to %q", body)
	}
}

func testRealFollow(t *testing.T, n *node, p *pod) {
	id := p.start(n, "slow", "talk", "--lines", "3000", "--every", "100ms")
	f := n.follow(webLogs + "?follow=true")
	path := filepath.Join(p.config.LogDirectory, "slow/0.log")
	for i := range 3000 {
		if got := f.next(); !strings.HasPrefix(got, fmt.Sprintf("line %d ", i)) {
			t.Fatalf("line %d is %q", i, got)
		}
		if i%500 == 499 { // rotate, as the agent does
			err := os.Rename(path, fmt.Sprintf("%s.%d", path, i))
			if err == nil {
				_, err = p.node.Runtime().ReopenContainerLog(t.Context(),
					&runtimeapi.ReopenContainerLogRequest{ContainerId: id})
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := p.node.Runtime().StopContainer(t.Context(),
		&runtimeapi.StopContainerRequest{ContainerId: id, Timeout: 5}); err != nil {
		t.Fatal(err)
	}
	f.expect("the end")
	if _, err := p.node.Runtime().RemoveContainer(t.Context(),
		&runtimeapi.RemoveContainerRequest{ContainerId: id}); err != nil {
		t.Fatal(err)
	}
	if code, body := n.get(webLogs); code != 400 || !strings.Contains(body, "unable to retrieve") {
		t.Errorf("removed container: %d %q", code, body)
	}
}

type dial = func(*testing.T, *node, string) remotecommand.Executor

func testRealExec(t *testing.T, n *node, p *pod, name string, dial dial) {
	p.start(n, "shell-"+name, "sleep")
	var out bytes.Buffer
	long := strings.Repeat("0123456789abcdef", 1<<16) // 1 MiB
	err := dial(t, n, "/exec/default/web/app?command=/sample&command=echo&input=1&output=1").
		StreamWithContext(t.Context(), remotecommand.StreamOptions{
			Stdin: strings.NewReader(long), Stdout: &out})
	if err != nil || out.String() != long {
		t.Errorf("%d bytes came back, %v", out.Len(), err)
	}
	err = dial(t, n, "/exec/default/web/app?command=/sample&command=exit&command=--code&command=3"+
		"&output=1&tty=1").
		StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdout: &out, Tty: true})
	if exit, ok := errors.AsType[clientexec.CodeExitError](err); !ok || exit.Code != 3 {
		t.Errorf("got %v", err)
	}
	err = dial(t, n, "/exec/default/web/app?command=/none&output=1").
		StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdout: &out})
	if err == nil || !strings.Contains(err.Error(), "/none") {
		t.Errorf("missing command: %v", err)
	}
}

func testRealAttach(t *testing.T, n *node, p *pod, name string, dial dial) {
	p.start(n, "echo-"+name, "echo")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	in, feed := io.Pipe()
	out, sink := io.Pipe()
	done := make(chan error, 1)
	go func() {
		done <- dial(t, n, "/attach/default/web/app?input=1&output=1").
			StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: in, Stdout: sink})
	}()
	go func() { _, _ = io.WriteString(feed, "hello") }()
	response := make([]byte, 5)
	if _, err := io.ReadFull(out, response); err != nil || string(response) != "hello" {
		t.Errorf("%q, %v", response, err)
	}
	cancel()
	<-done
	feed.Close()
	out.Close()
	porttest.Eventually(t, "the stream has ended", func() bool {
		return n.api.streams.used() == 0
	})
}

func testRealForward(t *testing.T, n *node, p *pod, tunnel bool) {
	if !tunnel {
		p.start(n, "page", "web", "--port", "80")
		p.waitListening(80) // client-go gives up after the first refused connection
	}
	address := forward(t, n, tunnel)
	porttest.Eventually(t, "a page", func() bool {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "GET / HTTP/1.0\r\n\r\n")
		page, _ := io.ReadAll(conn)
		return strings.Contains(string(page), "200 OK")
	})
}

func testRealCommands(t *testing.T, n *node, p *pod) {
	const run = "/run/default/web/app?cmd="
	code, body := n.do("POST", run+"/sample%20exit")
	if code != 200 || body != "exiting with 0 after 0s\n" {
		t.Errorf("%d %q", code, body)
	}
	code, body = n.do("POST", run+"/sample%20nonsense")
	if code != 500 || !strings.Contains(body, "exited with 2: sample: the first argument") {
		t.Errorf("%d %q", code, body)
	}
	code, body = n.do("POST", "/checkpoint/default/web/app")
	if code != 200 && !strings.HasPrefix(body, "checkpointing of default/web/app failed (") {
		t.Errorf("%d %q", code, body)
	}
	id := n.containerAnswer.ContainerID
	if _, err := p.node.Runtime().StopContainer(t.Context(),
		&runtimeapi.StopContainerRequest{ContainerId: id}); err != nil {
		t.Fatal(err)
	}
	if code, body := n.do("POST", run+"/sample%20exit"); code != 500 {
		t.Errorf("ended container: %d %q", code, body)
	}
	response, _ := upgrade(t, n, "/exec/default/web/app?command=a&output=1")
	if response.StatusCode != 500 && response.StatusCode != 404 {
		t.Errorf("exec in an ended container: %d", response.StatusCode)
	}
}
