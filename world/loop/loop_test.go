package loop

import (
	"slices"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/world"
)

var t0 = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// scriptedCore returns the nth list of effects for the nth event.
type scriptedCore struct {
	effects [][]world.Effect
	events  []world.Event
	wake    time.Time
}

func (s *scriptedCore) Step(ev world.Event) []world.Effect {
	s.events = append(s.events, ev)
	if len(s.effects) == 0 {
		return nil
	}
	out := s.effects[0]
	s.effects = s.effects[1:]
	return out
}

func (s *scriptedCore) NextWake() time.Time { return s.wake }

// recordingPort records the effects that it is given, and the operations that it is to cancel.
type recordingPort struct {
	started  []world.Effect
	canceled []world.OpID
}

func (p *recordingPort) Cancel(id world.OpID) { p.canceled = append(p.canceled, id) }

func (p *recordingPort) Do(e world.Effect) { p.started = append(p.started, e) }

func list(op world.OpID, deadline time.Duration) world.Effect {
	return world.Effect{Op: op, Body: &runtimeapi.ListContainersRequest{},
		Deadline: t0.Add(deadline)}
}

func newLoop(core world.Core, cri world.Port, limits Limits) *Loop {
	return New(Options{Core: core, Limits: limits,
		Ports: map[world.PortName]world.Port{world.PortCRI: cri}})
}

func TestOperationsWaitForALaneSlot(t *testing.T) {
	core := &scriptedCore{effects: [][]world.Effect{{list(1, 60e9), list(2, 60e9), list(3, 60e9)}}}
	cri := &recordingPort{}
	limits := Limits{}
	limits.InFlight[LaneList] = 2
	l := newLoop(core, cri, limits)
	l.Offer(world.Event{Body: &world.Boot{}})
	l.Turn(t0)
	if len(cri.started) != 2 {
		t.Fatalf("%d operations started, want 2", len(cri.started))
	}
	l.Offer(world.Event{Op: 1, Body: &runtimeapi.ListContainersResponse{}})
	l.Turn(t0)
	if len(cri.started) != 3 || cri.started[2].Op != 3 {
		t.Fatalf("after a completion %d operations were started, want 3", len(cri.started))
	}
}

func TestWaitingOperationIsCanceledAtItsDeadline(t *testing.T) {
	core := &scriptedCore{effects: [][]world.Effect{{list(1, 60e9), list(2, 5e9)}}}
	cri := &recordingPort{}
	limits := Limits{}
	limits.InFlight[LaneList] = 1
	l := newLoop(core, cri, limits)
	l.Offer(world.Event{Body: &world.Boot{}})
	l.Turn(t0)
	if want := t0.Add(5 * time.Second); !l.NextWake().Equal(want) {
		t.Errorf("wake at %v, want %v", l.NextWake(), want)
	}
	l.Turn(t0.Add(5 * time.Second))
	last := core.events[len(core.events)-1]
	if last.Op != 2 || !last.Err.Has(world.KindCanceled) {
		t.Errorf("operation 2 completed with %+v, want Canceled", last)
	}
	if len(cri.started) != 1 {
		t.Error("an operation was started after its deadline")
	}
}

// The creation and start of a container overtake a waiting sandbox creation.
func TestContainersPassSandboxesInALane(t *testing.T) {
	operation := func(op world.OpID, body any) world.Effect {
		return world.Effect{Op: op, Body: body, Deadline: t0.Add(time.Minute)}
	}
	core := &scriptedCore{effects: [][]world.Effect{{
		operation(1, &runtimeapi.RunPodSandboxRequest{}),
		operation(2, &runtimeapi.RunPodSandboxRequest{}),
		operation(3, &runtimeapi.CreateContainerRequest{}),
		operation(4, &runtimeapi.StartContainerRequest{}),
	}}}
	cri := &recordingPort{}
	limits := Limits{}
	limits.InFlight[LaneAct] = 1
	l := newLoop(core, cri, limits)
	l.Offer(world.Event{Body: &world.Boot{}})
	for op := world.OpID(1); op <= 4; op++ {
		l.Turn(t0)
		l.Offer(world.Event{Op: cri.started[op-1].Op, Body: &runtimeapi.VersionResponse{}})
	}
	if got := startedOps(cri); !slices.Equal(got, []world.OpID{1, 3, 4, 2}) {
		t.Errorf("started in the order %v, want 1, 3, 4, 2", got)
	}
}

func TestFullInboxRefusesEventsButNoCompletion(t *testing.T) {
	l := newLoop(&scriptedCore{}, &recordingPort{}, Limits{Inbox: 1})
	if !l.Offer(world.Event{Body: &world.Boot{}}) || l.Offer(world.Event{Body: &world.FileChanged{}}) {
		t.Error("the limit of the inbox is not 1")
	}
	if !l.Offer(world.Event{Op: 9}) {
		t.Error("a completion was refused")
	}
}

func TestEventTimesNeverGoBack(t *testing.T) {
	core := &scriptedCore{}
	l := newLoop(core, &recordingPort{}, Limits{})
	l.Offer(world.Event{Body: &world.Boot{}})
	l.Turn(t0.Add(time.Second))
	l.Offer(world.Event{Body: &world.FileChanged{}})
	l.Turn(t0)
	if core.events[1].Time.Before(core.events[0].Time) {
		t.Error("time went back")
	}
}

func TestCoreIsWokenWhenDue(t *testing.T) {
	core := &scriptedCore{wake: t0.Add(time.Second)}
	l := newLoop(core, &recordingPort{}, Limits{})
	if l.Turn(t0) || !l.Turn(t0.Add(time.Second)) {
		t.Error("the core was not woken exactly when it was due")
	}
}

func TestStepDurationsAreMeasured(t *testing.T) {
	now := time.Duration(0)
	l := New(Options{Core: &scriptedCore{}, Stopwatch: func() time.Duration {
		now += 20 * time.Microsecond
		return now
	}})
	l.Offer(world.Event{Body: &world.Boot{}})
	l.Turn(t0)
	if steps := l.StepDurations(); steps.Count != 1 || steps.Sum != 20*time.Microsecond {
		t.Errorf("measured %+v, want one step of 20 µs", steps)
	}
}
