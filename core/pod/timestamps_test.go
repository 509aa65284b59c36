package pod

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/core/pleg"
)

// secondsAfter returns a time after t0; the zero time for zero.
func secondsAfter(seconds int) time.Time {
	if seconds == 0 {
		return time.Time{}
	}
	return t0.Add(time.Duration(seconds) * time.Second)
}

// The machine's clock may be set while a container runs. The runtime's timestamp of the exit counts
// as far as it agrees with the agent's observations.
func TestEndTime(t *testing.T) {
	for _, test := range []struct {
		name                                   string
		issued, lastRunning, exitSeen, runtime int
		want                                   int
	}{
		{"the runtime's", 10, 59, 61, 60, 60},
		{"an hour ahead", 10, 59, 61, 3660, 61},
		{"an hour behind", 10, 59, 61, -3540, 61},
		{"before it was last seen to run", 10, 59, 61, 57, 61},
		{"before it was started", 10, 0, 61, 9, 61},
		{"none from the runtime", 10, 59, 61, 0, 61},
		{"before this agent started", 0, 0, 61, -3540, -3540},
	} {
		c := Container{StartIssuedAt: secondsAfter(test.issued),
			LastSeenRunning: secondsAfter(test.lastRunning),
			ExitSeenAt:      secondsAfter(test.exitSeen), FinishedAt: secondsAfter(test.runtime)}
		if got := c.endTime(); !got.Equal(secondsAfter(test.want)) {
			t.Errorf("%s: %v after t0, want %d s", test.name, got.Sub(t0), test.want)
		}
	}
}

func TestRanLongerThan(t *testing.T) {
	for _, test := range []struct {
		name                                       string
		issued, runningSeen, lastRunning, exitSeen int
		started, finished                          int // by the runtime
		want                                       bool
	}{
		{"long", 1, 1, 600, 700, 1, 699, true},
		{"short", 1, 1, 20, 21, 1, 21, false},
		{"short, but the clock was set forward", 1, 1, 20, 21, 1, 3621, false},
		{"long, but the clock was set back", 1, 2, 699, 700, 1, -2900, true},
		{"not started by this agent, and long", 0, 300, 699, 700, 1, 700, true},
		{"not started by this agent, and short", 0, 300, 399, 400, 200, 400, false},
		{"never seen to run", 0, 0, 0, 5, 0, 0, false},
	} {
		c := Container{StartIssuedAt: secondsAfter(test.issued),
			RunningSeenAt:   secondsAfter(test.runningSeen),
			LastSeenRunning: secondsAfter(test.lastRunning),
			ExitSeenAt:      secondsAfter(test.exitSeen), StartedAt: secondsAfter(test.started),
			FinishedAt: secondsAfter(test.finished)}
		if got := c.ranLongerThan(backoffReset); got != test.want {
			t.Errorf("%s: %t", test.name, got)
		}
	}
}

// The first probe is counted from the start of the container; a slow wall clock makes it no
// earlier.
func TestStartTime(t *testing.T) {
	for _, test := range []struct{ issued, runtime, runningSeen, want int }{
		{10, 11, 12, 11}, {10, -3590, 12, 12}, {10, 3611, 12, 12}, {10, 0, 12, 12},
		{0, -3590, 12, -3590},
	} {
		c := Container{StartIssuedAt: secondsAfter(test.issued),
			StartedAt: secondsAfter(test.runtime), RunningSeenAt: secondsAfter(test.runningSeen)}
		if got := c.startTime(); !got.Equal(secondsAfter(test.want)) {
			t.Errorf("%+v: %v after t0", test, got.Sub(t0))
		}
	}
}

// A pod that an earlier agent has admitted started then: its deadline stays.
func TestStartOfAnAdmittedPod(t *testing.T) {
	s := spec(v1.RestartPolicyAlways, "", "web")
	at := metav1.NewTime(t0.Add(-time.Hour))
	s.Status.StartTime = &at
	if p := New(s, nil, true, false, t0); !p.StartTime.Equal(at.Time) {
		t.Errorf("it started at %v", p.StartTime)
	}
	at = metav1.NewTime(t0.Add(time.Hour)) // by another clock
	if p := New(s, nil, true, false, t0); !p.StartTime.Equal(t0) {
		t.Errorf("it started at %v", p.StartTime)
	}
}

// A list that has a container running shows that it ran when the list was requested.
func TestListsUpdateLastSeenRunning(t *testing.T) {
	p := podWith(spec(v1.RestartPolicyAlways, "", "web"), run("web", 0, Running))
	item := &pleg.Container{ID: "web0", Name: "web",
		State: runtimeapi.ContainerState_CONTAINER_RUNNING}
	if p.ObserveContainer(item, 1, secondsAfter(30), secondsAfter(31)) {
		t.Error("a container that keeps running counts as a change")
	}
	p.ObserveContainer(item, 2, secondsAfter(20), secondsAfter(32)) // an older list, completed late
	item.State = runtimeapi.ContainerState_CONTAINER_EXITED
	p.ObserveContainer(item, 3, secondsAfter(40), secondsAfter(41))
	if got := p.Containers[0].LastSeenRunning; !got.Equal(secondsAfter(30)) {
		t.Errorf("last seen running %v after t0", got.Sub(t0))
	}
	item.State = runtimeapi.ContainerState_CONTAINER_RUNNING
	if !p.ObserveContainer(item, 4, secondsAfter(35), secondsAfter(42)) {
		t.Error("a longer run, which may reset the back-off, does not count as a change")
	}
	if p.ObserveContainer(item, 5, secondsAfter(35), secondsAfter(43)) {
		t.Error("the same list counts as a change twice")
	}
}
