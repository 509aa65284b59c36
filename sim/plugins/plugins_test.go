package plugins

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"seedlet.dev/sim/agenda"
	"seedlet.dev/sim/plan"
	"seedlet.dev/sim/truth"
	"seedlet.dev/world"
)

var begin = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// simWorld is a node with plugins, and a client.
type simWorld struct {
	t          *testing.T
	agenda     *agenda.Agenda
	plugins    *Plugins
	facts      []string
	observed   []string
	files      map[string]string // by path, as observed
	completion *world.Event
	ops        world.OpID
}

func newWorld(t *testing.T) *simWorld {
	w := &simWorld{t: t, agenda: agenda.New(begin, 1), files: map[string]string{}}
	log := &truth.Log{}
	log.Subscribe(func(f truth.Fact) {
		text := fmt.Sprintf("%s %s %s", f.Kind, f.Path, f.Cause)
		w.facts = append(w.facts, strings.TrimSpace(text))
	})
	w.plugins = New(Options{Agenda: w.agenda, Truth: log, Seed: 1, Dir: "/r", Deliver: w.deliver})
	return w
}

func (w *simWorld) deliver(ev world.Event) {
	observed, ok := ev.Body.(*world.PluginSocketsObserved)
	if !ok {
		w.completion = &ev
		return
	}
	var names []string
	for _, s := range observed.Sockets {
		w.files[s.Path] = s.File
		names = append(names, s.Path+"="+s.File)
	}
	w.observed = append(w.observed, strings.Join(names, " "))
}

func (w *simWorld) run() {
	for w.agenda.Run() {
	}
}

// ask asks a plugin what it is, and returns what it answers.
func (w *simWorld) ask(path string) string {
	w.ops++
	w.completion = nil
	w.plugins.Do(world.Effect{Op: w.ops, Deadline: w.agenda.Now().Add(10 * time.Second),
		Body: &world.GetPluginInfo{Socket: world.PluginSocket{Path: path, File: w.files[path]}}})
	w.run()
	switch {
	case w.completion == nil:
		return "nothing"
	case w.completion.Err != nil:
		return string(w.completion.Err.Kind)
	}
	return w.completion.Body.(*world.PluginInfo).Name
}

func TestSockets(t *testing.T) {
	w := newWorld(t)
	w.plugins.Change(&plan.PluginChange{Socket: "a", Name: "first"})
	w.plugins.Change(&plan.PluginChange{Socket: "none", Gone: true})
	w.run()
	if got := w.ask("/r/a"); got != "first" {
		t.Errorf("answered %q", got)
	}
	w.plugins.Change(&plan.PluginChange{Socket: "a", Name: "second"})
	if got := w.ask("/r/a"); got != "NotFound" {
		t.Errorf("another file answered %q", got)
	}
	if got := w.ask("/r/a"); got != "second" {
		t.Errorf("answered %q", got)
	}
	w.plugins.Change(&plan.PluginChange{Socket: "a", Gone: true})
	w.run()
	if want := []string{"/r/a=file-1", "/r/a=file-2", ""}; !slices.Equal(w.observed, want) {
		t.Errorf("observed %q, want %q", w.observed, want)
	}
	want := []string{"PluginStarted /r/a", "PluginAsked /r/a", "PluginEnded /r/a",
		"PluginStarted /r/a", "PluginAsked /r/a", "PluginEnded /r/a"}
	if !slices.Equal(w.facts, want) {
		t.Errorf("facts %q, want %q", w.facts, want)
	}
}

func TestWrongPlugins(t *testing.T) {
	for fault, want := range map[plan.PluginFault]string{plan.PluginHangs: "Timeout",
		plan.PluginFails: "Internal", plan.PluginTooLong: "Exhausted", plan.PluginDown: "Unavailable"} {
		w := newWorld(t)
		w.plugins.Change(&plan.PluginChange{Socket: "a", Name: "driver", Wrong: fault, WrongFor: 1})
		w.run()
		if got := w.ask("/r/a"); got != want {
			t.Errorf("%s: answered %q, want %q", fault, got, want)
		}
		if got := w.ask("/r/a"); got != "driver" {
			t.Errorf("%s: the second answer is %q", fault, got)
		}
	}
}

// A new agent observes all sockets. After a reboot the plugins come again.
func TestRestarts(t *testing.T) {
	w := newWorld(t)
	w.plugins.Change(&plan.PluginChange{Socket: "a", Name: "driver"})
	w.run()
	w.plugins.Disconnect()
	w.plugins.Connect(w.deliver)
	w.run()
	w.plugins.Disconnect()
	w.plugins.Reboot(w.agenda.Now().Add(10 * time.Second))
	w.plugins.Connect(w.deliver)
	w.run()
	want := []string{"/r/a=file-1", "/r/a=file-1", "/r/a=file-2", "/r/a=file-3"}
	if !slices.Equal(w.observed, want) {
		t.Errorf("observed %q, want %q", w.observed, want)
	}
	if got := w.ask("/r/a"); got != "driver" {
		t.Errorf("answered %q", got)
	}
}
