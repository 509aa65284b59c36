package probe

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/core/op"
	"seedlet.dev/world"
)

var t0 = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// The result changes only when the thresholds are reached, each by answers in a row.
func TestThresholds(t *testing.T) {
	spec := &v1.Probe{SuccessThreshold: 2, FailureThreshold: 3}
	for _, test := range []struct {
		answers string // g, b, and ? for one that means nothing
		want    Result
	}{
		{"", Undecided}, {"g", Undecided}, {"gg", Good}, {"bb", Undecided}, {"bbb", Bad},
		{"ggbb", Good}, {"ggbbb", Bad}, {"ggbbgb", Good}, {"bbbg", Bad}, {"bbbgg", Good},
		{"bb?b", Bad}, {"???", Undecided},
	} {
		p := Prober{Kind: Readiness}
		for _, a := range test.answers {
			p.Answered(spec, map[rune]Result{'g': Good, 'b': Bad}[a], "why")
		}
		if p.Result != test.want {
			t.Errorf("after %q: %q, want %q", test.answers, p.Result, test.want)
		}
	}
}

func TestDue(t *testing.T) {
	spec := &v1.Probe{InitialDelaySeconds: 5, PeriodSeconds: 10}
	p := Prober{}
	if got := p.Due(spec, t0); !got.Equal(t0.Add(5 * time.Second)) {
		t.Errorf("first asked at %v, want after the initial delay", got)
	}
	p.Asked(1, spec, t0.Add(6*time.Second))
	if got := p.Due(spec, t0); !got.Equal(t0.Add(16 * time.Second)) {
		t.Errorf("asked again at %v, want a period after the last time", got)
	}
}

func TestRequest(t *testing.T) {
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
		got, err := Request(&test.handler, to, time.Second)
		if err != nil || !cmp.Equal(got, test.want) {
			t.Errorf("asks %+v (%v), want %+v", got, err, test.want)
		}
	}
	exec := &v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"true"}}}
	got, err := Request(exec, to, 1500*time.Millisecond)
	if req := got.(*runtimeapi.ExecSyncRequest); err != nil || req.Timeout != 2 ||
		req.ContainerId != "c" || !cmp.Equal(req.Cmd, []string{"true"}) {
		t.Errorf("asks %v (%v)", req, err)
	}
	nowhere := &v1.ProbeHandler{TCPSocket: &v1.TCPSocketAction{Port: intstr.FromString("no")}}
	if _, err := Request(nowhere, to, 0); err == nil {
		t.Error("a port that there is not was found")
	}
}

func TestJudge(t *testing.T) {
	exec := op.Record{Call: "ExecSync", Deadline: t0.Add(time.Minute)}
	get := op.Record{Call: "HTTPGet", Deadline: t0.Add(time.Second)}
	timeout := world.Errorf(world.KindTimeout, "", "too long")
	for _, test := range []struct {
		name string
		r    op.Record
		ev   world.Event
		want Result
	}{
		{"exit 0", exec, world.Event{Body: &runtimeapi.ExecSyncResponse{}}, Good},
		{"exit 1", exec, world.Event{Body: &runtimeapi.ExecSyncResponse{ExitCode: 1}}, Bad},
		{"the command took too long", exec, world.Event{Time: t0, Err: timeout}, Bad},
		{"the runtime did not answer", exec,
			world.Event{Time: exec.Deadline, Err: timeout}, Undecided},
		{"the runtime is away", exec,
			world.Event{Err: world.Errorf(world.KindUnavailable, "", "")}, Undecided},
		{"200", get, world.Event{Body: &world.HTTPGot{Status: 200}}, Good},
		{"399", get, world.Event{Body: &world.HTTPGot{Status: 399}}, Good},
		{"404", get, world.Event{Body: &world.HTTPGot{Status: 404}}, Bad},
		{"elsewhere", get, world.Event{Body: &world.HTTPGot{Status: 302, Elsewhere: true}}, Good},
		{"no page in time", get, world.Event{Time: get.Deadline, Err: timeout}, Bad},
		{"connected", get, world.Event{Body: &world.Done{}}, Good},
		{"serving", get, world.Event{Body: &world.GRPCChecked{Status: "SERVING"}}, Good},
		{"not serving", get, world.Event{Body: &world.GRPCChecked{Status: "UNKNOWN"}}, Bad},
	} {
		if got, _ := Judge(test.r, test.ev); got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}
