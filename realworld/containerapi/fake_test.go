package containerapi

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"

	"seedlet.dev/realworld/porttest"
	"seedlet.dev/world"
)

func TestMain(m *testing.M) {
	// A WebSocket client of client-go, which runs in this process, may leave its heartbeat
	// goroutine.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction(
		"k8s.io/client-go/tools/remotecommand.(*heartbeat).start"))
}

// node is a fake core and runtime with one pod, web in default, of one container, app, and the API
// on top of them.
type node struct {
	t      *testing.T
	dir    string
	api    *API
	server *httptest.Server

	mu              sync.Mutex
	containerAnswer world.ContainerAnswer
	resolveErr      error
	resolved        []world.ContainerRequest
	tty             bool // of the container's spec
	running         map[string]bool
	logs            map[string]string // by container
	statusID        string            // replaces that of the container whose status is asked for
	lists           int
	err             error  // of all calls to the runtime
	url             string // replaces that of the streaming server
	exec            *runtimeapi.ExecRequest
	attach          *runtimeapi.AttachRequest
	forward         *runtimeapi.PortForwardRequest
	execSync        *runtimeapi.ExecSyncResponse
	execSyncRequest *runtimeapi.ExecSyncRequest
	checkpoint      *runtimeapi.CheckpointContainerRequest

	streaming streaming.Server
	secrets   atomic.Int64 // requests to the streaming server with credentials
	process   func(ctx context.Context, in io.Reader, out, errs io.Writer) error
}

const appLog = "default_web_u1/app/0.log"

func newNode(t *testing.T, options ...func(*Options)) *node {
	n := &node{t: t, dir: t.TempDir(), running: map[string]bool{"c1": true},
		logs: map[string]string{}, process: echo}
	n.logs["c1"] = filepath.Join(n.dir, "pods", appLog)
	n.containerAnswer = world.ContainerAnswer{
		UID: "u1", SandboxID: "s1", ContainerID: "c1", Status: &v1.ContainerStatus{
			Name: "app", ContainerID: "containerd://c1",
			State: v1.ContainerState{Running: &v1.ContainerStateRunning{}},
		}}
	opts := Options{
		Resolve: n.resolve, Runtime: n, RuntimeTimeout: 10 * time.Second,
		IdleTimeout: time.Minute, LogsDir: filepath.Join(n.dir, "pods"),
		CheckpointsDir: filepath.Join(n.dir, "checkpoints"),
	}
	for _, o := range options {
		o(&opts)
	}
	n.api = New(opts)
	mux := http.NewServeMux()
	n.api.Register(mux)
	n.server = httptest.NewUnstartedServer(mux)
	n.server.Config.ErrorLog = porttest.ErrorLog(t)
	n.server.Start()
	backend := httptest.NewUnstartedServer(nil)
	backend.Config.ErrorLog = porttest.ErrorLog(t)
	config := streaming.DefaultConfig
	config.StreamCreationTimeout = 5 * time.Second // which TestStreamEnds waits for
	config.BaseURL = &url.URL{Scheme: "http", Host: backend.Listener.Addr().String(), Path: "/"}
	var err error
	if n.streaming, err = streaming.NewServer(config, n.processes()); err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	backend.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		serving.Add(1)
		defer serving.Done()
		if r.Header.Get("Authorization") != "" {
			n.secrets.Add(1)
		}
		n.streaming.ServeHTTP(w, r)
	})
	backend.Start()
	t.Cleanup(func() {
		n.api.Close()
		n.server.CloseClientConnections()
		n.server.Close()
		backend.CloseClientConnections()
		backend.Close()
		serving.Wait() // its handlers run up to a second longer than their connections
		http.DefaultClient.CloseIdleConnections()
	})
	return n
}

func (n *node) resolve(_ context.Context, m world.ContainerRequest) (
	*world.ContainerAnswer, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.resolved = append(n.resolved, m)
	response := n.containerAnswer
	response.TTY = n.tty
	if m.Pod != "web" || m.UID == "u2" {
		response = world.ContainerAnswer{Err: world.Errorf(world.KindNotFound, "ContainerRequest",
			"pod %q does not exist", m.Pod)}
	}
	if m.Container == "none" {
		response = world.ContainerAnswer{UID: "u1", Err: world.Errorf(world.KindNotFound,
			"ContainerRequest", "container %q not found in pod %q", m.Container, m.Pod)}
	}
	return &response, n.resolveErr
}

func (n *node) ListContainers(_ context.Context, m *runtimeapi.ListContainersRequest,
	_ ...grpc.CallOption) (*runtimeapi.ListContainersResponse, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lists++
	response := &runtimeapi.ListContainersResponse{}
	for id, running := range n.running { //ordered: it is a set
		if running && (m.Filter.Id == "" || m.Filter.Id == id) {
			response.Containers = append(response.Containers, &runtimeapi.Container{Id: id})
		}
	}
	return response, n.err
}

func (n *node) ContainerStatus(_ context.Context, m *runtimeapi.ContainerStatusRequest,
	_ ...grpc.CallOption) (*runtimeapi.ContainerStatusResponse, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	path, ok := n.logs[m.ContainerId]
	if !ok {
		return nil, status.Error(codes.NotFound, "no such container")
	}
	state := runtimeapi.ContainerState_CONTAINER_EXITED
	if n.running[m.ContainerId] {
		state = runtimeapi.ContainerState_CONTAINER_RUNNING
	}
	return &runtimeapi.ContainerStatusResponse{
		Status: &runtimeapi.ContainerStatus{Id: cmp.Or(n.statusID, m.ContainerId), LogPath: path,
			State: state},
	}, n.err
}

func (n *node) Exec(_ context.Context, m *runtimeapi.ExecRequest,
	_ ...grpc.CallOption) (*runtimeapi.ExecResponse, error) {
	n.exec = m
	if n.err != nil || n.url != "" {
		return &runtimeapi.ExecResponse{Url: n.url}, n.err
	}
	return n.streaming.GetExec(m)
}

func (n *node) Attach(_ context.Context, m *runtimeapi.AttachRequest,
	_ ...grpc.CallOption) (*runtimeapi.AttachResponse, error) {
	n.attach = m
	if n.err != nil {
		return nil, n.err
	}
	return n.streaming.GetAttach(m)
}

func (n *node) PortForward(_ context.Context, m *runtimeapi.PortForwardRequest,
	_ ...grpc.CallOption) (*runtimeapi.PortForwardResponse, error) {
	n.forward = m
	if n.err != nil {
		return nil, n.err
	}
	return n.streaming.GetPortForward(m)
}

func (n *node) ExecSync(ctx context.Context, m *runtimeapi.ExecSyncRequest,
	_ ...grpc.CallOption) (*runtimeapi.ExecSyncResponse, error) {
	n.execSyncRequest = m
	if n.execSync == nil && n.err == nil {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return n.execSync, n.err
}

func (n *node) CheckpointContainer(_ context.Context, m *runtimeapi.CheckpointContainerRequest,
	_ ...grpc.CallOption) (*runtimeapi.CheckpointContainerResponse, error) {
	n.checkpoint = m
	return &runtimeapi.CheckpointContainerResponse{}, n.err
}

// processes runs the node's process for all streams.
type processes struct{ n *node }

func (n *node) processes() streaming.Runtime { return processes{n} }

func (p processes) Exec(ctx context.Context, _ string, _ []string, in io.Reader,
	out, errs io.WriteCloser, _ bool, _ <-chan remotecommand.TerminalSize) error {
	return p.n.process(ctx, in, out, errs)
}

func (p processes) Attach(ctx context.Context, _ string, in io.Reader,
	out, errs io.WriteCloser, _ bool, _ <-chan remotecommand.TerminalSize) error {
	return p.n.process(ctx, in, out, errs)
}

func (p processes) PortForward(ctx context.Context, _ string, _ int32,
	stream io.ReadWriteCloser) error {
	return p.n.process(ctx, stream, stream, nil)
}

// echo is a process that writes what it reads.
func echo(_ context.Context, in io.Reader, out, _ io.Writer) error {
	_, err := io.Copy(out, in)
	return err
}

// get sends a GET request and returns the code and the body.
func (n *node) get(path string) (int, string) {
	n.t.Helper()
	return n.do(http.MethodGet, path)
}

func (n *node) do(method, path string) (int, string) {
	n.t.Helper()
	r, err := http.NewRequest(method, n.server.URL+path, nil)
	if err != nil {
		n.t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		n.t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		n.t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

// write appends to a file below the directory of logs.
func (n *node) write(name, text string) {
	n.t.Helper()
	path := filepath.Join(n.dir, "pods", name)
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if errors.Is(err, os.ErrNotExist) {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			n.t.Fatal(err)
		}
		f, err = os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	}
	if err == nil {
		_, err = f.WriteString(text)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		n.t.Fatal(err)
	}
}

// end marks a container as ended in the runtime.
func (n *node) end(id string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.running[id] = false
}

func mustContain(t *testing.T, text string, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if !strings.Contains(text, want) {
			t.Errorf("%q does not contain %q", text, want)
		}
	}
}
