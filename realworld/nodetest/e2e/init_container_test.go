package e2e

import (
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

var initContainerParts = []part{
	{"init containers run in sequence", true, func(t *testing.T, s *suite) {
		s.runPod(t, "inits", `
  initContainers:
  - {name: first, image: sample, args: [exit, --after, 500ms]}
  - {name: second, image: sample, args: [exit, --after, 500ms]}
  containers:
  - {name: main, image: sample, args: [sleep]}`)
		s.waitRunning(t, "inits", "main", 0)
		before := s.waitExited(t, "inits", "first", 0).FinishedAt
		for _, name := range []string{"second", "main"} {
			c := s.newestContainer(t, "inits", name)
			if c.StartedAt < before {
				t.Errorf("%s started at %d, the init container before it finished at %d", name,
					c.StartedAt, before)
			}
			before = c.FinishedAt
		}
	}},
	{"a failed init container fails a pod with restartPolicy Never", true,
		func(t *testing.T, s *suite) {
			s.runPod(t, "initfails", `
  restartPolicy: Never
  initContainers:
  - {name: first, image: sample, args: [exit, --code, "1"]}
  containers:
  - {name: main, image: sample, args: [sleep]}`)
			s.waitPhase(t, "initfails", v1.PodFailed)
			if c := s.newestContainer(t, "initfails", "main"); c != nil {
				t.Errorf("main was created: %v", c)
			}
		}},
	{"sidecars start before the main container and end after it", false, testSidecars},
	{"a sidecar that exits is restarted", true, func(t *testing.T, s *suite) {
		s.runPod(t, "sidedies", `
  restartPolicy: Never
  initContainers:
  - {name: side, image: sample, restartPolicy: Always, args: [exit, --after, 1s]}
  containers:
  - {name: main, image: sample, args: [sleep]}`)
		s.waitRestarted(t, "sidedies", "side", 1)
		s.waitLogLine(t, "sidedies", "main", "0", "sleeping")
		s.waitRunning(t, "sidedies", "main", 0)
		s.signalContainer(t, s.newestContainer(t, "sidedies", "main").GetId(), syscall.SIGTERM)
		s.waitPhase(t, "sidedies", v1.PodSucceeded)
	}},
}

// testSidecars runs two sidecars around an init container and a main container. The containers
// after a sidecar wait for its startup probe. The sidecars end in reverse order after the main
// container.
func testSidecars(t *testing.T, s *suite) {
	s.runPod(t, "sidecars", `
  restartPolicy: Never
  initContainers:
  - name: outer
    image: sample
    restartPolicy: Always
    args: [health, --sick]
    startupProbe: {exec: {command: [/sample, check]}, periodSeconds: 1, failureThreshold: 600,
      timeoutSeconds: 60}
  - {name: setup, image: sample, args: [exit]}
  - name: inner
    image: sample
    restartPolicy: Always
    args: [sleep, --stop-takes, 1500ms]
  containers:
  - {name: main, image: sample, args: [exit, --after, 2s]}`)
	s.waitRunning(t, "sidecars", "outer", 0)
	time.Sleep(quietPeriod)
	if c := s.newestContainer(t, "sidecars", "setup"); c != nil {
		t.Errorf("setup was created before the sidecar had started: %v", c)
	}
	s.makeHealthy(t, "sidecars", "outer")
	s.waitPhase(t, "sidecars", v1.PodSucceeded)
	order := []string{"setup", "inner", "main"}
	for i, name := range order[1:] {
		before := s.newestContainer(t, "sidecars", order[i])
		c := s.newestContainer(t, "sidecars", name)
		if c.GetStartedAt() < before.GetStartedAt() {
			t.Errorf("%s started before %s", name, order[i])
		}
	}
	main := time.Unix(0, s.newestContainer(t, "sidecars", "main").GetFinishedAt())
	inner := s.waitLogLine(t, "sidecars", "inner", "0", "asked to stop")
	innerEnd := time.Unix(0, s.newestContainer(t, "sidecars", "inner").GetFinishedAt())
	outer := s.waitLogLine(t, "sidecars", "outer", "0", "asked to stop")
	if inner.Before(main) || innerEnd.Before(inner) || outer.Before(innerEnd) {
		t.Errorf("main ended at %v, inner got TERM at %v and ended at %v, outer got TERM at %v", main,
			inner, innerEnd, outer)
	}
}
