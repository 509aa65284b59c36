package e2e

import (
	"regexp"
	"slices"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

var restartParts = []part{
	{"Always restarts a completed container", true, func(t *testing.T, s *suite) {
		s.runPod(t, "always", `
  containers:
  - {name: main, image: sample, args: [exit, --after, 200ms]}`)
		s.eventually(t, "main was restarted", func() bool {
			return s.newestContainer(t, "always", "main").GetMetadata().GetAttempt() >= 1
		})
		s.waitWaiting(t, "always", "main", "CrashLoopBackOff")
	}},
	{"OnFailure restarts only failed containers", false, func(t *testing.T, s *suite) {
		s.runPod(t, "onfailure", `
  restartPolicy: OnFailure
  containers:
  - {name: good, image: sample, args: [exit]}
  - {name: bad, image: sample, args: [exit, --code, "1"]}`)
		s.waitRestarted(t, "onfailure", "bad", 1)
		if c := s.waitExited(t, "onfailure", "good", 0); c.ExitCode != 0 {
			t.Errorf("good exited with %d", c.ExitCode)
		}
		s.waitPhase(t, "onfailure", v1.PodRunning)
		s.checkAttemptStays(t, "onfailure", "good", 0)
	}},
	{"Never restarts no container", false, func(t *testing.T, s *suite) {
		s.runPod(t, "never", `
  restartPolicy: Never
  containers:
  - {name: good, image: sample, args: [exit]}
  - {name: bad, image: sample, args: [exit, --code, "7"]}`)
		s.waitPhase(t, "never", v1.PodFailed)
		if c := s.waitExited(t, "never", "bad", 0); c.ExitCode != 7 {
			t.Errorf("bad exited with %d, want 7", c.ExitCode)
		}
		s.checkAttemptStays(t, "never", "good", 0)
		if got := s.containerStatus(t, "never", "bad").State.Terminated; got == nil ||
			got.ExitCode != 7 || got.Reason != "Error" {
			t.Errorf("the terminated state of bad in /pods is %v", got)
		}
	}},
	{"a crash loop backs off", false, testCrashLoop},
	{"a container's own restart policy overrides the pod's", true, func(t *testing.T, s *suite) {
		s.runPod(t, "ownpolicy", `
  restartPolicy: Never
  containers:
  - {name: again, image: sample, restartPolicy: OnFailure, args: [exit, --code, "1"]}
  - {name: once, image: sample, args: [exit, --code, "1"]}`)
		s.waitRestarted(t, "ownpolicy", "again", 1)
		s.checkAttemptStays(t, "ownpolicy", "once", 0)
	}},
	{"restart rules select exit codes", true, func(t *testing.T, s *suite) {
		const rules = `
    restartPolicy: Never
    restartPolicyRules:
    - {action: Restart, exitCodes: {operator: In, values: [42]}}`
		s.runPod(t, "rules", `
  restartPolicy: Never
  containers:
  - name: again
    image: sample
    args: [exit, --code, "42"]`+rules+`
  - name: once
    image: sample
    args: [exit, --code, "1"]`+rules)
		s.waitRestarted(t, "rules", "again", 1)
		s.checkAttemptStays(t, "rules", "once", 0)
	}},
	{"a restart rule restarts all containers", true, testRestartAllContainers},
	{"activeDeadlineSeconds ends the pod", false, func(t *testing.T, s *suite) {
		start := time.Now()
		s.runPod(t, "deadline", `
  activeDeadlineSeconds: 40
  containers:
  - {name: main, image: sample, args: [sleep]}`)
		s.waitPhase(t, "deadline", v1.PodFailed)
		if took := time.Since(start); took < 40*time.Second {
			t.Errorf("the pod failed after %v, want 40 s at least", took)
		}
		if got := s.agent.servedPod(t, "deadline").Status.Reason; got != "DeadlineExceeded" {
			t.Errorf("the pod's reason is %q", got)
		}
		if firstTimeOf(s.logLines(t, "deadline", "main", "0"), "sleeping").IsZero() {
			t.Log("not checked: main had not started by the deadline, so nothing was asked to stop")
			return
		}
		s.waitLogLine(t, "deadline", "main", "0", "asked to stop: terminated")
		s.checkAttemptStays(t, "deadline", "main", 0)
	}},
}

// testRestartAllContainers checks that a container that exits with 88 restarts all containers of
// its pod (KEP-5532): quickly, from the first init container on, in the same sandbox.
func testRestartAllContainers(t *testing.T, s *suite) {
	s.runPod(t, "all", `
  restartPolicy: Never
  initContainers:
  - {name: setup, image: sample, args: [exit]}
  - {name: side, image: sample, restartPolicy: Always, args: [sleep]}
  containers:
  - name: main
    image: sample
    args: [sleep, --code, "88"]
    restartPolicy: Never
    restartPolicyRules:
    - {action: RestartAllContainers, exitCodes: {operator: In, values: [88]}}
  - {name: stubborn, image: sample, args: [sleep, --ignore-term]}`)
	s.waitRunning(t, "all", "stubborn", 0)
	s.waitLogLine(t, "all", "stubborn", "0", "sleeping") // it ignores TERM from here on
	s.waitLogLine(t, "all", "main", "0", "sleeping")
	s.waitRunning(t, "all", "main", 0)
	sandboxes, address := s.sandboxLines(t, "all"), s.agent.servedPod(t, "all").Status.PodIP
	restarting := func() v1.PodCondition {
		conditions := s.agent.servedPod(t, "all").Status.Conditions
		i := slices.IndexFunc(conditions, func(c v1.PodCondition) bool {
			return c.Type == v1.AllContainersRestarting
		})
		if i < 0 {
			return v1.PodCondition{}
		}
		return conditions[i]
	}
	s.eventually(t, "the pod has condition AllContainersRestarting", func() bool {
		return restarting().Status == v1.ConditionFalse
	})
	before := restarting().LastTransitionTime
	s.signalContainer(t, s.newestContainer(t, "all", "main").GetId(), syscall.SIGTERM)
	s.eventually(t, "AllContainersRestarting is true in /pods, or was", func() bool {
		now := restarting()
		return now.Status == v1.ConditionTrue || now.LastTransitionTime.After(before.Time)
	})
	s.waitRunning(t, "all", "stubborn", 1)
	s.waitPhase(t, "all", v1.PodRunning)
	main := s.containerStatus(t, "all", "main").LastTerminationState.Terminated
	last := s.containerStatus(t, "all", "stubborn").LastTerminationState.Terminated
	if main == nil || main.ExitCode != 88 || last == nil || last.ExitCode != 137 {
		t.Fatalf("main terminated as %v, stubborn as %v", main, last)
	}
	took := last.FinishedAt.Sub(main.FinishedAt.Time)
	if took >= v1.DefaultTerminationGracePeriodSeconds*time.Second {
		t.Errorf("stubborn ended %v after main, by its whole grace period", took)
	}
	setup, side := s.newestContainer(t, "all", "setup"), s.newestContainer(t, "all", "side")
	if a, b := setup.GetMetadata().GetAttempt(), side.GetMetadata().GetAttempt(); a != 1 || b != 1 {
		t.Errorf("setup is at attempt %d, side at %d", a, b)
	}
	if at := time.Unix(0, setup.GetStartedAt()); at.Before(last.FinishedAt.Time) {
		t.Errorf("setup was restarted at %v, before stubborn ended at %v", at, last.FinishedAt)
	}
	if now := s.sandboxLines(t, "all"); !slices.Equal(now, sandboxes) {
		t.Errorf("the sandboxes are %q, before %q", now, sandboxes)
	}
	if now := s.agent.servedPod(t, "all").Status.PodIP; now != address {
		t.Errorf("the pod's IP is %s, before %s", now, address)
	}
}

// testCrashLoop checks that the first restart comes at once and the second one after ten seconds.
func testCrashLoop(t *testing.T, s *suite) {
	s.runPod(t, "crashloop", `
  containers:
  - {name: main, image: sample, args: [exit, --code, "3"]}`)
	ended := map[uint32]*runtimeapi.ContainerStatus{} // by attempt
	var shown v1.ContainerStatus
	// The runtime keeps the last attempt but one: each is seen during two back-offs.
	s.eventually(t, "the second and the third attempt were seen, and the back-off", func() bool {
		for _, c := range s.listContainers(t, "crashloop", "main") {
			response, err := s.node.Runtime().ContainerStatus(t.Context(),
				&runtimeapi.ContainerStatusRequest{ContainerId: c.Id})
			if err == nil && response.Status.State == exited {
				ended[c.Metadata.Attempt] = response.Status
			}
		}
		now := s.containerStatus(t, "crashloop", "main")
		if now.State.Waiting != nil && now.State.Waiting.Reason == "CrashLoopBackOff" {
			shown = now
		}
		return ended[1] != nil && ended[2] != nil && shown.Name != ""
	})
	// The agent's own tests look at the number of seconds, which has doubled on a slow machine.
	want := regexp.MustCompile(`^back-off (10|20|40|1m20|2m40)s restarting failed container=main ` +
		`pod=crashloop-e2e_default\(`)
	if message := shown.State.Waiting.Message; !want.MatchString(message) {
		t.Errorf("the message is %q, want %q", message, want)
	}
	last := shown.LastTerminationState.Terminated
	if last == nil || last.ExitCode != 3 {
		t.Errorf("the last termination is %v", last)
	}
	wait := time.Duration(ended[2].StartedAt - ended[1].FinishedAt)
	if wait < 10*time.Second {
		t.Errorf("the second restart came after %v, want 10 s at least", wait)
	}
}
