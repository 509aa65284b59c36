package loop

import (
	"slices"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/world"
)

var t0 = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// script is a core that answers the nth event with the nth effects.
type script struct {
	effects [][]world.Effect
	events  []world.Event
	wake    time.Time
}

func (s *script) Step(ev world.Event) []world.Effect {
	s.events = append(s.events, ev)
	if len(s.effects) == 0 {
		return nil
	}
	out := s.effects[0]
	s.effects = s.effects[1:]
	return out
}

func (s *script) NextWake() time.Time { return s.wake }

// port remembers what it was asked to do.
type port struct{ did []world.Effect }

func (p *port) Do(e world.Effect) { p.did = append(p.did, e) }

func list(op world.OpID, deadline time.Duration) world.Effect {
	return world.Effect{Op: op, Body: &runtimeapi.ListContainersRequest{},
		Deadline: t0.Add(deadline)}
}

func newLoop(core world.Core, cri world.Port, limits Limits) *Loop {
	return New(Options{Core: core, Limits: limits,
		Ports: map[world.PortName]world.Port{world.PortCRI: cri}})
}

func TestWhatIsTooMuchWaits(t *testing.T) {
	core := &script{effects: [][]world.Effect{{list(1, 60e9), list(2, 60e9), list(3, 60e9)}}}
	cri := &port{}
	limits := Limits{}
	limits.Flying[LaneList] = 2
	l := newLoop(core, cri, limits)
	l.Offer(world.Event{Body: &world.Boot{}})
	l.Turn(t0)
	if len(cri.did) != 2 {
		t.Fatalf("%d operations begun, want 2", len(cri.did))
	}
	l.Offer(world.Event{Op: 1, Body: &runtimeapi.ListContainersResponse{}})
	l.Turn(t0)
	if len(cri.did) != 3 || cri.did[2].Op != 3 {
		t.Fatalf("after an answer %d operations were begun, want 3", len(cri.did))
	}
}

func TestWhatWaitsTooLongIsGivenUp(t *testing.T) {
	core := &script{effects: [][]world.Effect{{list(1, 60e9), list(2, 5e9)}}}
	cri := &port{}
	limits := Limits{}
	limits.Flying[LaneList] = 1
	l := newLoop(core, cri, limits)
	l.Offer(world.Event{Body: &world.Boot{}})
	l.Turn(t0)
	if want := t0.Add(5 * time.Second); !l.Wake().Equal(want) {
		t.Errorf("wake at %v, want %v", l.Wake(), want)
	}
	l.Turn(t0.Add(5 * time.Second))
	last := core.events[len(core.events)-1]
	if last.Op != 2 || !last.Err.Has(world.KindCanceled) {
		t.Errorf("operation 2 ended with %+v, want Canceled", last)
	}
	if len(cri.did) != 1 {
		t.Error("an operation was begun after its deadline")
	}
}

// A sandbox that waits lets a container pass whose sandbox is there.
func TestWhatFinishesAPodGoesFirst(t *testing.T) {
	ask := func(op world.OpID, body any) world.Effect {
		return world.Effect{Op: op, Body: body, Deadline: t0.Add(time.Minute)}
	}
	core := &script{effects: [][]world.Effect{{ask(1, &runtimeapi.RunPodSandboxRequest{}),
		ask(2, &runtimeapi.RunPodSandboxRequest{}), ask(3, &runtimeapi.CreateContainerRequest{}),
		ask(4, &runtimeapi.StartContainerRequest{})}}}
	cri := &port{}
	limits := Limits{}
	limits.Flying[LaneAct] = 1
	l := newLoop(core, cri, limits)
	l.Offer(world.Event{Body: &world.Boot{}})
	for op := world.OpID(1); op <= 4; op++ {
		l.Turn(t0)
		l.Offer(world.Event{Op: cri.did[op-1].Op, Body: &runtimeapi.VersionResponse{}})
	}
	if got := begun(cri); !slices.Equal(got, []world.OpID{1, 3, 4, 2}) {
		t.Errorf("begun in the order %v, want 1, 3, 4, 2", got)
	}
}

func TestAFullInboxRefusesButNeverACompletion(t *testing.T) {
	l := newLoop(&script{}, &port{}, Limits{Inbox: 1})
	if !l.Offer(world.Event{Body: &world.Boot{}}) || l.Offer(world.Event{Body: &world.FileChanged{}}) {
		t.Error("the inbox has another bound than 1")
	}
	if !l.Offer(world.Event{Op: 9}) {
		t.Error("a completion was refused")
	}
}

func TestTimeNeverGoesBack(t *testing.T) {
	core := &script{}
	l := newLoop(core, &port{}, Limits{})
	l.Offer(world.Event{Body: &world.Boot{}})
	l.Turn(t0.Add(time.Second))
	l.Offer(world.Event{Body: &world.FileChanged{}})
	l.Turn(t0)
	if core.events[1].Time.Before(core.events[0].Time) {
		t.Error("time went back")
	}
}

func TestWakesTheCore(t *testing.T) {
	core := &script{wake: t0.Add(time.Second)}
	l := newLoop(core, &port{}, Limits{})
	if l.Turn(t0) || !l.Turn(t0.Add(time.Second)) {
		t.Error("the core was not called when it asked for it, and only then")
	}
}

func TestStepsAreMeasured(t *testing.T) {
	now := time.Duration(0)
	l := New(Options{Core: &script{}, Stopwatch: func() time.Duration {
		now += 20 * time.Microsecond
		return now
	}})
	l.Offer(world.Event{Body: &world.Boot{}})
	l.Turn(t0)
	if steps := l.Steps(); steps.Count != 1 || steps.Sum != 20*time.Microsecond {
		t.Errorf("measured %+v, want one step of 20 µs", steps)
	}
}
