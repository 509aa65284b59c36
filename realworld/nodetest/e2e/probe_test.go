package e2e

import (
	"fmt"
	"testing"
	"time"
)

var probeParts = []part{
	{"probes by command", false, probeTest("exec", `exec: {command: [/sample, check]}`)},
	{"probes by HTTP", false, probeTest("http", `httpGet: {path: /healthz, port: 8080}`)},
	{"probes by TCP", true, probeTest("tcp", `tcpSocket: {port: 8082}`)},
	{"probes by gRPC", true, probeTest("grpc", `grpc: {port: 8081, service: sample}`)},
	{"a failing startup probe restarts the container", true, func(t *testing.T, s *suite) {
		s.runPod(t, "neverstarts", `
  containers:
  - name: main
    image: sample
    args: [health, --sick]
    startupProbe: {httpGet: {path: /healthz, port: 8080}, periodSeconds: 1, failureThreshold: 15}`)
		s.waitLogLine(t, "neverstarts", "main", anyAttempt, "asked to stop: terminated")
		s.waitRestarted(t, "neverstarts", "main", 1)
	}},
	{"a probe that times out fails", false, func(t *testing.T, s *suite) {
		s.runPod(t, "slowprobe", `
  containers:
  - name: main
    image: sample
    args: [health]
    livenessProbe:
      exec: {command: [/sample, check, --takes, 20s]}
      periodSeconds: 1
      timeoutSeconds: 1
      failureThreshold: 1`)
		s.waitLogLine(t, "slowprobe", "main", anyAttempt, "asked to stop: terminated")
		s.waitRestarted(t, "slowprobe", "main", 1)
	}},
}

// probeTest returns a test of all three probes of a container with one handler. A container that is
// unhealthy from the beginning does not become started. A healthy one becomes started and ready. If
// it becomes unhealthy, it is first not ready, and then restarted.
func probeTest(kind, handler string) func(*testing.T, *suite) {
	name := "probe" + kind
	return func(t *testing.T, s *suite) {
		s.runPod(t, name, fmt.Sprintf(`
  containers:
  - name: main
    image: sample
    args: [health, --sick]
    startupProbe: {%[1]s, periodSeconds: 1, failureThreshold: 600, timeoutSeconds: 60}
    readinessProbe: {%[1]s, periodSeconds: 1, failureThreshold: 1, timeoutSeconds: 60}
    livenessProbe: {%[1]s, periodSeconds: 1, failureThreshold: 15, timeoutSeconds: 60}`, handler))
		s.waitRunning(t, name, "main", 0)
		waitStatus := func(condition string, attempt int32, started, ready bool) {
			t.Helper()
			s.eventually(t, name+" is "+condition, func() bool {
				c := s.containerStatus(t, name, "main")
				return c.State.Running != nil && c.Started != nil && *c.Started == started &&
					c.Ready == ready && c.RestartCount == attempt
			})
		}
		waitStatus("not started", 0, false, false)
		time.Sleep(quietPeriod)
		waitStatus("still not started", 0, false, false)
		s.makeHealthy(t, name, "main")
		waitStatus("started and ready", 0, true, true)
		s.makeUnhealthy(t, name, "main")
		waitStatus("not ready", 0, true, false)
		s.waitRunning(t, name, "main", 1)
		s.waitLogLine(t, name, "main", "0", "asked to stop: terminated")
		waitStatus("restarted and not started", 1, false, false)
		s.makeHealthy(t, name, "main")
		waitStatus("started and ready again", 1, true, true)
	}
}
