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

// simWorld is a runtime and somebody who calls it.
type simWorld struct {
	agenda  *agenda.Agenda
	runtime *Runtime
	disk    *disk.Disk // nil: none
	facts   []truth.Fact
	heard   []*runtimeapi.ContainerEventResponse
	ops     world.OpID
	answers map[world.OpID]world.Event
	timeout time.Duration
}

func newWorld(seed uint64, adjust func(*Options)) *simWorld {
	w := &simWorld{agenda: agenda.New(start, seed), answers: map[world.OpID]world.Event{},
		timeout: 2 * time.Minute}
	opts := Options{Agenda: w.agenda, Truth: &truth.Log{}, Seed: seed, Answer: w.answer,
		Behaviour: behaviour}
	if adjust != nil {
		adjust(&opts)
	}
	opts.Truth.Subscribe(func(f truth.Fact) { w.facts = append(w.facts, f) })
	w.runtime = New(opts)
	return w
}

func (w *simWorld) answer(ev world.Event) {
	if told, ok := ev.Body.(*runtimeapi.ContainerEventResponse); ok {
		w.heard = append(w.heard, told)
		return
	}
	if _, twice := w.answers[ev.Op]; twice {
		panic(fmt.Sprintf("operation %d answered twice", ev.Op))
	}
	w.answers[ev.Op] = ev
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
			if ev, ok := w.answers[op]; ok {
				return ev.Body, ev.Err
			}
			if !w.agenda.Run() {
				panic(world.Call(body) + " was never answered")
			}
		}
	}
}

func (w *simWorld) Call(body any) (any, *world.Error) { return w.Begin(body)() }
func (w *simWorld) Tell(body any)                     { w.runtime.Do(world.Effect{Body: body}) }
func (w *simWorld) Now() time.Time                    { return w.agenda.Now() }

func (w *simWorld) Sleep(d time.Duration) {
	awake := false
	w.agenda.After(d, func() { awake = true })
	for !awake {
		w.agenda.Run()
	}
}

// behaviour is that of the parity suite's processes, by the container's name.
func behaviour(i Instance) Script {
	switch parity.Process(i.Container) {
	case parity.Exits3:
		return Script{Runs: time.Millisecond, ExitCode: 3}
	case parity.Exits0:
		return Script{Runs: time.Millisecond}
	case parity.IgnoresTerm:
		return Script{IgnoresTerm: true}
	case parity.HandlesTerm7:
		return Script{HandlesTerm: true, StopTakes: time.Second, StopExitCode: 7}
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

// fates gives the calls of one name their fates, in order; all others are calm.
type fates map[string][]Fate

func (f fates) Fate(call string, op int, _ time.Time) wire.Fate {
	if op < len(f[call]) {
		return f[call][op]
	}
	return Fate{Receive: time.Millisecond, Answer: time.Millisecond}
}
