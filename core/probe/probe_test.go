package probe

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/core/budget"
	"seedlet.dev/core/op"
	"seedlet.dev/world"
)

var t0 = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// The result changes only when a threshold is reached by consecutive results.
func TestThresholds(t *testing.T) {
	spec := &v1.Probe{SuccessThreshold: 2, FailureThreshold: 3}
	for _, test := range []struct {
		results string // g: success, b: failure, ?: unknown
		want    Result
	}{
		{"", Unknown}, {"g", Unknown}, {"gg", Success}, {"bb", Unknown}, {"bbb", Failure},
		{"ggbb", Success}, {"ggbbb", Failure}, {"ggbbgb", Success}, {"bbbg", Failure}, {"bbbgg", Success},
		{"bb?b", Failure}, {"???", Unknown},
	} {
		p := Prober{Kind: Readiness}
		for _, a := range test.results {
			p.HandleCompletion(spec, map[rune]Result{'g': Success, 'b': Failure}[a], "why")
		}
		if p.Result != test.want {
			t.Errorf("after %q: %q, want %q", test.results, p.Result, test.want)
		}
	}
}

func TestNextProbeAt(t *testing.T) {
	spec := &v1.Probe{InitialDelaySeconds: 5, PeriodSeconds: 10}
	p := Prober{}
	if got := p.NextProbeAt(spec, t0); !got.Equal(t0.Add(5 * time.Second)) {
		t.Errorf("first probe at %v, want after the initial delay", got)
	}
	p.Issued(1, spec, t0.Add(6*time.Second))
	if got := p.NextProbeAt(spec, t0); !got.Equal(t0.Add(16 * time.Second)) {
		t.Errorf("next probe at %v, want a period after the last", got)
	}
}

func TestNewRequest(t *testing.T) {
	to := Target{ContainerID: "c", Host: "10.0.0.7", Ports: []v1.ContainerPort{
		{Name: "web", ContainerPort: 8080}}}
	service := "db"
	for _, test := range []struct {
		handler v1.ProbeHandler
		want    any
	}{
		{v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{Path: "ok?x=1", Port: intstr.FromString("web"),
			Scheme: v1.URISchemeHTTPS, HTTPHeaders: []v1.HTTPHeader{{Name: "A", Value: "b"}}}},
			&world.HTTPGet{Scheme: "https", Host: "10.0.0.7", Port: 8080, Path: "/ok?x=1",
				Headers: []world.HTTPHeader{{Name: "A", Value: "b"}}}},
		{v1.ProbeHandler{TCPSocket: &v1.TCPSocketAction{Host: "h", Port: intstr.FromInt32(80)}},
			&world.TCPConnect{Host: "h", Port: 80}},
		{v1.ProbeHandler{GRPC: &v1.GRPCAction{Port: 90, Service: &service}},
			&world.GRPCCheck{Host: "10.0.0.7", Port: 90, Service: "db"}},
	} {
		got, err := NewRequest(&test.handler, to, time.Second)
		if err != nil || !cmp.Equal(got, test.want) {
			t.Errorf("got %+v (%v), want %+v", got, err, test.want)
		}
	}
	exec := &v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"true"}}}
	got, err := NewRequest(exec, to, 1500*time.Millisecond)
	if req := got.(*runtimeapi.ExecSyncRequest); err != nil || req.Timeout != 2 ||
		req.ContainerId != "c" || !cmp.Equal(req.Cmd, []string{"true"}) {
		t.Errorf("got %v (%v)", req, err)
	}
	nowhere := &v1.ProbeHandler{TCPSocket: &v1.TCPSocketAction{Port: intstr.FromString("no")}}
	if _, err := NewRequest(nowhere, to, 0); err == nil {
		t.Error("no error for a port name that does not exist")
	}
}

// An answer with a redirect that is not followed is a success with a warning, each time.
func TestWarning(t *testing.T) {
	const begins = "Probe terminated redirects, Response body: "
	for _, c := range []struct {
		got  world.HTTPGot
		want string
	}{
		{world.HTTPGot{Status: 302, RedirectedToOtherHost: true, Body: []byte("go\xff")},
			begins + "go\uFFFD"},
		{world.HTTPGot{Status: 304}, begins},
		{world.HTTPGot{Status: 200, Body: []byte("ok")}, ""},
	} {
		result, message := Interpret(op.Record{Call: "HTTPGet"}, world.Event{Body: &c.got})
		if result != Success || message != c.want {
			t.Errorf("%d: %s, %q", c.got.Status, result, message)
		}
	}
}

func TestTimeoutMessage(t *testing.T) {
	for _, c := range []struct {
		request any
		want    string
	}{
		{&runtimeapi.ExecSyncRequest{Cmd: []string{"nc", "-z"}},
			`command timed out: "nc -z" timed out after 2s`},
		{&world.HTTPGet{Scheme: "http", Host: "fd00::1", Port: 80, Path: "/x"},
			`Get "http://[fd00::1]:80/x": context deadline exceeded (Client.Timeout exceeded while ` +
				`awaiting headers)`},
		{&world.TCPConnect{Host: "10.0.0.7", Port: 80}, "dial tcp 10.0.0.7:80: i/o timeout"},
		{&world.GRPCCheck{}, "timeout: health rpc did not complete within 2s"},
	} {
		if got := TimeoutMessage(c.request, 2*time.Second); got != c.want {
			t.Errorf("%s, want %s", got, c.want)
		}
	}
}

// The message of a timeout quotes the first bytes of what a spec may have a megabyte of, and is
// within the bound of messages as a whole.
func TestLongTimeoutMessage(t *testing.T) {
	long := strings.Repeat("\x01", 1<<20)
	many := slices.Repeat([]string{"\xff"}, 1<<20)
	for _, c := range []struct {
		request any
		end     string
	}{
		{&runtimeapi.ExecSyncRequest{Cmd: []string{"a", long}}, "timed out after 2s"},
		{&runtimeapi.ExecSyncRequest{Cmd: many}, "timed out after 2s"},
		{&world.HTTPGet{Scheme: "http", Host: long, Path: long}, "while awaiting headers)"},
		{&world.HTTPGet{Scheme: "http", Host: "h", Path: long}, "while awaiting headers)"},
		{&world.TCPConnect{Host: long}, ":0: i/o timeout"},
	} {
		got := TimeoutMessage(c.request, 2*time.Second)
		if len(got) > budget.MessageMax || !strings.HasSuffix(got, c.end) {
			t.Errorf("%d bytes: %.100s", len(got), got)
		}
	}
}

// Only an error of the runtime itself causes another attempt.
func TestIsRetryable(t *testing.T) {
	exec := op.Record{Call: "ExecSync", Deadline: t0}
	for _, c := range []struct {
		r    op.Record
		kind world.ErrorKind
		want bool
	}{
		{exec, world.KindInternal, true}, {exec, world.KindUnavailable, true},
		{exec, world.KindTimeout, false}, {exec, world.KindCanceled, false},
		{op.Record{Call: "ExecSync", Refused: true}, world.KindExhausted, false},
		{op.Record{Call: "TCPConnect"}, world.KindUnavailable, false},
	} {
		got := IsRetryable(c.r, world.Event{Time: t0, Err: world.Errorf(c.kind, "", "")})
		if got != c.want {
			t.Errorf("%s %s: %v", c.r.Call, c.kind, got)
		}
	}
	if IsRetryable(exec, world.Event{Body: &runtimeapi.ExecSyncResponse{}}) {
		t.Error("a result is tried again")
	}
}

func TestInterpret(t *testing.T) {
	exec := op.Record{Call: "ExecSync", Deadline: t0.Add(time.Minute)}
	get := op.Record{Call: "HTTPGet", Deadline: t0.Add(time.Second)}
	timeout := world.Errorf(world.KindTimeout, "", "too long")
	for _, test := range []struct {
		name string
		r    op.Record
		ev   world.Event
		want Result
	}{
		{"exit 0", exec, world.Event{Body: &runtimeapi.ExecSyncResponse{}}, Success},
		{"exit 1", exec, world.Event{Body: &runtimeapi.ExecSyncResponse{ExitCode: 1}}, Failure},
		{"the command timed out", exec, world.Event{Time: t0, Err: timeout}, Failure},
		{"the runtime did not respond", exec,
			world.Event{Time: exec.Deadline, Err: timeout}, Unknown},
		{"the runtime is unavailable", exec,
			world.Event{Err: world.Errorf(world.KindUnavailable, "", "")}, Unknown},
		{"200", get, world.Event{Body: &world.HTTPGot{Status: 200}}, Success},
		{"399", get, world.Event{Body: &world.HTTPGot{Status: 399}}, Success},
		{"404", get, world.Event{Body: &world.HTTPGot{Status: 404}}, Failure},
		{"redirect to another host", get,
			world.Event{Body: &world.HTTPGot{Status: 302, RedirectedToOtherHost: true}}, Success},
		{"no response in time", get, world.Event{Time: get.Deadline, Err: timeout}, Failure},
		{"connected", get, world.Event{Body: &world.Done{}}, Success},
		{"serving", get, world.Event{Body: &world.GRPCChecked{Status: "SERVING"}}, Success},
		{"not serving", get, world.Event{Body: &world.GRPCChecked{Status: "UNKNOWN"}}, Failure},
	} {
		if got, _ := Interpret(test.r, test.ev); got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}
