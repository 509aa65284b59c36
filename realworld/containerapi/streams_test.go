package containerapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
	clientexec "k8s.io/client-go/util/exec"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/exec"

	"seedlet.dev/realworld/porttest"
	"seedlet.dev/world"
)

// clients are the protocols of kubectl: it tries WebSocket first; older versions use SPDY.
var clients = []struct {
	name string
	dial func(*testing.T, *node, string) remotecommand.Executor
}{
	{"spdy", func(t *testing.T, n *node, path string) remotecommand.Executor {
		u, err := url.Parse(n.server.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		e, err := remotecommand.NewSPDYExecutor(&rest.Config{Host: n.server.URL}, "POST", u)
		if err != nil {
			t.Fatal(err)
		}
		return e
	}},
	{"websocket", func(t *testing.T, n *node, path string) remotecommand.Executor {
		e, err := remotecommand.NewWebSocketExecutor(&rest.Config{Host: n.server.URL}, "GET",
			n.server.URL+path)
		if err != nil {
			t.Fatal(err)
		}
		return e
	}},
}

// expectWebSockets checks that at least one request over WebSocket was counted for a subresource,
// or none, and none for the others.
func (n *node) expectWebSockets(t *testing.T, subresource string, counted bool) {
	t.Helper()
	for _, m := range n.api.Metrics() {
		if m.Name != "kubelet_websocket_streaming_requests_total" {
			continue
		}
		label := m.Labels[0].Value
		if want := counted && label == subresource; (m.Value > 0) != want {
			t.Errorf("%v requests of %s over WebSocket, want some: %t", m.Value, label, want)
		}
	}
}

func TestExec(t *testing.T) {
	for _, c := range clients {
		t.Run(c.name, func(t *testing.T) {
			n := newNode(t)
			n.process = func(_ context.Context, in io.Reader, out, errs io.Writer) error {
				_, err := io.Copy(out, in)
				_, _ = io.WriteString(errs, "trouble")
				return errors.Join(err, nil)
			}
			var out, errs bytes.Buffer
			const path = "/exec/default/web/u1/app?command=a&command=b%20c&input=1&output=1&error=1"
			err := c.dial(t, n, path).
				StreamWithContext(t.Context(), remotecommand.StreamOptions{
					Stdin: strings.NewReader("hello"), Stdout: &out, Stderr: &errs})
			if err != nil || out.String() != "hello" || errs.String() != "trouble" {
				t.Errorf("%q, %q, %v", &out, &errs, err)
			}
			want := &runtimeapi.ExecRequest{ContainerId: "c1", Cmd: []string{"a", "b c"},
				Stdin: true, Stdout: true, Stderr: true}
			if diff := cmp.Diff(want, n.exec, protocmp.Transform()); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			n.expectWebSockets(t, "exec", c.name == "websocket")
			wantRequest := world.ContainerRequest{
				Namespace: "default", Pod: "web", UID: "u1", Container: "app"}
			if diff := cmp.Diff(wantRequest, n.resolved[0]); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// The runtime does not get the token that a client sent besides its certificate.
func TestCredentialsStayHere(t *testing.T) {
	n := newNode(t)
	u, err := url.Parse(n.server.URL + "/exec/default/web/app?command=a&output=1")
	if err != nil {
		t.Fatal(err)
	}
	config := &rest.Config{Host: n.server.URL, BearerToken: "secret"}
	overSPDY, err := remotecommand.NewSPDYExecutor(config, "POST", u)
	if err != nil {
		t.Fatal(err)
	}
	overWebSocket, err := remotecommand.NewWebSocketExecutor(config, "GET", u.String())
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range []remotecommand.Executor{overSPDY, overWebSocket} {
		err := e.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdout: io.Discard})
		if err != nil {
			t.Error(err)
		}
	}
	if sent := n.secrets.Load(); sent != 0 {
		t.Errorf("%d requests to the runtime with the client's token", sent)
	}
}

func TestExecFails(t *testing.T) {
	for _, c := range clients {
		t.Run(c.name, func(t *testing.T) {
			n := newNode(t)
			n.process = func(context.Context, io.Reader, io.Writer, io.Writer) error {
				return exec.CodeExitError{Err: errors.New("exit status 7"), Code: 7}
			}
			var out bytes.Buffer
			err := c.dial(t, n, "/exec/default/web/app?command=a&output=1&tty=1").
				StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdout: &out, Tty: true})
			if exit, ok := errors.AsType[clientexec.CodeExitError](err); !ok || exit.Code != 7 {
				t.Errorf("got %v", err)
			}
			if !n.exec.Tty || n.exec.Stderr {
				t.Errorf("request %v", n.exec)
			}
		})
	}
}

func TestAttach(t *testing.T) {
	for _, c := range clients {
		t.Run(c.name, func(t *testing.T) {
			n := newNode(t)
			n.tty = true // of the container, whatever the client requests
			var out bytes.Buffer
			err := c.dial(t, n, "/attach/default/web/app?input=1&output=1").
				StreamWithContext(t.Context(), remotecommand.StreamOptions{
					Stdin: strings.NewReader("hello"), Stdout: &out, Tty: true})
			if err != nil || out.String() != "hello" {
				t.Errorf("%q, %v", &out, err)
			}
			n.expectWebSockets(t, "attach", c.name == "websocket")
			want := &runtimeapi.AttachRequest{ContainerId: "c1", Tty: true, Stdin: true, Stdout: true}
			if diff := cmp.Diff(want, n.attach, protocmp.Transform()); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// forward forwards a local port and returns its address.
func forward(t *testing.T, n *node, tunnel bool) string {
	t.Helper()
	u, err := url.Parse(n.server.URL + "/portForward/default/web")
	if err != nil {
		t.Fatal(err)
	}
	config := &rest.Config{Host: n.server.URL}
	transport, upgrader, err := spdy.RoundTripperFor(config)
	if err != nil {
		t.Fatal(err)
	}
	dialer := spdy.NewDialer(upgrader, &http.Client{Transport: transport}, "POST", u)
	if tunnel {
		if dialer, err = portforward.NewSPDYOverWebsocketDialer(u, config); err != nil {
			t.Fatal(err)
		}
	}
	stop, ready := make(chan struct{}), make(chan struct{})
	forwarder, err := portforward.NewOnAddresses(dialer, []string{"127.0.0.1"}, []string{"0:80"},
		stop, ready, io.Discard, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- forwarder.ForwardPorts() }()
	t.Cleanup(func() { close(stop); <-done })
	select {
	case <-ready:
	case err := <-done:
		done <- nil
		t.Fatal(err)
	case <-time.After(porttest.Patience):
		t.Fatal("the forwarder does not get ready")
	}
	ports, err := forwarder.GetPorts()
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("127.0.0.1:%d", ports[0].Local)
}

func TestPortForward(t *testing.T) {
	for _, tunnel := range []bool{false, true} {
		t.Run(fmt.Sprintf("tunnel=%v", tunnel), func(t *testing.T) {
			n := newNode(t)
			conn, err := net.Dial("tcp", forward(t, n, tunnel))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			_, err = io.WriteString(conn, "hello")
			response := make([]byte, 5)
			_, readErr := io.ReadFull(conn, response)
			if err != nil || readErr != nil || string(response) != "hello" {
				t.Errorf("%q, %v, %v", response, err, readErr)
			}
			n.expectWebSockets(t, "portforward", tunnel)
			if n.forward.PodSandboxId != "s1" {
				t.Errorf("request %v", n.forward)
			}
		})
	}
}

// upgrade requests a stream and returns the response, and a function that closes the connection.
func upgrade(t *testing.T, n *node, path string) (*http.Response, func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, "POST", n.server.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Connection", "Upgrade")
	r.Header.Set("Upgrade", "SPDY/3.1")
	r.Header.Set("X-Stream-Protocol-Version", "v4.channel.k8s.io")
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	disconnect := func() { cancel(); response.Body.Close() }
	t.Cleanup(disconnect)
	return response, disconnect
}

func TestStreamErrors(t *testing.T) {
	const execPath = "/exec/default/web/app?command=a&output=1"
	cases := []struct {
		name  string
		setUp func(*node)
		path  string
		code  int
		want  string
	}{
		{"no stream", nil, "/exec/default/web/app?command=a", 400, "at least 1 of stdin, stdout"},
		{"tty and error", nil, "/attach/default/web/app?error=1&tty=1", 400, "at least 1 of"},
		{"no command", nil, "/exec/default/web/app?output=1", 400, "specify a command"},
		{"bad name", nil, "/exec/default/..%2fweb/app?command=a&output=1", 400, "pod name: "},
		{"bad uid", nil, "/exec/default/web/a%2fb/app?command=a&output=1", 400, "uid: "},
		{"long uid", nil, "/portForward/default/web/" + strings.Repeat("a", 200), 400, "uid: "},
		{"not made", func(n *node) { n.containerAnswer.ContainerID = "" }, execPath, 500,
			`container not found ("app")`},
		{"over", func(n *node) {
			n.containerAnswer.Status.State = v1.ContainerState{Terminated: &v1.ContainerStateTerminated{
				ContainerID: "containerd://c1"}}
		}, execPath, 500, `container not found ("app")`},
		{"over, and waiting to be restarted", func(n *node) {
			n.containerAnswer.Status.State = v1.ContainerState{Waiting: &v1.ContainerStateWaiting{}}
			n.containerAnswer.Status.LastTerminationState.Terminated = &v1.ContainerStateTerminated{
				ContainerID: "containerd://c1"}
		}, "/attach/default/web/app?output=1", 500, "container app not found in pod web_default\n"},
		{"no sandbox", func(n *node) { n.containerAnswer.SandboxID = "" },
			"/portForward/default/web", 500,
			`pod not found ("web_default")`},
		{"ended", func(n *node) { n.err = status.Error(codes.NotFound, "not running") }, execPath,
			404, "not running"},
		{"too many", func(n *node) { n.err = status.Error(codes.ResourceExhausted, "many") },
			execPath, 429, "many"},
		{"away", func(n *node) { n.err = errors.New("the runtime is away") },
			"/attach/default/web/app?output=1", 500, "the runtime is away"},
		{"core silent", func(n *node) { n.resolveErr = errors.New("the agent does not answer") },
			execPath, 503, "the agent does not answer"},
		{"relative", func(n *node) { n.url = "/cri/exec/token" }, execPath, 500, "leads nowhere"},
		{"other scheme", func(n *node) { n.url = "file://host/etc" }, execPath, 500, "leads nowhere"},
		{"no listener", func(n *node) { n.url = "//127.0.0.1:1/exec/token" }, execPath, 500,
			"connection refused"},
		{"full", func(n *node) { n.api.streams.max = 0 }, execPath, 503, "0 requests for streams"},
		{"gone", func(n *node) { n.url = n.server.URL + "/none" }, execPath, 404, ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			n := newNode(t)
			if c.setUp != nil {
				c.setUp(n)
			}
			response, _ := upgrade(t, n, c.path)
			body, err := io.ReadAll(response.Body)
			if err != nil || response.StatusCode != c.code || !strings.Contains(string(body), c.want) {
				t.Errorf("%d %q %v, want %d %q", response.StatusCode, body, err, c.code, c.want)
			}
		})
	}
	n := newNode(t)
	for _, method := range []string{"GET", "POST"} {
		code, body := n.do(method, execPath)
		if code != 400 || !strings.Contains(body, "Upgrade request required") || n.exec != nil {
			t.Errorf("without an upgrade: %d %q", code, body)
		}
	}
}

// The texts for names and UIDs that stand for nothing are the kubelet's.
func TestStreamsOfMissingPods(t *testing.T) {
	n := newNode(t)
	for _, c := range []struct {
		path string
		code int
		want string
	}{
		{"/exec/default/other/app?command=a&output=1", 404, "pod does not exist"},
		{"/exec/default/other/u2/app?command=a&output=1", 404, "pod does not exist"},
		{"/exec/default/web/none?command=a&output=1", 500, `container not found ("none")`},
		{"/exec/default/web/u2/app?command=a&output=1", 500, `container not found ("app")`},
		{"/attach/default/other/app?output=1", 404, "pod does not exist"},
		{"/attach/default/web/none?output=1", 500, "container none not found in pod web_default"},
		{"/attach/default/web/u2/app?output=1", 500, "container app not found in pod web_default"},
		{"/portForward/default/other", 404, "pod does not exist"},
		{"/portForward/default/web/u2", 404, "pod not found"},
	} {
		response, _ := upgrade(t, n, c.path)
		body, err := io.ReadAll(response.Body)
		if err != nil || response.StatusCode != c.code || string(body) != c.want+"\n" {
			t.Errorf("%s: %d %q %v, want %d %q", c.path, response.StatusCode, body, err, c.code, c.want)
		}
	}
}

// A WebSocket client of port-forward names its ports in the query.
func TestPortForwardPorts(t *testing.T) {
	n := newNode(t)
	request := func(query string) (int, string) {
		r, err := http.NewRequest("GET", n.server.URL+"/portForward/default/web?"+query, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Connection", "Upgrade")
		r.Header.Set("Upgrade", "websocket")
		r.Header.Set("Sec-WebSocket-Version", "13")
		r.Header.Set("Sec-WebSocket-Key", "AQIDBAUGBwgJCgsMDQ4PEA==")
		r.Header.Set("Sec-WebSocket-Protocol", "v4.channel.k8s.io")
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		if response.StatusCode == http.StatusSwitchingProtocols {
			return response.StatusCode, ""
		}
		body, _ := io.ReadAll(response.Body)
		return response.StatusCode, string(body)
	}
	for query, want := range map[string]string{
		"": "required", "port=": "cannot be empty", "port=x": "unable to parse", "port=0": "> 0",
		"port=65536": "unable to parse",
	} {
		if code, body := request(query); code != 400 || !strings.Contains(body, want) {
			t.Errorf("%q gives %d %q", query, code, body)
		}
	}
	code, _ := request("port=80,81&port=82")
	if diff := cmp.Diff([]int32{80, 81, 82}, n.forward.GetPort()); code != 101 || diff != "" {
		t.Errorf("%d, -want +got:\n%s", code, diff)
	}
}

// blockProcess makes the node's process run until its input ends.
func blockProcess(n *node, running *atomic.Int64) {
	n.process = func(_ context.Context, in io.Reader, _, _ io.Writer) error {
		running.Add(1)
		defer running.Add(-1)
		_, err := io.Copy(io.Discard, in)
		return err
	}
}

// A client that disconnects at any time leaves nothing running.
func TestStreamClientDisconnects(t *testing.T) {
	for _, c := range clients {
		t.Run(c.name, func(t *testing.T) {
			n := newNode(t)
			var running atomic.Int64
			blockProcess(n, &running)
			ctx, cancel := context.WithCancel(t.Context())
			in, never := io.Pipe()
			done := make(chan error, 1)
			e := c.dial(t, n, "/exec/default/web/app?command=a&input=1&output=1")
			go func() {
				done <- e.StreamWithContext(ctx, remotecommand.StreamOptions{
					Stdin: in, Stdout: io.Discard})
			}()
			porttest.Eventually(t, "the process runs", func() bool { return running.Load() == 1 })
			cancel()
			<-done
			never.Close()
			porttest.Eventually(t, "the process ends", func() bool { return running.Load() == 0 })
			porttest.Eventually(t, "the stream has ended", func() bool {
				return n.api.streams.used() == 0
			})
		})
	}
}

// Streams end when the API is closed, and when no data moves, unless that may be for ever.
func TestStreamEnds(t *testing.T) {
	quick := func(o *Options) { o.IdleTimeout = 100 * time.Millisecond }
	endless := func(o *Options) { o.IdleTimeout = math.MaxInt64 }
	for name, setUp := range map[string]struct {
		options func(*Options)
		act     func(*node)
	}{
		"idle":   {quick, func(*node) {}},
		"closed": {func(*Options) {}, func(n *node) { n.api.Close() }},
		"endless": {endless, func(n *node) {
			time.Sleep(100 * time.Millisecond)
			if n.api.streams.used() != 1 {
				n.t.Error("it has ended")
			}
			n.api.Close()
		}},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, setUp.options)
			response, _ := upgrade(t, n, "/exec/default/web/app?command=a&input=1&output=1")
			if response.StatusCode != http.StatusSwitchingProtocols {
				t.Fatalf("got %d", response.StatusCode)
			}
			setUp.act(n)
			_, _ = io.Copy(io.Discard, response.Body)
			porttest.Eventually(t, "the stream has ended", func() bool {
				return n.api.streams.used() == 0
			})
		})
	}
}

// If the streaming server accepts a connection and never responds, or not wholly, the request ends
// with its client.
func TestBackendDoesNotRespond(t *testing.T) {
	protocols := map[string]string{"SPDY/3.1": "", "websocket": "v5.channel.k8s.io"}
	for protocol, version := range protocols {
		for name, begin := range map[string]string{
			"silent": "", "in the middle": "HTTP/1.1 101 Switching Protocols\r\nUpgrade:",
		} {
			t.Run(protocol+", "+name, func(t *testing.T) {
				expectEndWithClient(t, protocol, version, begin)
			})
		}
	}
}

func expectEndWithClient(t *testing.T, protocol, version, begin string) {
	n := newNode(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	n.url = "http://" + listener.Addr().String() + "/exec/token"
	client, err := net.Dial("tcp", n.server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	_, err = fmt.Fprintf(client, "GET /exec/default/web/app?command=a&output=1 HTTP/1.1\r\n"+
		"Host: n\r\nConnection: Upgrade\r\nUpgrade: %s\r\nSec-WebSocket-Version: 13\r\n"+
		"Sec-WebSocket-Key: AQIDBAUGBwgJCgsMDQ4PEA==\r\nSec-WebSocket-Protocol: %s\r\n\r\n",
		protocol, version)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, begin); err != nil {
		t.Fatal(err)
	}
	if n.api.streams.used() != 1 {
		t.Error("the stream does not hold its slot")
	}
	_ = client.Close() // it is only to be gone
	porttest.Eventually(t, "the stream has ended", func() bool {
		return n.api.streams.used() == 0
	})
}

func TestRun(t *testing.T) {
	n := newNode(t)
	n.execSync = &runtimeapi.ExecSyncResponse{Stdout: []byte("out"), Stderr: []byte("err")}
	expect := func(path string, code int, want string) {
		t.Helper()
		if got, body := n.do("POST", path); got != code || !strings.Contains(body, want) {
			t.Errorf("%s gives %d %q, want %d %q", path, got, body, code, want)
		}
	}
	const run = "/run/default/web/app?cmd=ls%20-l"
	expect(run, 200, "outerr")
	diff := cmp.Diff([]string{"ls", "-l"}, n.execSyncRequest.Cmd)
	if diff != "" || n.execSyncRequest.ContainerId != "c1" {
		t.Errorf("-want +got:\n%s", diff)
	}
	expect("/run/default/web/u1/app?cmd=ls", 200, "outerr")
	n.execSync.ExitCode = 3
	expect(run, 500, "command 'ls -l' exited with 3: err")
	expect("/run/default/web/app", 400, "cmd is empty")
	expect("/run/default/other/app?cmd=ls", 404, "pod does not exist")
	expect("/run/default/web/none?cmd=ls", 500, `container not found ("none")`)
	expect("/run/default/Web/app?cmd=ls", 400, "pod name: ")
	n.err = status.Error(codes.Unavailable, "the runtime is away")
	expect(run, 500, "the runtime is away")
	n.containerAnswer.ContainerID = ""
	expect(run, 500, `container not found ("app")`)
	if code, _ := n.get(run); code != http.StatusMethodNotAllowed {
		t.Errorf("GET gives %d", code)
	}
}

// A command without an end is ended when its client disconnects.
func TestRunClientDisconnects(t *testing.T) {
	n := newNode(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		r, _ := http.NewRequestWithContext(ctx, "POST",
			n.server.URL+"/run/default/web/app?cmd=a", nil)
		if response, err := http.DefaultClient.Do(r); err == nil {
			response.Body.Close()
		}
	}()
	porttest.Eventually(t, "the command runs", func() bool {
		return n.api.commands.used() == 1
	})
	cancel()
	<-done
	porttest.Eventually(t, "the command has ended", func() bool {
		return n.api.commands.used() == 0
	})
}

func TestCheckpoint(t *testing.T) {
	n := newNode(t)
	const path = "/checkpoint/default/web/app"
	code, body := n.do("POST", path+"?timeout=1&timeout=60")
	begins := `{"items":["` + n.dir + "/checkpoints/checkpoint-web_default-app-2"
	if code != 200 || !strings.HasPrefix(body, begins) ||
		!strings.HasSuffix(body, `.tar"]}`) {
		t.Errorf("%d %q", code, body)
	}
	if n.checkpoint.ContainerId != "c1" || n.checkpoint.Timeout != 60 ||
		!strings.Contains(body, n.checkpoint.Location) {
		t.Errorf("request %v", n.checkpoint)
	}
	expect := func(path string, code int, want string) {
		t.Helper()
		if got, body := n.do("POST", path); got != code || !strings.Contains(body, want) {
			t.Errorf("%s gives %d %q, want %d %q", path, got, body, code, want)
		}
	}
	expect(path, 200, "items")
	if n.checkpoint.Timeout != 10 { // the timeout of every call
		t.Errorf("timeout %d", n.checkpoint.Timeout)
	}
	expect(path+"?timeout=x", 404, "cannot parse value of timeout parameter")
	expect(path+"?timeout=-1", 400, "timeout: must be between 0 and 86400")
	expect("/checkpoint/default/other/app", 404, "pod does not exist")
	expect("/checkpoint/default/web/none", 404, "container none does not exist")
	expect("/checkpoint/default/web/..%2f..%2fapp", 400, "container name: ")
	n.err = status.Error(codes.Unimplemented, "not here")
	expect(path, 500, "checkpointing of default/web/app failed (rpc error: code = Unimplemented")
	n.containerAnswer.ContainerID = ""
	expect(path, 500, "checkpointing of default/web/app failed (container not found)")
	off := newNode(t, func(o *Options) { o.NoCheckpoints = true })
	if code, _ := off.do("POST", path); code != 404 {
		t.Errorf("checkpoints disabled: %d", code)
	}
}
