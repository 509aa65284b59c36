package containerapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
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

	"seedlet.dev/world"
)

// clients are the ways in which kubectl speaks: it tries WebSocket first, and older ones SPDY.
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
			asked := world.ContainerRequest{
				Namespace: "default", Pod: "web", UID: "u1", Container: "app"}
			if diff := cmp.Diff(asked, n.asked[0]); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
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
				t.Errorf("asked for %v", n.exec)
			}
		})
	}
}

func TestAttach(t *testing.T) {
	for _, c := range clients {
		t.Run(c.name, func(t *testing.T) {
			n := newNode(t)
			n.tty = true // of the container, whatever the client says
			var out bytes.Buffer
			err := c.dial(t, n, "/attach/default/web/app?input=1&output=1").
				StreamWithContext(t.Context(), remotecommand.StreamOptions{
					Stdin: strings.NewReader("hello"), Stdout: &out, Tty: true})
			if err != nil || out.String() != "hello" {
				t.Errorf("%q, %v", &out, err)
			}
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
	case <-time.After(20 * time.Second):
		t.Fatal("not ready within 20 s")
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
			answer := make([]byte, 5)
			_, readErr := io.ReadFull(conn, answer)
			if err != nil || readErr != nil || string(answer) != "hello" {
				t.Errorf("%q, %v, %v", answer, err, readErr)
			}
			if n.forward.PodSandboxId != "s1" {
				t.Errorf("asked for %v", n.forward)
			}
		})
	}
}

// upgrade asks for a stream and returns the answer, and what ends the connection.
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
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	leave := func() { cancel(); answer.Body.Close() }
	t.Cleanup(leave)
	return answer, leave
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
		{"no pod", nil, "/exec/default/other/app?command=a&output=1", 404, `pod "other" not found`},
		{"not made", func(n *node) { n.answer.ContainerID = "" }, execPath, 500,
			`container not found ("app")`},
		{"over", func(n *node) {
			n.answer.Status.State = v1.ContainerState{Terminated: &v1.ContainerStateTerminated{
				ContainerID: "containerd://c1"}}
		}, execPath, 500, `container not found ("app")`},
		{"over, and waiting to be restarted", func(n *node) {
			n.answer.Status.State = v1.ContainerState{Waiting: &v1.ContainerStateWaiting{}}
			n.answer.Status.LastTerminationState.Terminated = &v1.ContainerStateTerminated{
				ContainerID: "containerd://c1"}
		}, "/attach/default/web/app?output=1", 500, `container not found ("app")`},
		{"no sandbox", func(n *node) { n.answer.SandboxID = "" }, "/portForward/default/web", 500,
			`pod not found ("web_default")`},
		{"ended", func(n *node) { n.err = status.Error(codes.NotFound, "not running") }, execPath,
			404, "not running"},
		{"too many", func(n *node) { n.err = status.Error(codes.ResourceExhausted, "many") },
			execPath, 429, "many"},
		{"away", func(n *node) { n.err = errors.New("the runtime is away") },
			"/attach/default/web/app?output=1", 500, "the runtime is away"},
		{"core silent", func(n *node) { n.askErr = errors.New("the agent does not answer") },
			execPath, 503, "the agent does not answer"},
		{"relative", func(n *node) { n.url = "/cri/exec/token" }, execPath, 500, "leads nowhere"},
		{"other scheme", func(n *node) { n.url = "file://host/etc" }, execPath, 500, "leads nowhere"},
		{"nobody there", func(n *node) { n.url = "//127.0.0.1:1/exec/token" }, execPath, 500,
			"connection refused"},
		{"full", func(n *node) { n.api.streams.max = 0 }, execPath, 503, "0 such requests"},
		{"gone", func(n *node) { n.url = n.server.URL + "/none" }, execPath, 404, ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			n := newNode(t)
			if c.setUp != nil {
				c.setUp(n)
			}
			answer, _ := upgrade(t, n, c.path)
			body, err := io.ReadAll(answer.Body)
			if err != nil || answer.StatusCode != c.code || !strings.Contains(string(body), c.want) {
				t.Errorf("%d %q %v, want %d %q", answer.StatusCode, body, err, c.code, c.want)
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

// A websocket that is forwarded names its ports in the query.
func TestPortForwardPorts(t *testing.T) {
	n := newNode(t)
	ask := func(query string) (int, string) {
		r, err := http.NewRequest("GET", n.server.URL+"/portForward/default/web?"+query, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Connection", "Upgrade")
		r.Header.Set("Upgrade", "websocket")
		r.Header.Set("Sec-WebSocket-Version", "13")
		r.Header.Set("Sec-WebSocket-Key", "AQIDBAUGBwgJCgsMDQ4PEA==")
		r.Header.Set("Sec-WebSocket-Protocol", "v4.channel.k8s.io")
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		if answer.StatusCode == http.StatusSwitchingProtocols {
			return answer.StatusCode, ""
		}
		body, _ := io.ReadAll(answer.Body)
		return answer.StatusCode, string(body)
	}
	for query, want := range map[string]string{
		"": "required", "port=": "cannot be empty", "port=x": "unable to parse", "port=0": "> 0",
		"port=65536": "unable to parse",
	} {
		if code, body := ask(query); code != 400 || !strings.Contains(body, want) {
			t.Errorf("%q gives %d %q", query, code, body)
		}
	}
	code, _ := ask("port=80,81&port=82")
	if diff := cmp.Diff([]int32{80, 81, 82}, n.forward.GetPort()); code != 101 || diff != "" {
		t.Errorf("%d, -want +got:\n%s", code, diff)
	}
}

// blocked is a process that goes on until nobody is there any more.
func blocked(n *node, running *atomic.Int64) {
	n.process = func(_ context.Context, in io.Reader, _, _ io.Writer) error {
		running.Add(1)
		defer running.Add(-1)
		_, err := io.Copy(io.Discard, in)
		return err
	}
}

// A client that vanishes, at any time, leaves nothing behind.
func TestStreamClientVanishes(t *testing.T) {
	for _, c := range clients {
		t.Run(c.name, func(t *testing.T) {
			n := newNode(t)
			var running atomic.Int64
			blocked(n, &running)
			ctx, cancel := context.WithCancel(t.Context())
			in, never := io.Pipe()
			done := make(chan error, 1)
			e := c.dial(t, n, "/exec/default/web/app?command=a&input=1&output=1")
			go func() {
				done <- e.StreamWithContext(ctx, remotecommand.StreamOptions{
					Stdin: in, Stdout: io.Discard})
			}()
			eventually(t, "the process runs", func() bool { return running.Load() == 1 })
			cancel()
			<-done
			never.Close()
			eventually(t, "the process ends", func() bool { return running.Load() == 0 })
			eventually(t, "the stream is over", func() bool { return n.api.streams.taken.Load() == 0 })
		})
	}
}

// Streams end when the API is closed, and when nothing moves.
func TestStreamEnds(t *testing.T) {
	quick := func(o *Options) { o.IdleTimeout = 100 * time.Millisecond }
	for name, setUp := range map[string]struct {
		options func(*Options)
		act     func(*node)
	}{
		"idle":   {quick, func(*node) {}},
		"closed": {func(*Options) {}, func(n *node) { n.api.Close() }},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, setUp.options)
			answer, _ := upgrade(t, n, "/exec/default/web/app?command=a&input=1&output=1")
			if answer.StatusCode != http.StatusSwitchingProtocols {
				t.Fatalf("got %d", answer.StatusCode)
			}
			setUp.act(n)
			_, _ = io.Copy(io.Discard, answer.Body)
			eventually(t, "the stream is over", func() bool { return n.api.streams.taken.Load() == 0 })
		})
	}
}

// A streaming server that accepts and says nothing is not waited for once the client has gone.
func TestBackendSilent(t *testing.T) {
	n := newNode(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	n.url = "http://" + listener.Addr().String() + "/exec/token"
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		r, _ := http.NewRequestWithContext(ctx, "POST",
			n.server.URL+"/exec/default/web/app?command=a&output=1", nil)
		r.Header.Set("Connection", "Upgrade")
		r.Header.Set("Upgrade", "SPDY/3.1")
		if answer, err := http.DefaultClient.Do(r); err == nil {
			answer.Body.Close()
		}
	}()
	conn, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	cancel()
	<-done
	eventually(t, "the stream is over", func() bool { return n.api.streams.taken.Load() == 0 })
}

func TestRun(t *testing.T) {
	n := newNode(t)
	n.sync = &runtimeapi.ExecSyncResponse{Stdout: []byte("out"), Stderr: []byte("err")}
	wants := func(path string, code int, want string) {
		t.Helper()
		if got, body := n.do("POST", path); got != code || !strings.Contains(body, want) {
			t.Errorf("%s gives %d %q, want %d %q", path, got, body, code, want)
		}
	}
	const run = "/run/default/web/app?cmd=ls%20-l"
	wants(run, 200, "outerr")
	diff := cmp.Diff([]string{"ls", "-l"}, n.synced.Cmd)
	if diff != "" || n.synced.ContainerId != "c1" {
		t.Errorf("-want +got:\n%s", diff)
	}
	wants("/run/default/web/u1/app?cmd=ls", 200, "outerr")
	n.sync.ExitCode = 3
	wants(run, 500, "command 'ls -l' exited with 3: err")
	wants("/run/default/web/app", 400, "cmd is empty")
	wants("/run/default/other/app?cmd=ls", 404, "not found")
	wants("/run/default/Web/app?cmd=ls", 400, "pod name: ")
	n.err = status.Error(codes.Unavailable, "the runtime is away")
	wants(run, 500, "the runtime is away")
	n.answer.ContainerID = ""
	wants(run, 500, `container not found ("app")`)
	if code, _ := n.get(run); code != http.StatusMethodNotAllowed {
		t.Errorf("GET gives %d", code)
	}
}

// A command that never ends does so with its client.
func TestRunClientVanishes(t *testing.T) {
	n := newNode(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		r, _ := http.NewRequestWithContext(ctx, "POST",
			n.server.URL+"/run/default/web/app?cmd=a", nil)
		if answer, err := http.DefaultClient.Do(r); err == nil {
			answer.Body.Close()
		}
	}()
	eventually(t, "it runs", func() bool { return n.api.commands.taken.Load() == 1 })
	cancel()
	<-done
	eventually(t, "it is over", func() bool { return n.api.commands.taken.Load() == 0 })
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
	if n.saved.ContainerId != "c1" || n.saved.Timeout != 60 ||
		!strings.Contains(body, n.saved.Location) {
		t.Errorf("asked for %v", n.saved)
	}
	wants := func(path string, code int, want string) {
		t.Helper()
		if got, body := n.do("POST", path); got != code || !strings.Contains(body, want) {
			t.Errorf("%s gives %d %q, want %d %q", path, got, body, code, want)
		}
	}
	wants(path, 200, "items")
	if n.saved.Timeout != 10 { // what every call has
		t.Errorf("timeout %d", n.saved.Timeout)
	}
	wants(path+"?timeout=x", 404, "cannot parse value of timeout parameter")
	wants(path+"?timeout=-1", 400, "timeout: must be between 0 and 86400")
	wants("/checkpoint/default/other/app", 404, "not found")
	wants("/checkpoint/default/web/..%2f..%2fapp", 400, "container name: ")
	n.err = status.Error(codes.Unimplemented, "not here")
	wants(path, 500, "checkpointing of default/web/app failed (rpc error: code = Unimplemented")
	n.answer.ContainerID = ""
	wants(path, 500, "checkpointing of default/web/app failed (container not found)")
	off := newNode(t, func(o *Options) { o.NoCheckpoints = true })
	if code, _ := off.do("POST", path); code != 404 {
		t.Errorf("switched off: %d", code)
	}
}
