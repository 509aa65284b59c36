package pod

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/core/pleg"
)

// after is a time after t0; zero is no time at all.
func after(seconds int) time.Time {
	if seconds == 0 {
		return time.Time{}
	}
	return t0.Add(time.Duration(seconds) * time.Second)
}

// The runtime's clock may be set while a container runs. What it says of the end counts as far as
// it can be true.
func TestEnd(t *testing.T) {
	for _, test := range []struct {
		name                       string
		began, alive, exited, told int
		want                       int
	}{
		{"as told", 10, 59, 61, 60, 60},
		{"an hour ahead", 10, 59, 61, 3660, 61},
		{"an hour behind", 10, 59, 61, -3540, 61},
		{"before it was last seen to run", 10, 59, 61, 57, 61},
		{"before it was started", 10, 0, 61, 9, 61},
		{"not told", 10, 59, 61, 0, 61},
		{"before this agent's time", 0, 0, 61, -3540, -3540},
	} {
		c := Container{Began: after(test.began), Alive: after(test.alive),
			Exited: after(test.exited), FinishedAt: after(test.told)}
		if got := c.end(); !got.Equal(after(test.want)) {
			t.Errorf("%s: %v after t0, want %d s", test.name, got.Sub(t0), test.want)
		}
	}
}

func TestRanLonger(t *testing.T) {
	for _, test := range []struct {
		name                      string
		began, ran, alive, exited int
		toldStarted, toldFinished int
		want                      bool
	}{
		{"as told", 1, 1, 600, 700, 1, 699, true},
		{"short", 1, 1, 20, 21, 1, 21, false},
		{"short, but the clock was set forward", 1, 1, 20, 21, 1, 3621, false},
		{"long, but the clock was set back", 1, 2, 699, 700, 1, -2900, true},
		{"not started by this agent, as told", 0, 300, 699, 700, 1, 700, true},
		{"not started by this agent, and short", 0, 300, 399, 400, 200, 400, false},
		{"never seen to run", 0, 0, 0, 5, 0, 0, false},
	} {
		c := Container{Began: after(test.began), Ran: after(test.ran), Alive: after(test.alive),
			Exited: after(test.exited), StartedAt: after(test.toldStarted),
			FinishedAt: after(test.toldFinished)}
		if got := c.ranLonger(backoffReset); got != test.want {
			t.Errorf("%s: %t", test.name, got)
		}
	}
}

// The first probe waits from the start; a clock that is slow makes it no earlier.
func TestBegan(t *testing.T) {
	for _, test := range []struct{ asked, told, ran, want int }{
		{10, 11, 12, 11}, {10, -3590, 12, 12}, {10, 3611, 12, 12}, {10, 0, 12, 12},
		{0, -3590, 12, -3590},
	} {
		c := Container{Began: after(test.asked), StartedAt: after(test.told), Ran: after(test.ran)}
		if got := c.began(); !got.Equal(after(test.want)) {
			t.Errorf("%+v: %v after t0", test, got.Sub(t0))
		}
	}
}

// A list that still has a container running says that it ran when the list was asked for.
func TestListsTellThatAContainerIsAlive(t *testing.T) {
	p := facts(spec(v1.RestartPolicyAlways, "", "web"), run("web", 0, Running))
	item := &pleg.Container{ID: "web0", Name: "web",
		State: runtimeapi.ContainerState_CONTAINER_RUNNING}
	if p.ObserveContainer(item, 1, after(30), after(31)) {
		t.Error("that it goes on is news")
	}
	p.ObserveContainer(item, 2, after(20), after(32)) // an older list, answered late
	item.State = runtimeapi.ContainerState_CONTAINER_EXITED
	p.ObserveContainer(item, 3, after(40), after(41))
	if got := p.Containers[0].Alive; !got.Equal(after(30)) {
		t.Errorf("alive %v after t0", got.Sub(t0))
	}
	item.State = runtimeapi.ContainerState_CONTAINER_RUNNING
	if !p.ObserveContainer(item, 4, after(35), after(42)) {
		t.Error("that it ran for longer, which its back-off may follow from, is no news")
	}
	if p.ObserveContainer(item, 5, after(35), after(43)) {
		t.Error("it is news twice")
	}
}
