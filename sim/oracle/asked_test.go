package oracle

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"seedlet.dev/sim/truth"
)

// What the container "app" of these stories is asked.
const (
	startupRequest   = "http :80/started"
	livenessRequest  = "exec alive"
	readinessRequest = "http :80/ready"
	preStopRequest   = "exec drain"
	postStartRequest = "exec warm"
)

func probe(success, failure int32, get, command string) *v1.Probe {
	p := &v1.Probe{PeriodSeconds: 1, TimeoutSeconds: 1, SuccessThreshold: success,
		FailureThreshold: failure}
	if command != "" {
		p.Exec = &v1.ExecAction{Command: []string{command}}
	} else {
		p.HTTPGet = &v1.HTTPGetAction{Path: get, Port: intstr.FromInt32(80)}
	}
	return p
}

func hook(command string) *v1.LifecycleHandler {
	return &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{command}}}
}

// with has a pod's first container changed.
func with(p *v1.Pod, change func(c *v1.Container)) *v1.Pod {
	change(&p.Spec.Containers[0])
	return p
}

func started(c *v1.Container) { c.StartupProbe = probe(1, 3, "/started", "") }
func alive(c *v1.Container)   { c.LivenessProbe = probe(1, 3, "", "alive") }
func ready(c *v1.Container)   { c.ReadinessProbe = probe(2, 3, "/ready", "") }
func preStop(c *v1.Container) {
	c.Lifecycle = &v1.Lifecycle{PreStop: hook("drain")}
}
func postStart(c *v1.Container) {
	c.Lifecycle = &v1.Lifecycle{PostStart: hook("warm")}
}

// runsWith is the usual beginning, with a container changed, a second after the agent's start.
func (s *story) runsWith(changes ...func(*v1.Container)) run {
	s.AgentStarted(s.now)
	s.wait(1)
	s.want(with(spec("u1", always, "app"), func(c *v1.Container) {
		for _, change := range changes {
			change(c)
		}
	}))
	return s.start(s.sandbox("u1", 0), "app", 0)
}

// asked has a request reach a container that does not end.
func (r run) asked(request string) {
	f := r.f
	f.Request = request
	r.s.fact(truth.Asked, f)
}

// replied has it end.
func (r run) replied(request string, reply truth.Reply) {
	f := r.f
	f.Request, f.Reply = request, reply
	r.s.fact(truth.Replied, f)
}

// answers has a container asked the same once a second, and answer good, bad, refused or not: g,
// b, r, n.
func (r run) answers(request, replies string) {
	for _, letter := range replies {
		r.s.wait(1)
		r.asked(request)
		r.s.wait(0.001)
		if letter == 'n' {
			r.s.wait(1)
		}
		r.replied(request, map[rune]truth.Reply{'g': truth.ReplyGood, 'b': truth.ReplyBad,
			'r': truth.ReplyRefused, 'n': truth.ReplyNone}[letter])
	}
}

// restart kills the agent and starts it again.
func (s *story) restart() {
	s.wait(1)
	s.AgentKilled(s.now)
	s.wait(1)
	s.AgentStarted(s.now)
}

// The automaton of thresholds: what may have come of answers.
func TestStanding(t *testing.T) {
	for _, c := range []struct {
		name        string
		answers     []outcome
		good, other bool
	}{
		{"nothing", nil, false, true},
		{"one good of two", []outcome{canGood}, false, true},
		{"two good", []outcome{canGood, canGood}, true, false},
		{"interrupted", []outcome{canGood, canBad, canGood}, false, true},
		{"good, then not long enough bad", []outcome{canGood, canGood, canBad, canBad}, true, false},
		{"good, then bad", []outcome{canGood, canGood, canBad, canBad, canBad}, false, true},
		{"one was lost", []outcome{canGood, canNothing, canGood}, true, false},
		{"one may have been lost", []outcome{canGood, canGood | canBad}, true, true},
	} {
		s := undecidedOf(&v1.Probe{SuccessThreshold: 2, FailureThreshold: 3})
		for _, a := range c.answers {
			s.take(begin, a)
		}
		if s.may(good) != c.good || s.mayBeOther() != c.other {
			t.Errorf("%s: may be %+v", c.name, s.can)
		}
	}
}

func TestAsksOf(t *testing.T) {
	service := "db"
	c := &v1.Container{
		Ports:          []v1.ContainerPort{{Name: "web", ContainerPort: 8080}},
		StartupProbe:   &v1.Probe{},
		LivenessProbe:  &v1.Probe{},
		ReadinessProbe: &v1.Probe{},
		Lifecycle: &v1.Lifecycle{PostStart: hook("warm"),
			PreStop: &v1.LifecycleHandler{Sleep: &v1.SleepAction{Seconds: 3}}},
	}
	c.StartupProbe.TCPSocket = &v1.TCPSocketAction{Port: intstr.FromString("web")}
	c.LivenessProbe.GRPC = &v1.GRPCAction{Port: 90, Service: &service}
	c.ReadinessProbe.Exec = &v1.ExecAction{Command: []string{"warm"}}
	want := map[purpose]string{forStartup: "tcp :8080", forLiveness: "grpc :90/db",
		forReadiness: "exec warm", forPostStart: "exec warm"}
	asks := asksOf(c)
	if len(asks) != len(want) {
		t.Fatalf("%d asks", len(asks))
	}
	for _, a := range asks {
		if a.texts[0] != want[a.purpose] || a.shared != (a.texts[0] == "exec warm") {
			t.Errorf("%s: %q, shared %t", a.purpose, a.texts, a.shared)
		}
	}
}

// A fault may have struck whatever the story does between two seconds of it.
func (s *story) struckBetween(from, to float64) {
	at := func(seconds float64) time.Time {
		return begin.Add(time.Duration(seconds * float64(time.Second)))
	}
	s.world.opts.Struck = func(_ string, a, b time.Time) bool {
		return !b.Before(at(from)) && !a.After(at(to))
	}
}
