package disk

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"seedlet.dev/sim/agenda"
	"seedlet.dev/sim/truth"
	"seedlet.dev/sim/wire"
	"seedlet.dev/world"
	"seedlet.dev/world/parity"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// simWorld is a disk with a client.
type simWorld struct {
	agenda      *agenda.Agenda
	disk        *Disk
	facts       []string
	ops         world.OpID
	completions map[world.OpID]world.Event
	changed     []string
}

func newWorld(seed uint64, faults wire.FaultSource) *simWorld {
	w := &simWorld{agenda: agenda.New(start, seed), completions: map[world.OpID]world.Event{}}
	log := &truth.Log{}
	log.Subscribe(func(f truth.Fact) {
		w.facts = append(w.facts, strings.TrimSpace(fmt.Sprintf("%s %s %s", f.Kind, f.Path, f.Cause)))
	})
	w.disk = New(Options{Agenda: w.agenda, Truth: log, Seed: seed, Deliver: w.deliver,
		Faults: faults})
	return w
}

func (w *simWorld) deliver(ev world.Event) {
	if changed, ok := ev.Body.(*world.FileChanged); ok {
		w.changed = append(w.changed, changed.Path)
		return
	}
	w.completions[ev.Op] = ev
}

func (w *simWorld) Begin(body any) func() (any, *world.Error) {
	w.ops++
	op := w.ops
	w.disk.Do(world.Effect{Op: op, Body: body, Deadline: w.agenda.Now().Add(2 * time.Minute)})
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

func (w *simWorld) Call(body any) (any, *world.Error) { return w.Begin(body)() }
func (w *simWorld) Send(body any)                     { w.disk.Do(world.Effect{Body: body}) }
func (w *simWorld) Now() time.Time                    { return w.agenda.Now() }
func (w *simWorld) Dir() string                       { return "/parity" }

func (w *simWorld) ModeAndGroup(p string) (mode uint32, gid int64) {
	at, err := w.disk.resolve("Perms", p, false)
	if err != nil || at.node == nil {
		return 0, -1
	}
	return at.node.mode, at.node.gid
}

func (w *simWorld) Owner(p string) int64 {
	at, err := w.disk.resolve("Perms", p, false)
	if err != nil || at.node == nil {
		return -1
	}
	return at.node.uid
}

func (w *simWorld) AgentUID() int64 { return agentUID }

func (w *simWorld) MakeSpecial(p string, kind world.PathKind) { w.disk.CreateSpecial(p, kind) }

func (w *simWorld) BlockDevice() string {
	w.ops++
	device := fmt.Sprint("/dev/test", w.ops)
	w.disk.CreateSpecial(device, world.PathBlockDevice)
	return device
}

func (w *simWorld) Sleep(d time.Duration) {
	awake := false
	w.agenda.After(d, func() { awake = true })
	for !awake {
		w.agenda.Run()
	}
}

func (w *simWorld) Changed() []string {
	changed := w.changed
	w.changed = nil
	return changed
}

func TestParity(t *testing.T) {
	for seed := range uint64(10) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			parity.FileSystem(t, newWorld(seed, nil))
		})
	}
}

// outcomes are the injected outcomes of calls, by name.
type outcomes map[string]wire.Outcome

func (a outcomes) Decide(id wire.CallID, _ time.Time) wire.Outcome { return a[id.Name] }

func TestFullDisk(t *testing.T) {
	w := newWorld(1, nil)
	w.disk.Write("/etc/pods/web.yaml", []byte("x"))
	w.disk.SetFull(true)
	_, err := w.Call(&world.MakeDir{Path: "/var/log", Mode: 0o755})
	if !err.Has(world.KindExhausted) || w.disk.Exists("/var") {
		t.Errorf("making a directory: %v", err)
	}
	if _, err = w.Call(&world.MakeDir{Path: "/etc/pods"}); err != nil {
		t.Errorf("making one that exists: %v", err)
	}
	_, err = w.Call(&world.WriteFile{Path: "/etc/pods/web.yaml", Data: []byte("y")})
	if data, _ := w.disk.Read("/etc/pods/web.yaml"); !err.Has(world.KindExhausted) ||
		string(data) != "x" {
		t.Errorf("writing: %v, %q", err, data)
	}
	w.disk.SetFull(false)
	if _, err = w.Call(&world.RemoveTree{Path: "/etc"}); err != nil || len(w.disk.Walk()) != 0 {
		t.Errorf("%v, %v", err, w.disk.Walk())
	}
	want := []string{"PathWritten /etc/pods/web.yaml user", "PathRemoved /etc"}
	if !slices.Equal(w.facts, want) {
		t.Errorf("facts %q", w.facts)
	}
}

func TestTornWrite(t *testing.T) {
	w, finished := newWorld(1, nil), 0
	w.disk.WriteTorn("/m/a", []byte("1234"), time.Second, func() { finished++ })
	if data, _ := w.disk.Read("/m/a"); string(data) != "12" {
		t.Errorf("at first: %q", data)
	}
	w.Sleep(2 * time.Second)
	if data, _ := w.disk.Read("/m/a"); string(data) != "1234" {
		t.Errorf("at last: %q", data)
	}
	w.disk.WriteTorn("/m/a", []byte("5678"), time.Second, func() { finished++ })
	w.disk.Remove("/m/a")
	w.Sleep(2 * time.Second)
	if w.disk.Exists("/m/a") {
		t.Error("a torn write continued in a removed file")
	}
	if finished != 1 {
		t.Errorf("%d writes were finished, want 1", finished)
	}
}

func TestFileChangesAreLostAndDelayed(t *testing.T) {
	for _, c := range []struct {
		outcome wire.Outcome
		want    []string
	}{
		{wire.Outcome{ResponseLost: true}, nil},
		{wire.Outcome{RequestLatency: 3 * time.Second}, []string{"/m"}},
	} {
		w := newWorld(1, outcomes{"FileChanged": c.outcome})
		w.Send(&world.Watch{Path: "/m"})
		w.disk.Write("/m/a", nil)
		w.Sleep(2 * time.Second)
		if len(w.changed) != 0 {
			t.Errorf("reported too early: %q", w.changed)
		}
		w.Sleep(2 * time.Second)
		if !slices.Equal(w.changed, c.want) {
			t.Errorf("%+v: reported %q, want %q", c.outcome, w.changed, c.want)
		}
	}
}

func TestWorkDiesWithTheAgent(t *testing.T) {
	partial := 0
	for seed := range uint64(40) {
		w := newWorld(seed, outcomes{"MakeDir": {RequestLatency: time.Millisecond}})
		for i := range 5 {
			w.disk.Write(fmt.Sprintf("/pods/uid/file%d", i), nil)
		}
		w.Send(&world.Watch{Path: "/pods"})
		w.Begin(&world.MakeDir{Path: "/made", Mode: 0o755})
		w.Begin(&world.RemoveTree{Path: "/pods/uid"})
		w.agenda.Run() // the first step of the removal
		w.disk.Disconnect()
		w.Sleep(time.Minute)
		if w.disk.Exists("/made") || !w.disk.Exists("/pods/uid") || len(w.completions) != 0 {
			t.Fatalf("seed %d: work of the dead agent continued: %v %v", seed, w.disk.Walk(), w.completions)
		}
		if n := len(w.disk.List("/pods/uid")); n > 0 && n < 5 {
			partial++
		}
		w.changed = nil
		w.disk.Connect(w.deliver)
		w.disk.Write("/pods/x", nil)
		w.Sleep(time.Minute)
		if len(w.changed) != 0 {
			t.Fatal("a watch outlived the agent")
		}
		if _, err := w.Call(&world.RemoveTree{Path: "/pods/uid"}); err != nil {
			t.Fatal(err)
		}
	}
	if partial < 5 {
		t.Errorf("only %d of 40 removals were left half done", partial)
	}
}

func TestPowerLoss(t *testing.T) {
	outcomes := map[string]int{}
	for seed := range uint64(200) {
		w := newWorld(seed, nil)
		w.disk.Write("/m/old", []byte("old"))
		w.Sleep(time.Minute)
		w.disk.Write("/m/new", []byte("12345678"))
		w.disk.Remove("/m/old")
		w.disk.LosePower()
		state := ""
		for _, p := range w.disk.Walk() {
			if data, ok := w.disk.Read(p); ok {
				state += fmt.Sprintf("%s=%d ", p, len(data))
			}
		}
		outcomes[state]++
	}
	whole, none := "/m/new=8 ", "/m/old=3 "
	if outcomes[whole] == 0 || outcomes[none] == 0 || outcomes["/m/new=8 /m/old=3 "] == 0 ||
		outcomes["/m/new=0 "]+outcomes["/m/new=3 "] == 0 {
		t.Errorf("outcomes %v", outcomes)
	}
	for state := range outcomes {
		if state == "" || !strings.Contains(state, "new") && !strings.Contains(state, "old=3") {
			t.Errorf("impossible outcome %q", state)
		}
	}
}

func TestPowerLossMayLoseVolatileFiles(t *testing.T) {
	survived := 0
	for seed := range uint64(50) {
		w := newWorld(seed, nil)
		w.disk.Write("/m/user", nil) // also creates the directory
		w.disk.Sync()
		_, err := w.Call(&world.WriteFile{Path: "/m/agent", Data: []byte("state"), Mode: 0o600,
			Volatile: true})
		if err != nil {
			t.Fatal(err)
		}
		w.disk.LosePower()
		if data, _ := w.disk.Read("/m/agent"); string(data) == "state" {
			survived++
		}
	}
	if survived == 0 || survived == 50 {
		t.Errorf("%d of 50 volatile files survived", survived)
	}
}

func TestPowerLossKeepsSyncedChanges(t *testing.T) {
	for seed := range uint64(50) {
		w := newWorld(seed, nil)
		w.disk.Write("/m/user", []byte("12345678"))
		_, err := w.Call(&world.WriteFile{Path: "/m/agent", Data: []byte("state"), Mode: 0o600})
		if err != nil {
			t.Fatal(err)
		}
		w.disk.Write("/m/agent2", []byte("x"))
		w.disk.LosePower()
		agent, _ := w.disk.Read("/m/agent")
		user, _ := w.disk.Read("/m/user")
		if string(agent) != "state" || string(user) != "12345678" {
			t.Fatalf("seed %d: %q %q", seed, agent, user)
		}
	}
}

// WriteDir does not sync: a power loss leaves the old content, the new one, or files that are
// incomplete. Writing it again makes it right.
func TestPowerLossAfterWriteDir(t *testing.T) {
	outcomes := map[string]int{}
	for seed := range uint64(200) {
		w := newWorld(seed, nil)
		write := func(content string) {
			t.Helper()
			_, err := w.Call(&world.WriteDir{Path: "/volume", Files: []world.DirFile{
				{Path: "key", Data: []byte(content), Mode: 0o644}}})
			if err != nil {
				t.Fatal(err)
			}
		}
		write("old content")
		w.disk.Sync()
		write("new content")
		w.disk.LosePower()
		data, _ := w.disk.Read("/volume/key")
		switch content := string(data); {
		case content == "old content", content == "new content":
			outcomes[content]++
		case strings.HasPrefix("new content", content):
			outcomes["incomplete"]++
		default:
			t.Errorf("seed %d: content %q", seed, content)
		}
		write("new content")
		if data, _ := w.disk.Read("/volume/key"); string(data) != "new content" {
			t.Errorf("seed %d: content %q after another write", seed, data)
		}
	}
	if len(outcomes) != 3 {
		t.Errorf("outcomes %v", outcomes)
	}
}
