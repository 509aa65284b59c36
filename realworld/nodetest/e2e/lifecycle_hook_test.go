package e2e

import (
	"os"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

var lifecycleHookParts = []part{
	{"the next container starts after postStart", false, func(t *testing.T, s *suite) {
		s.runPod(t, "poststart", `
  containers:
  - name: first
    image: sample
    args: [sleep]
    lifecycle: {postStart: {exec: {command: [/sample, exit, --after, 2s]}}}
  - name: second
    image: sample
    args: [sleep]
    lifecycle: {postStart: {exec: {command: [/sample, say, hello]}}}`)
		s.waitRunning(t, "poststart", "second", 0)
		first := s.newestContainer(t, "poststart", "first")
		second := s.newestContainer(t, "poststart", "second")
		if d := time.Duration(second.StartedAt - first.StartedAt); d < 2*time.Second {
			t.Errorf("second started %v after first, whose hook takes 2 s", d)
		}
		s.waitLogLine(t, "poststart", "second", "0", "hello")
		s.eventually(t, "both containers are ready", func() bool {
			return s.containerStatus(t, "poststart", "first").Ready &&
				s.containerStatus(t, "poststart", "second").Ready
		})
	}},
	// The hook waits for the file that report writes once it listens for TERM: a program that is asked
	// to stop while it starts ends with another exit code.
	{"a failed postStart ends the container", true, func(t *testing.T, s *suite) {
		s.runPod(t, "poststartfails", `
  restartPolicy: Never
  containers:
  - name: main
    image: sample
    args: [report, --stay]
    lifecycle:
      postStart:
        exec: {command: [/sample, exit, --when, /written-by-report, --code, "1"]}`)
		s.waitLogLine(t, "poststartfails", "main", "0", "asked to stop")
		s.waitExited(t, "poststartfails", "main", 0)
		s.waitPhase(t, "poststartfails", v1.PodSucceeded)
	}},
	{"preStop hooks by command, HTTP and sleep run before TERM", false, testPreStopHooks},
	{"a preStop that uses up the grace period leaves 2 s until KILL", false, testLongPreStop},
	{"a container has its own stop signal", true, func(t *testing.T, s *suite) {
		s.runPod(t, "stopsignal", `
  os: {name: linux}
  containers:
  - name: main
    image: sample
    args: [sleep]
    lifecycle: {stopSignal: SIGUSR1}`)
		s.waitLogLine(t, "stopsignal", "main", "0", "sleeping")
		s.waitRunning(t, "stopsignal", "main", 0)
		log := s.openLog(t, "stopsignal", "main")
		s.agent.removeManifest(t, "stopsignal")
		s.eventually(t, "stopsignal is removed", func() bool { return s.isRemoved(t, "stopsignal") })
		lines := log()
		if firstTimeOf(lines, "asked to stop: user defined signal 1").IsZero() {
			t.Errorf("the container says %v", lines)
		}
	}},
}

// openLog opens the log of a container and returns a function that reads it, also after the pod is
// removed.
func (s *suite) openLog(t *testing.T, pod, container string) func() []logLine {
	t.Helper()
	file, err := os.Open(s.logPath(t, pod, container, "0"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() }) // the file was only read
	return func() []logLine { return parseLog(t, file) }
}

func testPreStopHooks(t *testing.T, s *suite) {
	s.runPod(t, "prestop", `
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
	s.waitRunning(t, "prestop", "sleep", 0)
	s.waitLogLine(t, "prestop", "sleep", "0", "sleeping")
	s.waitLogLine(t, "prestop", "http", "0", "serving")
	exec, http := s.openLog(t, "prestop", "exec"), s.openLog(t, "prestop", "http")
	sleep := s.openLog(t, "prestop", "sleep")
	removed := time.Now()
	s.agent.removeManifest(t, "prestop")
	s.eventually(t, "prestop is removed", func() bool {
		return s.isRemoved(t, "prestop")
	})
	for _, c := range []struct {
		lines []logLine
		hook  string
	}{{exec(), "farewell"}, {http(), "GET /bye dear"}} {
		hook, term := firstTimeOf(c.lines, c.hook), firstTimeOf(c.lines, "asked to stop")
		if hook.IsZero() || !hook.Before(term) {
			t.Errorf("want %q before TERM in the log: %v", c.hook, c.lines)
		}
	}
	lines := sleep()
	if term := firstTimeOf(lines, "asked to stop"); term.Sub(removed) < 3*time.Second {
		t.Errorf("TERM came %v after the removal, preStop sleeps for 3 s", term.Sub(removed))
	}
}

func testLongPreStop(t *testing.T, s *suite) {
	s.runPod(t, "longprestop", `
  terminationGracePeriodSeconds: 4
  containers:
  - name: main
    image: sample
    args: [sleep, --ignore-term]
    lifecycle: {preStop: {exec: {command: [/sample, exit, --after, 1000s]}}}`)
	s.waitLogLine(t, "longprestop", "main", "0", "sleeping")
	s.waitRunning(t, "longprestop", "main", 0) // the log may be ahead of the state in the runtime
	log := s.openLog(t, "longprestop", "main")
	removed := time.Now()
	s.agent.removeManifest(t, "longprestop")
	s.eventually(t, "no container of longprestop runs", func() bool {
		return !slices.ContainsFunc(s.listContainers(t, "longprestop", "main"), isRunning)
	})
	ended := time.Since(removed)
	term := firstTimeOf(log(), "asked to stop").Sub(removed)
	if term < 4*time.Second || ended < 5500*time.Millisecond {
		t.Errorf("TERM after %v, exit after %v; want 4 s and 6 s", term, ended)
	}
}
