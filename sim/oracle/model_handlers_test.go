package oracle

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"seedlet.dev/sim/truth"
)

// The requests of the handlers of the container "app".
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

// with changes a pod's first container.
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

// startPodWith starts the agent and, a second later, a pod with a changed container.
func (s *script) startPodWith(changes ...func(*v1.Container)) run {
	s.AgentStarted(s.now)
	s.wait(1)
	s.setDesired(with(spec("u1", always, "app"), func(c *v1.Container) {
		for _, change := range changes {
			change(c)
		}
	}))
	return s.start(s.sandbox("u1", 0), "app", 0)
}

// startRequest adds a request that reaches the container.
func (r run) startRequest(request string) {
	f := r.fact
	f.Request = request
	r.script.addFact(truth.HandlerRequested, f)
}

// endRequest ends the latest request.
func (r run) endRequest(request string, reply truth.Reply) {
	f := r.fact
	f.Request, f.Reply = request, reply
	r.script.addFact(truth.HandlerEnded, f)
}

// probe adds a request a second, with the replies success (g), failure (b), refused (r) or none
// (n).
func (r run) probe(request, replies string) {
	for _, letter := range replies {
		r.script.wait(1)
		r.startRequest(request)
		r.script.wait(0.001)
		if letter == 'n' {
			r.script.wait(1)
		}
		r.endRequest(request, map[rune]truth.Reply{'g': truth.ReplySuccess, 'b': truth.ReplyFailure,
			'r': truth.ReplyRefused, 'n': truth.ReplyNone}[letter])
	}
}

// restartAgent kills the agent and starts it again.
func (s *script) restartAgent() {
	s.wait(1)
	s.AgentKilled(s.now)
	s.wait(1)
	s.AgentStarted(s.now)
}

func TestHandlersOf(t *testing.T) {
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
	want := map[handlerKind]string{startupProbe: "tcp :8080", livenessProbe: "grpc :90/db",
		readinessProbe: "exec warm", postStartHook: "exec warm"}
	handlers := handlersOf(c)
	if len(handlers) != len(want) {
		t.Fatalf("%d handlers", len(handlers))
	}
	for _, h := range handlers {
		if h.requests[0] != want[h.kind] || h.isAmbiguous != (h.requests[0] == "exec warm") {
			t.Errorf("%s: requests %q, ambiguous %t", h.kind, h.requests, h.isAmbiguous)
		}
	}
}

// faultBetween makes a fault possible for every call between two times of the script, in seconds.
func (s *script) faultBetween(from, to float64) {
	at := func(seconds float64) time.Time {
		return begin.Add(time.Duration(seconds * float64(time.Second)))
	}
	s.model.opts.FaultPossible = func(_ string, a, b time.Time) bool {
		return !b.Before(at(from)) && !a.After(at(to))
	}
}
