package runtime

import (
	"fmt"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/sim/agenda"
	"seedlet.dev/sim/disk"
	"seedlet.dev/sim/truth"
	"seedlet.dev/sim/wire"
	"seedlet.dev/world"
	"seedlet.dev/world/parity"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// simWorld is a runtime with a client.
type simWorld struct {
	agenda      *agenda.Agenda
	runtime     *Runtime
	disk        *disk.Disk // nil: no disk
	facts       []truth.Fact
	events      []*runtimeapi.ContainerEventResponse
	ops         world.OpID
	completions map[world.OpID]world.Event
	timeout     time.Duration
}

func newWorld(seed uint64, adjust func(*Options)) *simWorld {
	w := &simWorld{agenda: agenda.New(start, seed), completions: map[world.OpID]world.Event{},
		timeout: 2 * time.Minute}
	opts := Options{Agenda: w.agenda, Truth: &truth.Log{}, Seed: seed, Deliver: w.deliver,
		Behaviour: behaviour}
	if adjust != nil {
		adjust(&opts)
	}
	opts.Truth.Subscribe(func(f truth.Fact) { w.facts = append(w.facts, f) })
	w.runtime = New(opts)
	return w
}

func (w *simWorld) deliver(ev world.Event) {
	if event, ok := ev.Body.(*runtimeapi.ContainerEventResponse); ok {
		w.events = append(w.events, event)
		return
	}
	if _, duplicate := w.completions[ev.Op]; duplicate {
		panic(fmt.Sprintf("operation %d completed twice", ev.Op))
	}
	w.completions[ev.Op] = ev
}

func (w *simWorld) send(body any) world.OpID { return w.sendTo(w.runtime, body, w.timeout) }

func (w *simWorld) sendTo(port world.Port, body any, timeout time.Duration) world.OpID {
	w.ops++
	port.Do(world.Effect{Op: w.ops, Body: body, Deadline: w.agenda.Now().Add(timeout)})
	return w.ops
}

func (w *simWorld) Begin(body any) func() (any, *world.Error) { return w.wait(w.send(body), body) }

func (w *simWorld) wait(op world.OpID, body any) func() (any, *world.Error) {
	return func() (any, *world.Error) {
		for {
			if ev, ok := w.completions[op]; ok {
				return ev.Body, ev.Err
			}
			if !w.agenda.Run() {
				panic(world.CallName(body) + " never completed")
			}
		}
	}
}

func (w *simWorld) CancelLast() { w.runtime.Cancel(w.ops) }

func (w *simWorld) Call(body any) (any, *world.Error) { return w.Begin(body)() }
func (w *simWorld) Send(body any)                     { w.runtime.Do(world.Effect{Body: body}) }
func (w *simWorld) Now() time.Time                    { return w.agenda.Now() }

func (w *simWorld) Sleep(d time.Duration) {
	awake := false
	w.agenda.After(d, func() { awake = true })
	for !awake {
		w.agenda.Run()
	}
}

// behaviour is the behaviour of the parity suite's processes, by the name of the container.
func behaviour(i Instance) Script {
	switch parity.Process(i.Container) {
	case parity.Exits3:
		return Script{RunsFor: time.Millisecond, ExitCode: 3}
	case parity.Exits0:
		return Script{RunsFor: time.Millisecond}
	case parity.IgnoresTerm:
		return Script{IgnoresTerm: true}
	case parity.HandlesTerm7:
		return Script{HandlesTerm: true, StopDelay: time.Second, StopExitCode: 7}
	default:
		return Script{}
	}
}

const logDir = "/var/log/pods/parity"

func (w *simWorld) Sandbox() *runtimeapi.PodSandboxConfig {
	return &runtimeapi.PodSandboxConfig{LogDirectory: logDir}
}

func (w *simWorld) Container(p parity.Process) *runtimeapi.ContainerConfig {
	return &runtimeapi.ContainerConfig{
		Image:   &runtimeapi.ImageSpec{Image: pullable},
		Command: []string{"/sample", string(p)},
	}
}

// WaitHandlers returns at once: a simulated process has its handlers from its start on.
func (w *simWorld) WaitHandlers(string) {}

const pullable, missing = "registry.test/pullable:1", "registry.test/missing:1"

func (w *simWorld) Images() (string, string) { return pullable, missing }

func images(ref string, _ int) Image {
	switch ref {
	case pullable:
		return Image{Absent: true}
	case missing:
		return Image{Absent: true, PullError: &world.Error{Kind: world.KindNotFound}}
	default:
		return Image{}
	}
}

// outcomes are the injected outcomes of calls by name, in order. All other calls are fault-free.
type outcomes map[string][]Outcome

func (f outcomes) Decide(id wire.CallID, _ time.Time) wire.Outcome {
	if id.Nth < len(f[id.Name]) {
		return f[id.Name][id.Nth]
	}
	return Outcome{RequestLatency: time.Millisecond, ResponseLatency: time.Millisecond}
}
