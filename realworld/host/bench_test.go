package host

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"seedlet.dev/realworld/clock"
	"seedlet.dev/world"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bench is a port and what it has said.
type bench struct {
	t       *testing.T
	port    *Port
	clock   clock.Clock
	answers chan world.Event
	lastOp  world.OpID
}

func newBench(t *testing.T, root string) *bench {
	b := &bench{t: t, clock: clock.New(), answers: make(chan world.Event, 64)}
	b.port = New(Options{Clock: b.clock, CgroupRoot: root,
		Deliver: func(ev world.Event) { b.answers <- ev }})
	t.Cleanup(b.port.Close)
	return b
}

func (b *bench) try(body any, timeout time.Duration) (any, *world.Error) {
	b.t.Helper()
	b.lastOp++
	b.port.Do(world.Effect{Op: b.lastOp, Body: body, Deadline: b.clock.Now().Add(timeout)})
	ev := <-b.answers
	if ev.Op != b.lastOp || (ev.Body == nil) == (ev.Err == nil) {
		b.t.Fatalf("%s answered by %+v", world.Call(body), ev)
	}
	return ev.Body, ev.Err
}

func (b *bench) do(body any) any {
	b.t.Helper()
	answer, err := b.try(body, 20*time.Second)
	if err != nil {
		b.t.Fatal(err)
	}
	return answer
}

func (b *bench) list(path string, systemd bool) string {
	b.t.Helper()
	answer := b.do(&world.ListCgroups{Path: path, Systemd: systemd})
	return strings.Join(answer.(*world.CgroupsListed).Names, " ")
}

// lay writes files, by their paths below a root.
func lay(t *testing.T, root string, files map[string]string) {
	t.Helper()
	for path, text := range files {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// reads checks the values of files below a root.
func reads(t *testing.T, root string, files map[string]string) {
	t.Helper()
	for path, want := range files {
		data, err := os.ReadFile(filepath.Join(root, path))
		if got := strings.TrimSpace(string(data)); err != nil || got != want {
			t.Errorf("%s holds %q, %v, want %q", path, got, err, want)
		}
	}
}
