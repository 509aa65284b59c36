package e2e

import (
	"os"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

var hookParts = []part{
	{"postStart is waited for", false, func(t *testing.T, s *scene) {
		s.run(t, "poststart", `
  containers:
  - name: first
    image: sample
    args: [sleep]
    lifecycle: {postStart: {exec: {command: [/sample, exit, --after, 2s]}}}
  - name: second
    image: sample
    args: [sleep]
    lifecycle: {postStart: {exec: {command: [/sample, say, hello]}}}`)
		s.runs(t, "poststart", "second", 0)
		first, second := s.container(t, "poststart", "first"), s.container(t, "poststart", "second")
		if d := time.Duration(second.StartedAt - first.StartedAt); d < 2*time.Second {
			t.Errorf("second started %v after first, whose hook takes 2 s", d)
		}
		s.says(t, "poststart", "second", "0", "hello")
		s.eventually(t, soon, "both are ready", func() bool {
			return s.status(t, "poststart", "first").Ready &&
				s.status(t, "poststart", "second").Ready
		})
	}},
	{"a failed postStart ends the container", true, func(t *testing.T, s *scene) {
		s.run(t, "poststartfails", `
  restartPolicy: Never
  containers:
  - name: main
    image: sample
    args: [sleep]
    lifecycle: {postStart: {exec: {command: [/sample, exit, --code, "1"]}}}`)
		s.says(t, "poststartfails", "main", "0", "asked to stop")
		s.ends(t, "poststartfails", "main", 0)
		s.reaches(t, "poststartfails", v1.PodSucceeded)
	}},
	{"preStop comes before TERM, by command, HTTP and sleep", false, preStops},
	{"a long preStop is given up, with two seconds more", false, longPreStop},
	{"a container chooses its stop signal", true, func(t *testing.T, s *scene) {
		s.run(t, "stopsignal", `
  os: {name: linux}
  activeDeadlineSeconds: 10
  containers:
  - name: main
    image: sample
    args: [sleep]
    lifecycle: {stopSignal: SIGUSR1}`)
		s.says(t, "stopsignal", "main", "0", "asked to stop: user defined signal 1")
	}},
}

// follow opens the log of a container, so that it can be read when the pod has gone.
func (s *scene) follow(t *testing.T, pod, container string) func() []line {
	t.Helper()
	file, err := os.Open(s.logPath(t, pod, container, "0"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() }) // nothing was written
	return func() []line { return linesOf(t, file) }
}

func preStops(t *testing.T, s *scene) {
	s.run(t, "prestop", `
  terminationGracePeriodSeconds: 20
  containers:
  - name: exec
    image: sample
    args: [sleep]
    lifecycle: {preStop: {exec: {command: [/sample, say, farewell]}}}
  - name: http
    image: sample
    args: [health]
    ports: [{name: web, containerPort: 8080}]
    lifecycle:
      preStop:
        httpGet: {port: web, path: /bye, httpHeaders: [{name: X-Sample, value: dear}]}
  - name: sleep
    image: sample
    args: [sleep]
    lifecycle: {preStop: {sleep: {seconds: 3}}}`)
	s.runs(t, "prestop", "sleep", 0)
	s.says(t, "prestop", "sleep", "0", "sleeping")
	s.says(t, "prestop", "http", "0", "serving")
	exec, http := s.follow(t, "prestop", "exec"), s.follow(t, "prestop", "http")
	sleep := s.follow(t, "prestop", "sleep")
	removed := time.Now()
	s.agent.remove(t, "prestop")
	s.eventually(t, soon, "prestop is gone", func() bool { return s.gone(t, "prestop") })
	for _, c := range []struct {
		lines []line
		hook  string
	}{{exec(), "farewell"}, {http(), "GET /bye dear"}} {
		hook, term := when(c.lines, c.hook), when(c.lines, "asked to stop")
		if hook.IsZero() || !hook.Before(term) {
			t.Errorf("not %q and then TERM: %v", c.hook, c.lines)
		}
	}
	lines := sleep()
	if term := when(lines, "asked to stop"); term.Sub(removed) < 3*time.Second {
		t.Errorf("TERM came %v after the removal, preStop sleeps for 3 s", term.Sub(removed))
	}
}

func longPreStop(t *testing.T, s *scene) {
	s.run(t, "longprestop", `
  terminationGracePeriodSeconds: 4
  containers:
  - name: main
    image: sample
    args: [sleep, --ignore-term]
    lifecycle: {preStop: {exec: {command: [/sample, exit, --after, 60s]}}}`)
	s.says(t, "longprestop", "main", "0", "sleeping")
	s.runs(t, "longprestop", "main", 0) // it may say so before the runtime does
	log := s.follow(t, "longprestop", "main")
	removed := time.Now()
	s.agent.remove(t, "longprestop")
	s.eventually(t, soon, "longprestop does not run", func() bool {
		return !slices.ContainsFunc(s.list(t, "longprestop", "main"), isRunning)
	})
	ended := time.Since(removed)
	term := when(log(), "asked to stop").Sub(removed)
	if term < 4*time.Second || ended < 5500*time.Millisecond || ended > 12*time.Second {
		t.Errorf("TERM after %v, the end after %v; want 4 s and 6 s", term, ended)
	}
}
