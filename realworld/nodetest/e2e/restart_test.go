package e2e

import (
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

var restartParts = []part{
	{"Always runs again what has completed", true, func(t *testing.T, s *scene) {
		s.run(t, "always", `
  containers:
  - {name: main, image: sample, args: [exit, --after, 200ms]}`)
		s.eventually(t, soon, "it ran twice", func() bool {
			return s.container(t, "always", "main").GetMetadata().GetAttempt() >= 1
		})
		s.waitsBecause(t, "always", "main", "CrashLoopBackOff")
	}},
	{"OnFailure runs again only what has failed", false, func(t *testing.T, s *scene) {
		s.run(t, "onfailure", `
  restartPolicy: OnFailure
  containers:
  - {name: good, image: sample, args: [exit]}
  - {name: bad, image: sample, args: [exit, --code, "1"]}`)
		s.ends(t, "onfailure", "bad", 1)
		if c := s.ends(t, "onfailure", "good", 0); c.ExitCode != 0 {
			t.Errorf("good exited with %d", c.ExitCode)
		}
		s.reaches(t, "onfailure", v1.PodRunning)
		s.stays(t, "onfailure", "good", 0)
	}},
	{"Never runs nothing again", false, func(t *testing.T, s *scene) {
		s.run(t, "never", `
  restartPolicy: Never
  containers:
  - {name: good, image: sample, args: [exit]}
  - {name: bad, image: sample, args: [exit, --code, "7"]}`)
		s.reaches(t, "never", v1.PodFailed)
		if c := s.ends(t, "never", "bad", 0); c.ExitCode != 7 {
			t.Errorf("bad exited with %d, want 7", c.ExitCode)
		}
		s.stays(t, "never", "good", 0)
		if got := s.status(t, "never", "bad").State.Terminated; got == nil ||
			got.ExitCode != 7 || got.Reason != "Error" {
			t.Errorf("/pods says that bad is %v", got)
		}
	}},
	{"a crash loop backs off", false, crashLoop},
	{"a container's own policy comes first", true, func(t *testing.T, s *scene) {
		s.run(t, "ownpolicy", `
  restartPolicy: Never
  containers:
  - {name: again, image: sample, restartPolicy: OnFailure, args: [exit, --code, "1"]}
  - {name: once, image: sample, args: [exit, --code, "1"]}`)
		s.ends(t, "ownpolicy", "again", 1)
		s.stays(t, "ownpolicy", "once", 0)
	}},
	{"restart rules go by the exit code", true, func(t *testing.T, s *scene) {
		const rules = `
    restartPolicy: Never
    restartPolicyRules:
    - {action: Restart, exitCodes: {operator: In, values: [42]}}`
		s.run(t, "rules", `
  restartPolicy: Never
  containers:
  - name: again
    image: sample
    args: [exit, --code, "42"]`+rules+`
  - name: once
    image: sample
    args: [exit, --code, "1"]`+rules)
		s.ends(t, "rules", "again", 1)
		s.stays(t, "rules", "once", 0)
	}},
	{"a rule restarts all containers", true, allRestart},
	{"an active deadline ends the pod", false, func(t *testing.T, s *scene) {
		start := time.Now()
		s.run(t, "deadline", `
  activeDeadlineSeconds: 12
  containers:
  - {name: main, image: sample, args: [sleep]}`)
		s.runs(t, "deadline", "main", 0)
		s.reaches(t, "deadline", v1.PodFailed)
		if took := time.Since(start); took < 12*time.Second {
			t.Errorf("the pod ended after %v", took)
		}
		if got := s.agent.pod(t, "deadline").Status.Reason; got != "DeadlineExceeded" {
			t.Errorf("the pod's reason is %q", got)
		}
		s.says(t, "deadline", "main", "0", "asked to stop: terminated")
		s.stays(t, "deadline", "main", 0)
	}},
}

// allRestart sees that a container that exits with 88 has all of its pod begun anew: quickly, from
// the first init container on, in the same sandbox.
func allRestart(t *testing.T, s *scene) {
	s.run(t, "all", `
  restartPolicy: Never
  initContainers:
  - {name: setup, image: sample, args: [exit]}
  - {name: side, image: sample, restartPolicy: Always, args: [sleep]}
  containers:
  - name: main
    image: sample
    args: [exit, --after, 10s, --code, "88"]
    restartPolicy: Never
    restartPolicyRules:
    - {action: RestartAllContainers, exitCodes: {operator: In, values: [88]}}
  - {name: stubborn, image: sample, args: [sleep, --ignore-term]}`)
	s.runs(t, "all", "stubborn", 0)
	boxes, address := s.sandboxes(t, "all"), s.agent.pod(t, "all").Status.PodIP
	s.eventually(t, soon, "/pods says that all containers restart", func() bool {
		for _, c := range s.agent.pod(t, "all").Status.Conditions {
			if c.Type == v1.AllContainersRestarting {
				return c.Status == v1.ConditionTrue
			}
		}
		return false
	})
	s.runs(t, "all", "stubborn", 1)
	s.reaches(t, "all", v1.PodRunning)
	main := s.status(t, "all", "main").LastTerminationState.Terminated
	last := s.status(t, "all", "stubborn").LastTerminationState.Terminated
	if main == nil || main.ExitCode != 88 || last == nil || last.ExitCode != 137 {
		t.Fatalf("main ended as %v, stubborn as %v", main, last)
	}
	if took := last.FinishedAt.Sub(main.FinishedAt.Time); took > 10*time.Second {
		t.Errorf("stubborn ended %v after main", took)
	}
	setup, side := s.container(t, "all", "setup"), s.container(t, "all", "side")
	if a, b := setup.GetMetadata().GetAttempt(), side.GetMetadata().GetAttempt(); a != 1 || b != 1 {
		t.Errorf("setup is at attempt %d, side at %d", a, b)
	}
	if at := time.Unix(0, setup.GetStartedAt()); at.Before(last.FinishedAt.Time) {
		t.Errorf("setup ran again at %v, stubborn ended at %v", at, last.FinishedAt)
	}
	if now := s.sandboxes(t, "all"); !slices.Equal(now, boxes) {
		t.Errorf("sandboxes %q, there were %q", now, boxes)
	}
	if now := s.agent.pod(t, "all").Status.PodIP; now != address {
		t.Errorf("address %s, it was %s", now, address)
	}
}

// crashLoop sees the first restart at once, and the second one after ten seconds.
func crashLoop(t *testing.T, s *scene) {
	s.run(t, "crashloop", `
  containers:
  - {name: main, image: sample, args: [exit, --code, "3"]}`)
	second := s.ends(t, "crashloop", "main", 1)
	message := s.waitsBecause(t, "crashloop", "main", "CrashLoopBackOff")
	const want = "back-off 10s restarting failed container=main pod=crashloop-e2e_default("
	if !strings.HasPrefix(message, want) {
		t.Errorf("the message is %q, want %q…", message, want)
	}
	last := s.status(t, "crashloop", "main").LastTerminationState.Terminated
	if last == nil || last.ExitCode != 3 {
		t.Errorf("the last termination is %v", last)
	}
	third := s.ends(t, "crashloop", "main", 2)
	wait := time.Duration(third.StartedAt - second.FinishedAt)
	if wait < 10*time.Second || wait > 15*time.Second {
		t.Errorf("the second restart came after %v, want 10 s", wait)
	}
}
