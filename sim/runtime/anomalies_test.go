package runtime

import (
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/sim/truth"
	"seedlet.dev/world"
)

func (w *simWorld) status(t *testing.T, id string) *runtimeapi.ContainerStatus {
	t.Helper()
	body, err := w.Call(&runtimeapi.ContainerStatusRequest{ContainerId: id})
	if err != nil {
		t.Fatal(err)
	}
	return body.(*runtimeapi.ContainerStatusResponse).Status
}

// A changed clock dates only what happens after the change.
func TestClockSkewDatesLaterEvents(t *testing.T) {
	w := newWorld(1, nil)
	c := w.mustCreate(t, w.mustRun(t, "u1"), "u1", "app", 0)
	w.mustStart(t, c)
	startedAt := w.status(t, c).StartedAt
	w.runtime.SetClockSkew(-time.Hour)
	w.runtime.Kill("u1", "app", truth.CauseKilled, 1)
	s := w.status(t, c)
	finishedAt := time.Unix(0, s.FinishedAt).Add(time.Hour)
	if s.StartedAt != startedAt || w.Now().Sub(finishedAt).Abs() > time.Second {
		t.Errorf("started at %d, was %d; finished at %v, an hour before %v", s.StartedAt, startedAt,
			s.FinishedAt, w.Now())
	}
	for _, f := range w.facts {
		if f.Time.Before(start) {
			t.Errorf("the skewed clock dates the truth log: %+v", f)
		}
	}
}

func TestUnknownContainerState(t *testing.T) {
	w := newWorld(1, nil)
	c := w.mustCreate(t, w.mustRun(t, "u1"), "u1", "app", 0)
	if _, lost := w.runtime.LoseContainerState("u1", "app"); lost {
		t.Error("LoseContainerState accepted a container that does not run")
	}
	w.mustStart(t, c)
	find, lost := w.runtime.LoseContainerState("u1", "app")
	unknown := runtimeapi.ContainerState_CONTAINER_UNKNOWN
	if s := w.status(t, c); !lost || s.State != unknown {
		t.Errorf("became unknown: %t, state %v", lost, s.State)
	}
	w.runtime.Kill("u1", "app", truth.CauseKilled, 1)
	if s := w.status(t, c); s.State != unknown || s.FinishedAt != 0 || s.ExitCode != 0 {
		t.Errorf("the exit of a container in an unknown state is reported: %v", s)
	}
	find()
	if s := w.status(t, c); s.State != exited || s.ExitCode != 1 {
		t.Errorf("after the recovery: %v", s)
	}
	find()
	if got := w.factSummary(); got != "SandboxCreated SandboxReady Created Started Lost "+
		"Exited(1 killed) Found" {
		t.Errorf("facts: %s", got)
	}
}

// A request to stop a container makes the runtime recover its unknown state.
func TestStoppingRecoversAnUnknownState(t *testing.T) {
	for _, dead := range []bool{false, true} {
		w := newWorld(1, nil)
		c := w.mustCreate(t, w.mustRun(t, "u1"), "u1", "app", 0)
		w.mustStart(t, c)
		w.runtime.LoseContainerState("u1", "app")
		if dead {
			w.runtime.Kill("u1", "app", truth.CauseKilled, 1)
		}
		stop := &runtimeapi.StopContainerRequest{ContainerId: c, Timeout: 1}
		if _, err := w.Call(stop); err != nil || w.status(t, c).State != exited {
			t.Errorf("exited before the stop %t: %v, state %v", dead, err, w.status(t, c).State)
		}
	}
}

func TestRemoveSandboxManually(t *testing.T) {
	w := newWorld(1, nil)
	s := w.mustRun(t, "u1")
	c := w.mustCreate(t, s, "u1", "app", 0)
	starting := w.Begin(&runtimeapi.StartContainerRequest{ContainerId: c})
	w.Sleep(time.Millisecond)
	w.runtime.RemoveSandboxManually(s) // retries until the container has been started
	if _, err := starting(); err != nil {
		t.Fatal(err)
	}
	w.Sleep(time.Second)
	if got := w.factSummary(); got != "SandboxCreated SandboxReady Created Started "+
		"Exited(137 sandbox) SandboxStopped(user) Removed(user) SandboxRemoved(user)" {
		t.Errorf("facts: %s", got)
	}
	status := &runtimeapi.PodSandboxStatusRequest{PodSandboxId: s}
	if _, err := w.Call(status); !err.Has(world.KindNotFound) {
		t.Error(err)
	}
	w.runtime.RemoveSandboxManually(s)
}
