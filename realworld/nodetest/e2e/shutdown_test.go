package e2e

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/realworld/porttest"
	"seedlet.dev/realworld/systemdtest"
)

// TestNodeShutdown shuts a machine down, whose logind delays that until the pods have ended. The
// target that would power it off fails, so that logind then announces that the machine stays. The
// groups have time enough for a runtime on a machine that is busy with other tests.
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
	s := startOnSystemd(t, "shutdownGracePeriod: 50s\nshutdownGracePeriodCriticalPods: 20s\n")
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
  - name: main
    image: sample
    args: [sleep]
    lifecycle: {preStop: {exec: {command: [/sample, exit, --after, 3s]}}}`)
	s.waitReadyToShutDown(t)
	if most := run(t, "busctl", "get-property", "org.freedesktop.login1", "/org/freedesktop/login1",
		"org.freedesktop.login1.Manager", "InhibitDelayMaxUSec"); most != "t 50000000" {
		t.Errorf("logind waits %s µs, want 50 s", most)
	}

	s.testPlannedShutdown(t)
	s.testShutdown(t)
}

// testPlannedShutdown plans a shutdown and cancels that, as an administrator does: nothing ends.
func (s *suite) testPlannedShutdown(t *testing.T) {
	planned := func() string {
		return run(t, "busctl", "get-property", "org.freedesktop.login1", "/org/freedesktop/login1",
			"org.freedesktop.login1.Manager", "ScheduledShutdown")
	}
	run(t, "shutdown", "--poweroff", "+10")
	s.eventually(t, "a shutdown is planned", func() bool {
		return strings.Contains(planned(), `"poweroff"`)
	})
	run(t, "shutdown", "-c")
	s.eventually(t, "no shutdown is planned", func() bool {
		return !strings.Contains(planned(), `"poweroff"`)
	})
	if !holdsLock(t) {
		t.Error("the lock was released for a shutdown that was planned and cancelled")
	}
	for _, name := range shutdownPods {
		s.waitRunning(t, name, "main", 0)
	}
}

// shutdownPods are the pods that run when a machine shuts down: one with a preStop hook, one that
// ignores TERM, and a critical one.
var shutdownPods = []string{"hooked", "stubborn", "critical"}

// waitReadyToShutDown waits until the pods run, and the agent delays a shutdown.
func (s *suite) waitReadyToShutDown(t *testing.T) {
	t.Helper()
	for _, name := range shutdownPods {
		s.waitLogLine(t, name, "main", "0", "sleeping")
		s.waitRunning(t, name, "main", 0)
	}
	s.eventually(t, "the agent holds the lock", func() bool { return holdsLock(t) })
}

// testShutdown has the machine power off, which fails in the end, and another pod come meanwhile.
func (s *suite) testShutdown(t *testing.T) {
	started := time.Now()
	run(t, "systemctl", "poweroff", "--no-block")
	time.Sleep(time.Second)
	s.runPod(t, "late", `
  containers:
  - {name: main, image: sample, args: [sleep]}`)
	s.waitPhase(t, "hooked", v1.PodFailed)
	if p := s.agent.servedPod(t, "hooked"); p.Status.Reason != "Terminated" ||
		p.Status.Message != "Pod was terminated in response to imminent node shutdown." {
		t.Errorf("hooked: %q, %q", p.Status.Reason, p.Status.Message)
	}
	s.eventually(t, "the lock is released", func() bool { return !holdsLock(t) || s.isAdmitted(t) })
	// logind has announced that the machine stays up: what waited is admitted, and the static pods run
	// again.
	s.waitRunning(t, "late", "main", 0)
	s.eventually(t, "the agent holds the lock again", func() bool { return holdsLock(t) })
	ends := map[string]end{}
	for _, name := range shutdownPods {
		s.waitRunning(t, name, "main", 1)
		s.waitPhase(t, name, v1.PodRunning)
		for _, c := range s.listContainers(t, name, "main") {
			if c.GetMetadata().GetAttempt() == 0 {
				ends[name] = s.endOf(t, c.GetId())
			}
		}
	}
	hooked, stubborn := ends["hooked"], ends["stubborn"]
	if d := hooked.at.Sub(started); d < 3*time.Second || hooked.code != 0 {
		t.Errorf("the pod with a hook of 3 s has ended after %v with code %d", d, hooked.code)
	}
	if d := stubborn.at.Sub(started); d < 30*time.Second || stubborn.code != 137 {
		t.Errorf("the pod that ignores TERM has ended after %v with code %d, want the 30 s of its group",
			d, stubborn.code)
	}
	if d := ends["critical"].at.Sub(stubborn.at); d < -time.Second {
		t.Errorf("the critical pod has ended %v after the last other one", d)
	}
	// The next agent knows of the shutdown, and takes the lock.
	s.agent.signalAndWait(t, syscall.SIGKILL)
	s.agent.start(t)
	s.eventually(t, "the next agent holds the lock", func() bool { return holdsLock(t) })
	start := s.agent.metric(t, "kubelet_graceful_shutdown_start_time_seconds")
	over := s.agent.metric(t, "kubelet_graceful_shutdown_end_time_seconds")
	if start < float64(started.Unix()) || over < start+30 {
		t.Errorf("the last shutdown was from %v to %v, it began at %d", start, over, started.Unix())
	}
}

// TestPowerOff powers a machine off. It goes down after the last pod has ended, in the order of the
// groups, although one of them ignores TERM. The agent may delay that for an hour: longer than the
// test waits.
func TestPowerOff(t *testing.T) {
	t.Parallel()
	report, inside := systemdtest.UntilPowerOff(t, porttest.Patience)
	if inside {
		powerOff(t)
		return
	}
	var states []string
	times := map[string]float64{}
	for line := range strings.Lines(report) {
		var at float64
		state := ""
		if n, err := fmt.Sscanf(strings.TrimSpace(line), "%f %s", &at, &state); n < 2 {
			t.Fatalf("the report has %q: %v", line, err)
		}
		states, times[state] = append(states, state), at
	}
	if got := strings.Join(states, " "); got != "hooked,stubborn,critical stubborn,critical critical "+
		"none down:none" {
		t.Errorf("what ran on the machine: %s", got)
	}
	if hook, group := times["stubborn,critical"], times["critical"]; hook < 2 || group < 29.5 {
		t.Errorf("the hook of 2 s has ended after %v s, the group of 30 s after %v s", hook, group)
	}
	t.Log(report)
}

// powerOff runs three pods, powers the machine off, and reports which of them run, with the seconds
// since, until the machine ends this process.
func powerOff(t *testing.T) {
	s := startOnSystemd(t, "shutdownGracePeriod: 1h0m30s\nshutdownGracePeriodCriticalPods: 1h\n")
	s.runPod(t, "hooked", `
  terminationGracePeriodSeconds: 20
  containers:
  - name: main
    image: sample
    args: [sleep]
    lifecycle: {preStop: {exec: {command: [/sample, exit, --after, 2s]}}}`)
	s.runPod(t, "stubborn", `
  terminationGracePeriodSeconds: 600
  containers:
  - {name: main, image: sample, args: [sleep, --ignore-term]}`)
	s.runPod(t, "critical", `
  priority: 2000000000
  terminationGracePeriodSeconds: 5
  containers:
  - name: main
    image: sample
    args: [sleep]
    lifecycle: {preStop: {exec: {command: [/sample, exit, --after, 3s]}}}`)
	s.waitReadyToShutDown(t)
	report, err := os.Create(systemdtest.ReportFile)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM)
	started := time.Now()
	add := func(state string) {
		fmt.Fprintf(report, "%.1f %s\n", time.Since(started).Seconds(), state)
	}
	run(t, "systemctl", "poweroff", "--no-block")
	last, wait := "", 50*time.Millisecond
	for {
		select {
		case <-ended:
			add("down:" + last)
			os.Exit(1) // no clean-up: the machine is gone soon
		case <-time.After(wait):
		}
		state, err := s.runningPods(t.Context())
		switch {
		case err != nil && wait == porttest.Patience:
			t.Fatal(err)
		case err != nil: // the machine ends the runtime together with this process
			wait = porttest.Patience
		case state != last:
			last = state
			add(state)
		}
	}
}

// runningPods returns which of the pods have a container that runs.
func (s *suite) runningPods(ctx context.Context) (string, error) {
	response, err := s.node.Runtime().ListContainers(ctx,
		&runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{
			State: &runtimeapi.ContainerStateValue{State: running}}})
	if err != nil {
		return "", err
	}
	var now []string
	for _, name := range shutdownPods {
		for _, c := range response.Containers {
			if c.Labels["io.kubernetes.pod.name"] == name+"-"+nodeName {
				now = append(now, name)
			}
		}
	}
	return cmp.Or(strings.Join(now, ","), "none"), nil
}

// end is the end of a container: when it exited, and with which code.
type end struct {
	at   time.Time
	code int32
}

// endOf returns the end of a container that has exited.
func (s *suite) endOf(t *testing.T, id string) end {
	t.Helper()
	response, err := s.node.Runtime().ContainerStatus(t.Context(),
		&runtimeapi.ContainerStatusRequest{ContainerId: id})
	if err != nil {
		t.Fatal(err)
	}
	status := response.GetStatus()
	return end{time.Unix(0, status.GetFinishedAt()), status.GetExitCode()}
}

// metric returns the value of a metric without labels.
func (a *agent) metric(t *testing.T, name string) float64 {
	t.Helper()
	response, err := client.Get(strings.TrimSuffix(a.podsURL, "/pods") + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }() // read to the line
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		if text, found := strings.CutPrefix(lines.Text(), name+" "); found {
			value, err := strconv.ParseFloat(text, 64)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			return value
		}
	}
	t.Fatalf("/metrics does not have %s", name)
	return 0
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
