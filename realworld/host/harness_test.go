package host

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"seedlet.dev/realworld/clock"
	"seedlet.dev/realworld/porttest"
	"seedlet.dev/world"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// harness is a port with its completions.
type harness struct {
	t           *testing.T
	port        *Port
	clock       clock.Clock
	completions chan world.Event
	lastOp      world.OpID
}

func newHarness(t *testing.T, root string) *harness {
	h := &harness{t: t, clock: clock.New(), completions: make(chan world.Event, 64)}
	h.port = New(Options{Clock: h.clock, CgroupRoot: root,
		Deliver: func(ev world.Event) { h.completions <- ev }})
	t.Cleanup(h.port.Close)
	return h
}

func (h *harness) try(body any, timeout time.Duration) (any, *world.Error) {
	h.t.Helper()
	h.lastOp++
	h.port.Do(world.Effect{Op: h.lastOp, Body: body, Deadline: h.clock.Now().Add(timeout)})
	ev := <-h.completions
	if ev.Op != h.lastOp || (ev.Body == nil) == (ev.Err == nil) {
		h.t.Fatalf("%s completed by %+v", world.CallName(body), ev)
	}
	return ev.Body, ev.Err
}

func (h *harness) must(body any) any {
	h.t.Helper()
	result, err := h.try(body, porttest.Patience)
	if err != nil {
		h.t.Fatal(err)
	}
	return result
}

func (h *harness) list(path string, systemd bool) string {
	h.t.Helper()
	result := h.must(&world.ListCgroups{Path: path, Systemd: systemd})
	return strings.Join(result.(*world.CgroupsListed).Names, " ")
}

// writeFiles writes files, by their paths below a root.
func writeFiles(t *testing.T, root string, files map[string]string) {
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

// checkFiles checks the content of files below a root.
func checkFiles(t *testing.T, root string, files map[string]string) {
	t.Helper()
	for path, want := range files {
		data, err := os.ReadFile(filepath.Join(root, path))
		if got := strings.TrimSpace(string(data)); err != nil || got != want {
			t.Errorf("%s has content %q, %v, want %q", path, got, err, want)
		}
	}
}
