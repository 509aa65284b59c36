package runtime

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/world"
)

// openEventStream opens a stream. The second function returns a summary of the events so far.
func openEventStream(w *simWorld) (end func() (any, *world.Error), summary func() string) {
	var all []string
	w.runtime.Disconnect()
	w.runtime.Connect(func(ev world.Event) {
		if event, ok := ev.Body.(*runtimeapi.ContainerEventResponse); ok {
			name := "sandbox"
			for _, c := range event.ContainersStatuses {
				if c.Id == event.ContainerId {
					name = c.Metadata.Name
				}
			}
			kind := strings.TrimSuffix(event.ContainerEventType.String(), "_EVENT")
			all = append(all, name+" "+strings.ToLower(strings.TrimPrefix(kind, "CONTAINER_")))
			return
		}
		w.deliver(ev)
	})
	return w.Begin(&runtimeapi.GetEventsRequest{}), func() string {
		w.Sleep(time.Second)
		return strings.Join(all, ", ")
	}
}

func discardEvents(o *Options) { o.Deliver = func(world.Event) {} }

func TestEventsOfAPodLifecycle(t *testing.T) {
	w := newWorld(1, discardEvents)
	_, summary := openEventStream(w)
	w.Sleep(time.Second)
	s := w.mustRun(t, "u1")
	c := w.mustCreate(t, s, "u1", "app", 0)
	w.mustStart(t, c)
	w.runtime.Kill("u1", "app", "killed", 1)
	w.runtime.KillSandbox(s)
	if _, err := w.Call(&runtimeapi.RemovePodSandboxRequest{PodSandboxId: s}); err != nil {
		t.Fatal(err)
	}
	want := "sandbox created, sandbox started, app created, app started, app stopped, " +
		"sandbox stopped, sandbox deleted, sandbox deleted" // the first deletion is the container's
	if got := summary(); got != want {
		t.Errorf("received %s", got)
	}
}

func TestEventsAreBufferedForTheNextStream(t *testing.T) {
	w := newWorld(1, discardEvents)
	w.timeout = time.Second
	end, summary := openEventStream(w)
	if _, err := end(); !err.Has(world.KindTimeout) {
		t.Fatalf("the stream ended at its deadline with %v", err)
	}
	w.timeout = time.Hour
	w.mustRun(t, "u1")
	w.Sleep(eventRetention)
	w.mustRun(t, "u2")
	w.Begin(&runtimeapi.GetEventsRequest{})
	if got := summary(); got != "sandbox created, sandbox started" {
		t.Errorf("received %q", got)
	}
}

// The runtime notices a closed stream when it fails to send an event, and that event is lost.
func TestFirstEventAfterAClosedStreamIsLost(t *testing.T) {
	lost := map[string]bool{}
	for seed := range uint64(20) {
		w := newWorld(seed, discardEvents)
		w.timeout = time.Second
		end, summary := openEventStream(w)
		end()
		w.timeout = time.Hour
		s := w.mustRun(t, "u1")
		w.mustCreate(t, s, "u1", "app", 0)
		w.Begin(&runtimeapi.GetEventsRequest{})
		lost[summary()] = true
	}
	want := map[string]bool{"sandbox started, app created": true, "app created": true}
	if diff := cmp.Diff(want, lost); diff != "" {
		t.Error(diff)
	}
}

func TestEveryStreamReceivesAllEvents(t *testing.T) {
	w := newWorld(1, discardEvents)
	_, summary := openEventStream(w)
	w.Begin(&runtimeapi.GetEventsRequest{})
	w.Sleep(time.Second)
	w.mustRun(t, "u1")
	if got := summary(); strings.Count(got, "created") != 2 || strings.Count(got, "started") != 2 {
		t.Errorf("received %q", got)
	}
}

func TestNoEventOutlivesTheRuntime(t *testing.T) {
	for name, restart := range map[string]func(*Runtime){
		"restart": func(r *Runtime) { r.Restart(time.Second) },
		"reboot":  (*Runtime).Reboot,
	} {
		w := newWorld(1, nil)
		w.mustRun(t, "u1")
		restart(w.runtime)
		w.Sleep(2 * time.Second)
		if _, summary := openEventStream(w); summary() != "" {
			t.Errorf("%s: received %q", name, summary())
		}
	}
}

func TestStreamsEnd(t *testing.T) {
	broken := &world.Error{Kind: world.KindInternal}
	for name, test := range map[string]struct {
		adjust func(*Options)
		strike func(*Runtime)
		want   world.ErrorKind
	}{
		"broken":      {nil, (*Runtime).BreakStreams, world.KindUnavailable},
		"restart":     {nil, func(r *Runtime) { r.Restart(time.Second) }, world.KindUnavailable},
		"not offered": {func(o *Options) { o.Containerd16 = true }, nil, world.KindUnimplemented},
		"error after": {withOutcomes(outcomes{"GetEvents": {{ErrorAfter: broken}}}),
			(*Runtime).BreakStreams,
			world.KindInternal},
	} {
		w := newWorld(1, test.adjust)
		end := w.Begin(&runtimeapi.GetEventsRequest{})
		w.Sleep(2 * time.Minute)
		if test.want == world.KindUnavailable {
			w = newWorld(1, test.adjust)
			w.timeout = time.Hour
			end = w.Begin(&runtimeapi.GetEventsRequest{})
			w.Sleep(time.Second)
		}
		if test.strike != nil {
			test.strike(w.runtime)
		}
		if body, err := end(); body != nil || !err.Has(test.want) {
			t.Errorf("%s: %v, %v", name, body, err)
		}
	}
}

func TestInjectedOutcomesOfEvents(t *testing.T) {
	late := Outcome{EffectDelay: 100 * time.Millisecond}
	twice := Outcome{EffectDelay: 50 * time.Millisecond, Duplicated: true}
	for _, test := range []struct {
		injected []Outcome
		want     string
	}{
		{[]Outcome{{ResponseLost: true}}, "sandbox started"},
		{[]Outcome{late}, "sandbox started, sandbox created"},
		{[]Outcome{twice}, "sandbox created, sandbox started, sandbox created"},
		{[]Outcome{{RequestLatency: time.Second / 2}}, "sandbox created, sandbox started"},
	} {
		w := newWorld(1, withOutcomes(outcomes{CallEvent: test.injected}))
		_, summary := openEventStream(w)
		w.Sleep(time.Second)
		w.mustRun(t, "u1")
		if got := summary(); got != test.want {
			t.Errorf("%s: received %q", fmt.Sprint(test.injected), got)
		}
	}
}
