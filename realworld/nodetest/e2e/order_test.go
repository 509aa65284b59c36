package e2e

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

var orderParts = []part{
	{"init containers run one after the other", true, func(t *testing.T, s *scene) {
		s.run(t, "inits", `
  initContainers:
  - {name: first, image: sample, args: [exit, --after, 500ms]}
  - {name: second, image: sample, args: [exit, --after, 500ms]}
  containers:
  - {name: main, image: sample, args: [sleep]}`)
		s.runs(t, "inits", "main", 0)
		before := s.ends(t, "inits", "first", 0).FinishedAt
		for _, name := range []string{"second", "main"} {
			c := s.container(t, "inits", name)
			if c.StartedAt < before {
				t.Errorf("%s started at %d, what comes before it ended at %d", name,
					c.StartedAt, before)
			}
			before = c.FinishedAt
		}
	}},
	{"a failed init container fails a pod that never restarts", true,
		func(t *testing.T, s *scene) {
			s.run(t, "initfails", `
  restartPolicy: Never
  initContainers:
  - {name: first, image: sample, args: [exit, --code, "1"]}
  containers:
  - {name: main, image: sample, args: [sleep]}`)
			s.reaches(t, "initfails", v1.PodFailed)
			if c := s.container(t, "initfails", "main"); c != nil {
				t.Errorf("main was made: %v", c)
			}
		}},
	{"sidecars start before and end after", false, sidecars},
	{"a sidecar that dies runs again", true, func(t *testing.T, s *scene) {
		s.run(t, "sidedies", `
  restartPolicy: Never
  initContainers:
  - {name: side, image: sample, restartPolicy: Always, args: [exit, --after, 1s]}
  containers:
  - {name: main, image: sample, args: [exit, --after, 4s]}`)
		s.ends(t, "sidedies", "side", 1)
		s.reaches(t, "sidedies", v1.PodSucceeded)
	}},
}

// sidecars sees two sidecars around an init container and a main one: what comes after a sidecar
// waits for its startup probe; they end in reverse order once the main container has.
func sidecars(t *testing.T, s *scene) {
	s.run(t, "sidecars", `
  restartPolicy: Never
  initContainers:
  - name: outer
    image: sample
    restartPolicy: Always
    args: [health, --sick]
    startupProbe: {exec: {command: [/sample, check]}, periodSeconds: 1, failureThreshold: 60}
  - {name: setup, image: sample, args: [exit]}
  - name: inner
    image: sample
    restartPolicy: Always
    args: [sleep, --stop-takes, 1500ms]
  containers:
  - {name: main, image: sample, args: [exit, --after, 2s]}`)
	s.runs(t, "sidecars", "outer", 0)
	time.Sleep(quiet)
	if c := s.container(t, "sidecars", "setup"); c != nil {
		t.Errorf("setup was made before the sidecar had started: %v", c)
	}
	s.heal(t, "sidecars", "outer")
	s.reaches(t, "sidecars", v1.PodSucceeded)
	order := []string{"setup", "inner", "main"}
	for i, name := range order[1:] {
		before, c := s.container(t, "sidecars", order[i]), s.container(t, "sidecars", name)
		if c.GetStartedAt() < before.GetStartedAt() {
			t.Errorf("%s started before %s", name, order[i])
		}
	}
	main := time.Unix(0, s.container(t, "sidecars", "main").GetFinishedAt())
	inner := s.says(t, "sidecars", "inner", "0", "asked to stop")
	innerEnd := time.Unix(0, s.container(t, "sidecars", "inner").GetFinishedAt())
	outer := s.says(t, "sidecars", "outer", "0", "asked to stop")
	if inner.Before(main) || innerEnd.Before(inner) || outer.Before(innerEnd) {
		t.Errorf("main ended at %v, inner was asked at %v and ended at %v, outer was asked at %v",
			main, inner, innerEnd, outer)
	}
}
