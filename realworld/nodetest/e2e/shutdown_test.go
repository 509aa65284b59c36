package e2e

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/realworld/nodetest"
	"seedlet.dev/realworld/systemdtest"
)

// TestNodeShutdown shuts a machine down, whose logind delays that until the pods have ended. The
// target that would power it off fails, so that logind then announces that the machine stays.
func TestNodeShutdown(t *testing.T) {
	t.Parallel()
	if !systemdtest.Inside(t) {
		return
	}
	const failing = "[Unit]\nDescription=Fails\nAssertPathExists=/does/not/exist\n"
	err := os.WriteFile("/etc/systemd/system/poweroff.target", []byte(failing), 0o644)
	if err != nil {
		t.Fatal(err)
	}
	run(t, "systemctl", "daemon-reload")
	s := &suite{node: nodetest.NewWith(t, nodetest.Options{
		Version: nodetest.V2, SystemdCgroups: true})}
	s.agent = newAgent(t, s.node, "shutdownGracePeriod: 25s\nshutdownGracePeriodCriticalPods: 10s\n")
	s.agent.start(t)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the end of the agent's log:\n%s", s.agent.logTail(t, 60))
		}
	})
	s.runPod(t, "hooked", `
  terminationGracePeriodSeconds: 20
  containers:
  - name: main
    image: sample
    args: [sleep]
    lifecycle: {preStop: {exec: {command: [/sample, exit, --after, 3s]}}}`)
	s.runPod(t, "stubborn", `
  terminationGracePeriodSeconds: 600
  containers:
  - {name: main, image: sample, args: [sleep, --ignore-term]}`)
	s.runPod(t, "critical", `
  priority: 2000000000
  terminationGracePeriodSeconds: 5
  containers:
  - {name: main, image: sample, args: [sleep]}`)
	for _, name := range []string{"hooked", "stubborn", "critical"} {
		s.waitLogLine(t, name, "main", "0", "sleeping")
		s.waitRunning(t, name, "main", 0)
	}
	s.eventually(t, "the agent holds the lock", func() bool { return holdsLock(t) })
	if most := run(t, "busctl", "get-property", "org.freedesktop.login1", "/org/freedesktop/login1",
		"org.freedesktop.login1.Manager", "InhibitDelayMaxUSec"); most != "t 25000000" {
		t.Errorf("logind waits %s µs, want 25 s", most)
	}

	s.testShutdown(t)
}

// testShutdown has the machine power off, which fails in the end, and another pod come meanwhile.
func (s *suite) testShutdown(t *testing.T) {
	started := time.Now()
	run(t, "systemctl", "poweroff", "--no-block")
	time.Sleep(time.Second)
	s.runPod(t, "late", `
  containers:
  - {name: main, image: sample, args: [sleep]}`)
	for _, name := range []string{"hooked", "stubborn", "critical"} {
		s.waitPhase(t, name, v1.PodFailed)
		if p := s.agent.servedPod(t, name); p.Status.Reason != "Terminated" ||
			p.Status.Message != "Pod was terminated in response to imminent node shutdown." {
			t.Errorf("%s: %q, %q", name, p.Status.Reason, p.Status.Message)
		}
	}
	s.eventually(t, "the lock is released", func() bool { return !holdsLock(t) || s.isAdmitted(t) })
	took := time.Since(started)
	ends := map[string]time.Time{}
	for _, name := range []string{"hooked", "stubborn", "critical"} {
		ends[name] = time.Unix(0, s.newestContainer(t, name, "main").GetFinishedAt())
	}
	if d := ends["hooked"].Sub(started); d < 3*time.Second || d > 14*time.Second {
		t.Errorf("the pod with a hook of 3 s has ended after %v", d)
	}
	if d := ends["stubborn"].Sub(started); d < 15*time.Second {
		t.Errorf("the pod that ignores TERM has ended after %v, want the 15 s of its group", d)
	}
	if d := ends["critical"].Sub(ends["stubborn"]); d < -time.Second {
		t.Errorf("the critical pod has ended %v after the last other one", d)
	}
	if took > 40*time.Second {
		t.Errorf("the shutdown was delayed for %v", took)
	}
	// logind has announced that the machine stays up: what waited is admitted.
	s.waitRunning(t, "late", "main", 0)
	s.eventually(t, "the agent holds the lock again", func() bool { return holdsLock(t) })
	// The next agent runs the static pods again, as after a boot: no controller replaces them.
	s.agent.signalAndWait(t, syscall.SIGKILL)
	s.agent.start(t)
	for _, name := range []string{"hooked", "critical"} {
		s.waitRunning(t, name, "main", 1)
		s.waitPhase(t, name, v1.PodRunning)
	}
}

// isAdmitted reports whether the pod that came during the shutdown has a container.
func (s *suite) isAdmitted(t *testing.T) bool { return len(s.listContainers(t, "late", "")) > 0 }

// holdsLock reports whether the agent delays shutdowns.
func holdsLock(t *testing.T) bool {
	t.Helper()
	locks := run(t, "systemd-inhibit", "--list", "--no-legend", "--no-pager")
	return strings.Contains(locks, "kubelet")
}

// run runs a command of the machine, which must succeed, and returns what it prints.
func run(t *testing.T, program string, args ...string) string {
	t.Helper()
	out, err := exec.Command(program, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v: %s", program, args, err, out)
	}
	return strings.TrimSpace(string(out))
}
