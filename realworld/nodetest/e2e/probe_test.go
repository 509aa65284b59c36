package e2e

import (
	"fmt"
	"testing"
	"time"
)

var probeParts = []part{
	{"probes by command", false, probes("exec", `exec: {command: [/sample, check]}`)},
	{"probes by HTTP", false, probes("http", `httpGet: {path: /healthz, port: 8080}`)},
	{"probes by TCP", true, probes("tcp", `tcpSocket: {port: 8082}`)},
	{"probes by gRPC", true, probes("grpc", `grpc: {port: 8081, service: sample}`)},
	{"a startup probe that fails restarts", true, func(t *testing.T, s *scene) {
		s.run(t, "neverstarts", `
  containers:
  - name: main
    image: sample
    args: [health, --sick]
    startupProbe: {httpGet: {path: /healthz, port: 8080}, periodSeconds: 1, failureThreshold: 2}`)
		s.runs(t, "neverstarts", "main", 1)
		s.says(t, "neverstarts", "main", "0", "asked to stop: terminated")
	}},
	{"a probe that takes too long fails", false, func(t *testing.T, s *scene) {
		s.run(t, "slowprobe", `
  containers:
  - name: main
    image: sample
    args: [health]
    livenessProbe:
      exec: {command: [/sample, check, --takes, 20s]}
      periodSeconds: 1
      timeoutSeconds: 1
      failureThreshold: 1`)
		s.runs(t, "slowprobe", "main", 1)
		s.says(t, "slowprobe", "main", "0", "asked to stop: terminated")
	}},
}

// probes sees all three probes of a container, by one kind of question: what is sick from the
// beginning does not start; what starts gets ready; what falls sick is not ready, and then
// restarted.
func probes(kind, handler string) func(*testing.T, *scene) {
	name := "probe" + kind
	return func(t *testing.T, s *scene) {
		s.run(t, name, fmt.Sprintf(`
  containers:
  - name: main
    image: sample
    args: [health, --sick]
    startupProbe: {%[1]s, periodSeconds: 1, failureThreshold: 60}
    readinessProbe: {%[1]s, periodSeconds: 1, failureThreshold: 1}
    livenessProbe: {%[1]s, periodSeconds: 1, failureThreshold: 4}`, handler))
		s.runs(t, name, "main", 0)
		is := func(what string, attempt int32, started, ready bool) {
			t.Helper()
			s.eventually(t, soon, name+" is "+what, func() bool {
				c := s.status(t, name, "main")
				return c.State.Running != nil && c.Started != nil && *c.Started == started &&
					c.Ready == ready && c.RestartCount == attempt
			})
		}
		is("not started", 0, false, false)
		time.Sleep(quiet)
		is("still not started", 0, false, false)
		s.heal(t, name, "main")
		is("started and ready", 0, true, true)
		s.sicken(t, name, "main")
		is("not ready", 0, true, false)
		s.runs(t, name, "main", 1)
		s.says(t, name, "main", "0", "asked to stop: terminated")
		is("new and not started", 1, false, false)
		s.heal(t, name, "main")
		is("started and ready again", 1, true, true)
	}
}
