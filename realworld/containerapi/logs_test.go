package containerapi

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/cri-client/pkg/logs"
	"k8s.io/klog/v2"

	"seedlet.dev/realworld/porttest"
	"seedlet.dev/world"
)

const webLogs = "/containerLogs/default/web/app"

func TestLogQueryErrors(t *testing.T) {
	n := newNode(t)
	n.write(appLog, "")
	const bad, not = http.StatusBadRequest, http.StatusUnprocessableEntity
	cases := []struct {
		query string
		code  int
		want  string
	}{
		{"tailLines=x", bad, `{"message": "Unable to decode query: tailLines`},
		{"tailLines=", bad, "tailLines"},
		{"limitBytes=1.5", bad, "limitBytes"},
		{"sinceSeconds=99999999999999999999", bad, "sinceSeconds"},
		{"sinceTime=yesterday", bad, "sinceTime"},
		{"tailLines=-1", not, `{"message": "Invalid request: tailLines: must be`},
		{"limitBytes=0", not, "limitBytes: must be greater than 0"},
		{"sinceSeconds=0", not, "sinceSeconds: must be greater than 0"},
		{"sinceSeconds=1&sinceTime=2026-01-01T00:00:00Z", not, "at most one of"},
		{"stream=stdout", not, "stream"},
		{"stream=Stdout&tailLines=1", not, "tailLines"},
		{"stream=Stdout", bad, "PodLogsQuerySplitStreams"},
		{"stream=All", 200, ""},
		{"tail=all&tailLines=x", 200, ""},
		{"tail=-3", not, "tailLines"},
		{"sinceTime=null&container=other&unknown=1&insecureSkipTLSVerifyBackend=true", 200, ""},
		{"sinceSeconds=9223372036854775807", 200, ""},
	}
	for _, c := range cases {
		code, body := n.get(webLogs + "?" + c.query)
		if code != c.code || !strings.Contains(body, c.want) {
			t.Errorf("%s gives %d %q, want %d %q", c.query, code, body, c.code, c.want)
		}
	}
}

func TestLogs(t *testing.T) {
	n := newNode(t, func(o *Options) { o.SplitStreams = true })
	n.write(appLog, "2026-01-01T00:00:01.5Z stdout F one\n"+
		"2026-01-01T00:00:02Z stderr P tw\n"+
		"2026-01-01T00:00:02Z stderr F o\n"+
		"no line of a log\n"+
		"2026-01-01T00:00:03Z stdout F:more three\n"+
		"2026-01-01T00:00:04Z stdout F fo")
	cases := []struct{ query, want string }{
		{"", "one\ntwo\nthree\nfo"},
		{"timestamps=true", "2026-01-01T00:00:01.500000000Z one\n" +
			"2026-01-01T00:00:02.000000000Z two\n2026-01-01T00:00:03.000000000Z three\n" +
			"2026-01-01T00:00:04.000000000Z fo"},
		{"timestamps=false&follow=0", "one\ntwo\nthree\nfo"},
		{"tailLines=0", ""},
		{"tailLines=1", "three\n"},
		{"tail=1", "three\n"},
		{"tailLines=3", "o\nthree\nfo"}, // one of the three is not in the log format
		{"tailLines=1000000", "one\ntwo\nthree\nfo"},
		{"limitBytes=5", "one\nt"},
		{"limitBytes=4", "one\n"},
		{"limitBytes=100&timestamps", "2026-01-01T00:00:01.500000000Z one\n" +
			"2026-01-01T00:00:02.000000000Z two\n2026-01-01T00:00:03.000000000Z three"[:65]},
		{"sinceTime=2026-01-01T00:00:02%2B00:00", "two\nthree\nfo"},
		{"sinceTime=2026-01-01T00:00:02.5Z", "three\nfo"},
		{"sinceSeconds=5", ""},
		{"stream=Stdout", "one\nthree\nfo"},
		{"stream=Stderr", "two\n"},
	}
	n.end("c1")
	for _, follow := range []string{"", "&follow=true"} {
		for _, c := range cases {
			if follow != "" && strings.Contains(c.query, "tail") {
				continue // a followed tail does not end at the current end of the file
			}
			if code, body := n.get(webLogs + "?" + c.query + follow); code != 200 || body != c.want {
				t.Errorf("%s%s gives %d %q, want %q", c.query, follow, code, body, c.want)
			}
		}
	}
	if _, body := n.get(webLogs + "?tailLines=1&follow=true"); body != "three\nfo" {
		t.Errorf("a followed tail gives %q", body)
	}
}

func TestLogContainerID(t *testing.T) {
	ended := func(id string) v1.ContainerState {
		return v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ContainerID: id}}
	}
	waiting := func(reason string) v1.ContainerState {
		return v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: reason}}
	}
	running := v1.ContainerState{Running: &v1.ContainerStateRunning{}}
	const container = `container "app" in pod "web" `
	cases := []struct {
		name     string
		status   *v1.ContainerStatus
		previous bool
		id, err  string
	}{
		{"nothing", nil, false, "", container + "is not available"},
		{"running", &v1.ContainerStatus{State: running, ContainerID: "cri-o://c2"}, false,
			"cri-o://c2", ""},
		{"no previous", &v1.ContainerStatus{State: running, ContainerID: "x://c2"}, true, "",
			"previous terminated " + container + "not found"},
		{"previous", &v1.ContainerStatus{State: running, ContainerID: "x://c2",
			LastTerminationState: ended("x://c1")}, true, "x://c1", ""},
		{"ended", &v1.ContainerStatus{State: ended("x://c1")}, false, "x://c1", ""},
		{"ended without a container", &v1.ContainerStatus{State: ended(""),
			LastTerminationState: ended("x://c0")}, false, "x://c0", ""},
		{"ended without any", &v1.ContainerStatus{State: ended("")}, false, "",
			container + "is terminated"},
		{"back-off", &v1.ContainerStatus{State: waiting("CrashLoopBackOff"),
			LastTerminationState: ended("x://c1")}, false, "x://c1", ""},
		{"back-off without any", &v1.ContainerStatus{State: waiting("CrashLoopBackOff"),
			LastTerminationState: ended("")}, false, "", container + "is terminated"},
		{"creating", &v1.ContainerStatus{State: waiting("ContainerCreating")}, false, "",
			container + "is waiting to start: ContainerCreating"},
		{"pull", &v1.ContainerStatus{State: waiting("ErrImagePull")}, false, "",
			container + "is waiting to start: image can't be pulled"},
		{"pull again", &v1.ContainerStatus{State: waiting("ImagePullBackOff")}, false, "",
			container + "is waiting to start: trying and failing to pull image"},
		{"no state", &v1.ContainerStatus{}, false, "", container + "is waiting to start - no logs yet"},
	}
	for _, c := range cases {
		id, err := logContainerID(target{pod: "web", container: "app"}, c.status, c.previous)
		if got := fmt.Sprint(err); id != c.id || (err != nil || c.err != "") && got != c.err {
			t.Errorf("%s: %q, %v; want %q, %q", c.name, id, err, c.id, c.err)
		}
	}
}

func TestLogErrors(t *testing.T) {
	n := newNode(t)
	expect := func(code int, texts ...string) {
		t.Helper()
		got, body := n.get(webLogs)
		if got != code {
			t.Errorf("%d %q, want %d", got, body, code)
		}
		mustContain(t, body, texts...)
	}
	n.logs["c1"] = filepath.Join(n.dir, "pods", "none")
	n.end("c1")
	expect(400, "failed to open log file", "no such file")
	n.logs["c1"] = "/etc/passwd"
	expect(500, "is not below podLogsDir")
	n.logs["c1"] = filepath.Join(n.dir, "pods/../secret")
	expect(500, "is not below podLogsDir")
	n.logs["c1"] = ""
	expect(400, "has no log")
	n.statusID = "other"
	expect(500, "unable to retrieve container logs for containerd://c1", `answered about "other"`)
	n.statusID = ""
	delete(n.logs, "c1")
	expect(400, "unable to retrieve container logs for containerd://c1")
	n.logs["c1"] = filepath.Join(n.dir, "pods", appLog)
	n.write(appLog, "junk\n")
	expect(200, `unsupported log format: "junk\n"`)
	n.err = fmt.Errorf("the runtime is away")
	expect(500, "the runtime is away")
	n.containerAnswer.Status = nil
	expect(400, `container "app" in pod "web" is not available`)
	n.containerAnswer = world.ContainerAnswer{
		Err: world.Errorf(world.KindNotFound, "", "no container")}
	expect(404, "no container")
	n.resolveErr = fmt.Errorf("the agent does not answer")
	expect(503, "the agent does not answer")
	for path, want := range map[string]string{
		"/containerLogs/default/other/app":                       `404 pod "other" does not exist`,
		"/containerLogs/default/web/none":                        `404 container "none" not found in`,
		"/containerLogs/default/..%2f..%2fetc/app":               "400 pod name: ",
		"/containerLogs/..%2f/web/app":                           "400 namespace: ",
		"/containerLogs/default/web/a%00b":                       "400 container name: ",
		"/containerLogs/default/web/..%2f0.log":                  "400 container name: ",
		"/containerLogs/default/web":                             "404 ",
		"/containerLogs/" + strings.Repeat("a", 64) + "/web/app": "400 namespace: ",
	} {
		n.resolveErr = nil
		n.containerAnswer.Err = nil
		code, body := n.get(path)
		if got := fmt.Sprintf("%d %s", code, body); !strings.HasPrefix(got, want) {
			t.Errorf("%s gives %q, want %q", path, got, want)
		}
	}
	if code, _ := n.do("POST", webLogs); code != http.StatusMethodNotAllowed {
		t.Errorf("POST gives %d", code)
	}
}

// A pod that mounts the node's logs can create links in them. No link is followed.
func TestLogLinks(t *testing.T) {
	n := newNode(t)
	n.end("c1")
	secret := filepath.Join(n.dir, "secret")
	if err := os.WriteFile(secret, []byte(stdoutPrefix+"F secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	n.write("default_other_u2/app/0.log", "2026-01-01T00:00:00Z stdout F secret\n")
	pods := filepath.Join(n.dir, "pods")
	for _, err := range []error{
		os.MkdirAll(filepath.Join(pods, "default_web_u1/app"), 0o700),
		os.Symlink(secret, filepath.Join(pods, "default_web_u1/app/out.log")),
		os.Symlink("../../default_other_u2/app/0.log",
			filepath.Join(pods, "default_web_u1/app/in.log")),
		os.Symlink("../default_other_u2/app", filepath.Join(pods, "default_web_u1/dir")),
		unix.Mkfifo(filepath.Join(pods, "default_web_u1/app/pipe.log"), 0o600),
		os.Mkdir(filepath.Join(pods, "default_web_u1/app/dir.log"), 0o700),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"app/out.log", "app/in.log", "dir/0.log", "app/pipe.log",
		"app/dir.log"} {
		n.logs["c1"] = filepath.Join(pods, "default_web_u1", name)
		code, body := n.get(webLogs)
		if code != 400 || !strings.HasPrefix(body, "failed to open log file") {
			t.Errorf("%s gives %d %q", name, code, body)
		}
	}
}

// tail is a client that follows a log.
type tail struct {
	t          *testing.T
	lines      *bufio.Scanner
	disconnect func()
}

func (n *node) follow(path string) *tail {
	n.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r, err := http.NewRequestWithContext(ctx, "GET", n.server.URL+path, nil)
	if err != nil {
		n.t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		n.t.Fatal(err)
	}
	if response.StatusCode != 200 {
		n.t.Fatalf("following gives %d", response.StatusCode)
	}
	disconnect := func() { cancel(); response.Body.Close() }
	n.t.Cleanup(disconnect)
	return &tail{n.t, bufio.NewScanner(response.Body), disconnect}
}

func (f *tail) next() string {
	if f.lines.Scan() {
		return f.lines.Text()
	}
	if err := f.lines.Err(); err != nil {
		return "failed: " + err.Error()
	}
	return "the end"
}

func (f *tail) expect(lines ...string) {
	f.t.Helper()
	for _, want := range lines {
		if got := f.next(); got != want {
			f.t.Fatalf("got %q, want %q", got, want)
		}
	}
}

const stdoutPrefix = "2026-01-01T00:00:01Z stdout "

func TestFollow(t *testing.T) {
	for _, polling := range []bool{false, true} {
		t.Run(fmt.Sprintf("blind=%v", polling), func(t *testing.T) {
			n := newNode(t)
			n.write(appLog, stdoutPrefix+"F one\n"+stdoutPrefix+"P tw")
			f := n.follow(webLogs + "?follow=true")
			f.expect("one")
			if polling {
				n.api.watcher.mu.Lock()
				n.api.watcher.needsPolling = true
				_ = n.api.watcher.inotify.Remove(filepath.Dir(n.logs["c1"]))
				n.api.watcher.mu.Unlock()
			}
			n.write(appLog, "\n"+stdoutPrefix+"F o\n")
			f.expect("two")
			// Rotated: some lines are still written to the old file, before those in the new file.
			path := n.logs["c1"]
			if err := os.Rename(path, path+".1"); err != nil {
				t.Fatal(err)
			}
			n.write(appLog+".1", stdoutPrefix+"F three\n")
			n.write(appLog, stdoutPrefix+"F five\n")
			n.write(appLog+".1", stdoutPrefix+"F four\n")
			f.expect("three", "four", "five")
			// Truncated in place.
			if err := os.Truncate(path, 0); err != nil {
				t.Fatal(err)
			}
			n.api.watcher.wakeAll(false)
			porttest.Eventually(t, "the file is read again", func() bool {
				n.write(appLog, stdoutPrefix+"F six\n")
				return f.next() == "six"
			})
			n.write(appLog, stdoutPrefix+"F the last")
			n.end("c1")
			for line := f.next(); line != "the last"; line = f.next() {
				if line != "six" {
					t.Fatalf("got %q", line)
				}
			}
			f.expect("the end")
		})
	}
}

// The end of one container does not end the log of another. A log that was removed with its
// container ends.
func TestFollowTwo(t *testing.T) {
	n := newNode(t)
	n.write(appLog, stdoutPrefix+"F one\n")
	first := n.follow(webLogs + "?follow=true")
	first.expect("one")
	n.mu.Lock()
	n.containerAnswer.Status.ContainerID = "containerd://c2"
	n.running["c2"] = true
	n.logs["c2"] = filepath.Join(n.dir, "pods/default_web_u1/app/1.log")
	n.mu.Unlock()
	n.write("default_web_u1/app/1.log", stdoutPrefix+"F again\n")
	second := n.follow(webLogs + "?follow=true")
	second.expect("again")
	if err := os.Remove(n.logs["c1"]); err != nil {
		t.Fatal(err)
	}
	n.end("c1")
	first.expect("the end")
	n.mu.Lock()
	n.err = fmt.Errorf("the runtime is away") // no container may be regarded as ended
	n.mu.Unlock()
	lists := n.lists
	porttest.Eventually(t, "the runtime is polled again", func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		return n.lists > lists+1
	})
	n.write("default_web_u1/app/1.log", stdoutPrefix+"F still\n")
	second.expect("still")
	second.disconnect()
	porttest.Eventually(t, "no followers are left", func() bool {
		return n.api.logs.used() == 0
	})
	if w := n.api.watcher; len(w.followers)+len(w.byDir) != 0 || w.inotify != nil {
		t.Errorf("left: %v", w)
	}
}

// A log that is missing for a moment, during a rotation, is waited for.
func TestLogAppears(t *testing.T) {
	n := newNode(t)
	var got atomic.Value
	go func() {
		_, body := n.get(webLogs)
		got.Store(body)
	}()
	porttest.Eventually(t, "the request was resolved", func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		return len(n.resolved) == 1
	})
	n.write(appLog+".new", stdoutPrefix+"F one\n")
	if err := os.Rename(n.logs["c1"]+".new", n.logs["c1"]); err != nil {
		t.Fatal(err)
	}
	porttest.Eventually(t, "a response", func() bool { return got.Load() != nil })
	if got.Load() != "one\n" {
		t.Errorf("got %q", got.Load())
	}
}

// A container may write nothing for longer than a stream may be idle.
func TestFollowOfSilentContainer(t *testing.T) {
	for _, version := range []int{1, 2} {
		n := newNode(t, func(o *Options) { o.IdleTimeout = 50 * time.Millisecond })
		n.write(appLog, stdoutPrefix+"F one\n")
		f := n.followBy(t, version)
		f.expect("one")
		time.Sleep(200 * time.Millisecond)
		n.write(appLog, stdoutPrefix+"F two\n")
		f.expect("two")
	}
}

// A client that reads nothing is disconnected after the idle timeout.
func TestClientReadsNothing(t *testing.T) {
	for _, version := range []int{1, 2} {
		n := newNode(t, func(o *Options) { o.IdleTimeout = 50 * time.Millisecond })
		n.write(appLog, strings.Repeat(stdoutPrefix+"F "+strings.Repeat("x", 1000)+"\n", 20_000))
		n.followBy(t, version)
		porttest.Eventually(t, "the request has ended", func() bool {
			return n.api.logs.used() == 0
		})
	}
}

// followBy follows the log by a version of HTTP, and returns once it is being served.
func (n *node) followBy(t *testing.T, version int) *tail {
	t.Helper()
	server := httptest.NewUnstartedServer(n.server.Config.Handler)
	server.EnableHTTP2 = version == 2
	server.Config.ErrorLog = porttest.ErrorLog(t)
	server.StartTLS()
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	response, err := server.Client().Get(server.URL + webLogs + "?follow=true")
	if err != nil || response.ProtoMajor != version {
		t.Fatalf("%v, %+v", err, response)
	}
	t.Cleanup(func() { _ = response.Body.Close() }) // what is left is not read
	return &tail{t, bufio.NewScanner(response.Body), nil}
}

func TestTooManyLogs(t *testing.T) {
	n := newNode(t)
	n.write(appLog, stdoutPrefix+"F one\n")
	n.api.logs.max = 1
	f := n.follow(webLogs + "?follow=true")
	if code, body := n.get(webLogs); code != 503 || !strings.HasPrefix(body, "1 requests for logs") {
		t.Errorf("%d %q", code, body)
	}
	f.disconnect()
	porttest.Eventually(t, "the limit is not reached", func() bool {
		code, _ := n.get(webLogs)
		return code == 200
	})
	metrics := n.api.Metrics()
	if metrics[0].Value != 0 || metrics[1].Value != 1 || metrics[4].Value < 1 {
		t.Errorf("metrics: %+v", metrics)
	}
}

// used returns the number of requests that are being served.
func (l *concurrencyLimit) used() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.inUse
}

// Clients that follow as many logs of a namespace as they may do not keep those of other namespaces
// out.
func TestTooManyLogsOfNamespace(t *testing.T) {
	n := newNode(t)
	n.write(appLog, stdoutPrefix+"F one\n")
	n.api.logs.namespaceMax = 1
	f := n.follow(webLogs + "?follow=true")
	const want = "1 requests for logs of the namespace"
	if code, body := n.get(webLogs); code != 503 || !strings.HasPrefix(body, want) {
		t.Errorf("%d %q", code, body)
	}
	if code, body := n.get("/containerLogs/other/web/app"); code != 200 {
		t.Errorf("another namespace: %d %q", code, body)
	}
	if refused := n.api.Metrics()[3]; refused.Value != 1 {
		t.Errorf("metrics: %+v", refused)
	}
	f.disconnect()
	porttest.Eventually(t, "the limit is not reached", func() bool {
		code, _ := n.get(webLogs)
		return code == 200
	})
	if len(n.api.logs.byNamespace) > 0 {
		t.Errorf("kept: %v", n.api.logs.byNamespace)
	}
}

// A thousand clients that follow a silent container cost little each, and have one inotify instance
// and one call to the runtime per second in total.
func TestThousandFollowers(t *testing.T) {
	const followers = 1000
	n := newNode(t)
	n.api.logs.namespaceMax = followers
	n.write(appLog, stdoutPrefix+"F one\n")
	measure := func() (heap uint64, goroutines int) {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapInuse + m.StackInuse, runtime.NumGoroutine()
	}
	heap, goroutines := measure()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for range followers {
		out := &discardResponse{header: http.Header{}}
		r, _ := http.NewRequestWithContext(ctx, "GET", webLogs+"?follow=true", nil)
		r.SetPathValue("namespace", "default")
		r.SetPathValue("pod", "web")
		r.SetPathValue("container", "app")
		go n.api.withLimit(&n.api.logs, n.api.serveLogs)(out, r)
	}
	porttest.Eventually(t, "all clients follow", func() bool {
		n.api.watcher.mu.Lock()
		defer n.api.watcher.mu.Unlock()
		return len(n.api.watcher.followers) == followers
	})
	porttest.Eventually(t, "the runtime was polled", func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		return n.lists > 1
	})
	// A follower that has just looked at the runtime holds the stack and buffers of that for a moment.
	porttest.Eventually(t, "24 KiB and a goroutine suffice for each client", func() bool {
		heapThen, goroutinesThen := measure()
		perFollower := (float64(heapThen) - float64(heap)) / followers
		t.Logf("%.1f KiB and %.2f goroutines for each", perFollower/1024,
			float64(goroutinesThen-goroutines)/followers)
		return perFollower <= 24<<10 && goroutinesThen-goroutines <= followers+10
	})
	if n := inotifyInstances(t); n > 2 {
		t.Errorf("%d inotify instances", n)
	}
	n.mu.Lock()
	if n.lists > 15 {
		t.Errorf("the runtime was called %d times", n.lists)
	}
	n.mu.Unlock()
	cancel()
	porttest.Eventually(t, "all requests have ended", func() bool {
		return n.api.logs.used() == 0
	})
}

func inotifyInstances(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, e := range entries {
		if to, _ := os.Readlink("/proc/self/fd/" + e.Name()); to == "anon_inode:inotify" {
			n++
		}
	}
	return n
}

// discardResponse is a response that is never read.
type discardResponse struct{ header http.Header }

func (s *discardResponse) Header() http.Header         { return s.header }
func (s *discardResponse) WriteHeader(int)             {}
func (s *discardResponse) Write(p []byte) (int, error) { return len(p), nil }
func (s *discardResponse) Flush()                      {}

// FuzzLog checks that a log is read in the same way as by the library for CRI logs.
func FuzzLog(f *testing.F) {
	line := stdoutPrefix + "F text\n"
	long := stdoutPrefix + "F " + strings.Repeat("y", 70_000) + "\n"
	for _, text := range []string{"", line, line + line, stdoutPrefix + "P te\n" + line,
		line + "junk\n" + line,
		line + stdoutPrefix + "F", line + stdoutPrefix + "F x", "junk", long + line, line + long[:66_000],
		stdoutPrefix + "P " + strings.Repeat("z", 70_000) + "\n" + line,
		line + strings.Repeat("j", 70_000) + "\n" + line,
		"2026-01-01T00:00:00+05:30 stderr F: \n", "2026-01-01T00:00:01.123456789Z stderr F:a:b x\n"} {
		f.Add([]byte(text), int64(-1), int64(0), false)
		f.Add([]byte(text), int64(1), int64(0), true)
		f.Add([]byte(text), int64(2), int64(7), true)
	}
	path := filepath.Join(f.TempDir(), "0.log")
	f.Fuzz(func(t *testing.T, data []byte, tailLines, limitBytes int64, timestamps bool) {
		if first, _, _ := bytes.Cut(data, []byte("\n")); bytes.Contains(first, []byte("{")) {
			return // the library also supports Docker's format
		}
		query := logQuery{tailLines: max(tailLines, -1), limitBytes: max(limitBytes, 0),
			timestamps: timestamps}
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		want, wantErr := readByLibrary(path, query)
		got, err := read(path, query)
		if (err == nil) != (wantErr == nil) {
			t.Fatalf("error %v, the library's is %v", err, wantErr)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("-library +ours:\n%s", diff)
		}
	})
}

func readByLibrary(path string, query logQuery) (string, error) {
	opts := &logs.LogOptions{Timestamp: query.timestamps}
	if query.tailLines >= 0 {
		opts.TailLines = &query.tailLines
	}
	if query.limitBytes > 0 {
		opts.LimitBytes = &query.limitBytes
	}
	var out bytes.Buffer
	ctx := klog.NewContext(context.Background(), logr.Discard())
	err := logs.ReadLogs(ctx, path, "", opts, nil, &out, &out)
	return out.String(), err
}

func read(path string, query logQuery) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	l := &log{file: file, scanner: scanner{linesMax: query.tailLines}}
	buf := make([]byte, 1000)
	l.scanner.offset, err = tailStart(context.Background(), file, query.tailLines, buf)
	if err != nil {
		return "", err
	}
	var out bytes.Buffer
	l.printer = newPrinter(query, func(p []byte) error { out.Write(p); return nil })
	err = l.stream(context.Background(), nil)
	if err == errLimitReached {
		err = nil
	}
	_ = l.printer.flush()
	return out.String(), err
}

// FuzzLogQuery checks that any parameters yield a query, or an error with a status code of its own.
func FuzzLogQuery(f *testing.F) {
	for _, q := range []string{"follow=1&tailLines=3", "sinceTime=2026-01-01T00:00:00Z",
		"stream=Stderr", "limitBytes=-1", "tail=all", "sinceSeconds=9223372036854775807"} {
		f.Add(q)
	}
	f.Fuzz(func(t *testing.T, text string) {
		values, err := url.ParseQuery(text)
		if err != nil {
			return
		}
		now := time.Now()
		query, err := parseLogQuery(values, now, true)
		if err != nil {
			if f, ok := err.(*httpError); !ok || f.code != 400 && f.code != 422 {
				t.Errorf("%v", err)
			}
			return
		}
		if query.tailLines < -1 || query.limitBytes < 0 || query.stream != "" && query.tailLines >= 0 {
			t.Errorf("%+v", query)
		}
	})
}
