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

// listen opens a stream; what comes is in the text that the second function returns.
func listen(w *simWorld) (end func() (any, *world.Error), heard func() string) {
	var all []string
	w.runtime.Disconnect()
	w.runtime.Connect(func(ev world.Event) {
		if event, is := ev.Body.(*runtimeapi.ContainerEventResponse); is {
			name := "sandbox"
			for _, c := range event.ContainersStatuses {
				if c.Id == event.ContainerId {
					name = c.Metadata.Name
				}
			}
			what := strings.TrimSuffix(event.ContainerEventType.String(), "_EVENT")
			all = append(all, name+" "+strings.ToLower(strings.TrimPrefix(what, "CONTAINER_")))
			return
		}
		w.answer(ev)
	})
	return w.Begin(&runtimeapi.GetEventsRequest{}), func() string {
		w.Sleep(time.Second)
		return strings.Join(all, ", ")
	}
}

func calmly(o *Options) { o.Answer = func(world.Event) {} }

func TestEvents(t *testing.T) {
	w := newWorld(1, calmly)
	_, heard := listen(w)
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
		"sandbox stopped, sandbox deleted, sandbox deleted" // the first is the container's
	if got := heard(); got != want {
		t.Errorf("heard %s", got)
	}
}

func TestEventsWaitForWhoListens(t *testing.T) {
	w := newWorld(1, calmly)
	w.timeout = time.Second
	end, heard := listen(w)
	if _, err := end(); !err.Has(world.KindTimeout) {
		t.Fatalf("a stream ends by its deadline with %v", err)
	}
	w.timeout = time.Hour
	w.mustRun(t, "u1")
	w.Sleep(heldFor)
	w.mustRun(t, "u2")
	w.Begin(&runtimeapi.GetEventsRequest{})
	if got := heard(); got != "sandbox created, sandbox started" {
		t.Errorf("heard %q", got)
	}
}

// That nobody listens any more is noticed by an event that cannot be sent: it is lost.
func TestTheFirstEventAfterAListenerIsLost(t *testing.T) {
	lost := map[string]bool{}
	for seed := range uint64(20) {
		w := newWorld(seed, calmly)
		w.timeout = time.Second
		end, heard := listen(w)
		end()
		w.timeout = time.Hour
		s := w.mustRun(t, "u1")
		w.mustCreate(t, s, "u1", "app", 0)
		w.Begin(&runtimeapi.GetEventsRequest{})
		lost[heard()] = true
	}
	want := map[string]bool{"sandbox started, app created": true, "app created": true}
	if diff := cmp.Diff(want, lost); diff != "" {
		t.Error(diff)
	}
}

func TestTwoListenersHearEverything(t *testing.T) {
	w := newWorld(1, calmly)
	_, heard := listen(w)
	w.Begin(&runtimeapi.GetEventsRequest{})
	w.Sleep(time.Second)
	w.mustRun(t, "u1")
	if got := heard(); strings.Count(got, "created") != 2 || strings.Count(got, "started") != 2 {
		t.Errorf("heard %q", got)
	}
}

func TestNoEventOutlivesTheRuntime(t *testing.T) {
	for name, strike := range map[string]func(*Runtime){
		"restart": func(r *Runtime) { r.Restart(time.Second) },
		"reboot":  (*Runtime).Reboot,
	} {
		w := newWorld(1, nil)
		w.mustRun(t, "u1")
		strike(w.runtime)
		w.Sleep(2 * time.Second)
		if _, heard := listen(w); heard() != "" {
			t.Errorf("%s: heard %q", name, heard())
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
		"not offered": {func(o *Options) { o.Old = true }, nil, world.KindInvalid},
		"error after": {withFates(fates{"GetEvents": {{After: broken}}}), (*Runtime).BreakStreams,
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

func TestFatesOfEvents(t *testing.T) {
	late := Fate{EffectDelay: 100 * time.Millisecond}
	twice := Fate{EffectDelay: 50 * time.Millisecond, Twice: true}
	for _, test := range []struct {
		fates []Fate
		want  string
	}{
		{[]Fate{{Lost: true}}, "sandbox started"},
		{[]Fate{late}, "sandbox started, sandbox created"},
		{[]Fate{twice}, "sandbox created, sandbox started, sandbox created"},
		{[]Fate{{Receive: time.Second / 2}}, "sandbox created, sandbox started"},
	} {
		w := newWorld(1, withFates(fates{CallEvent: test.fates}))
		_, heard := listen(w)
		w.Sleep(time.Second)
		w.mustRun(t, "u1")
		if got := heard(); got != test.want {
			t.Errorf("%s: heard %q", fmt.Sprint(test.fates), got)
		}
	}
}
