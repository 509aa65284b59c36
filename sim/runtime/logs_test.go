package runtime

import (
	"slices"
	"strings"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/sim/truth"
	"seedlet.dev/world"
)

// memory is a file that is known by its end, as the simulated disk has it.
type memory struct {
	tail   []byte
	size   int64
	before func()
}

func (m *memory) Append(tail []byte, size int64) { m.tail, m.size = tail, m.size+size }

func (m *memory) Write(data []byte) { m.tail, m.size = data, int64(len(data)) }

func (m *memory) Resize(size int64) { m.tail, m.size = nil, size }

func (m *memory) BeforeRead(do func()) { m.before = do }

// look is what somebody sees who looks at a file.
func (m *memory) look() int64 {
	if m.before != nil {
		m.before()
	}
	return m.size
}

// A log grows by the clock, and goes on in a new file when it is opened again.
func TestLog(t *testing.T) {
	var files []*memory
	w := newWorld(1, func(o *Options) {
		o.OpenFile = func(string) File {
			files = append(files, &memory{})
			return files[len(files)-1]
		}
		o.Exists = func(string) bool { return true }
		o.Behaviour = func(Instance) Script { return Script{LogBytes: 1280} }
	})
	c := w.mustCreate(t, w.mustRun(t, "u1"), "u1", "app", 0)
	reopen := &runtimeapi.ReopenContainerLogRequest{ContainerId: c}
	if _, err := w.Call(reopen); err == nil {
		t.Error("the log of a container that does not run was opened")
	}
	w.mustStart(t, c)
	w.Sleep(10 * time.Second)
	if got := files[0].look(); got < 12_000 || got > 13_000 || got%lineBytes != 0 {
		t.Fatalf("%d bytes in 10 s, want about 12,800, in lines", got)
	}
	lines := strings.SplitAfter(string(files[0].tail), "\n")
	if len(lines[0]) != lineBytes || !strings.Contains(lines[0], "Z stdout F line 0 of app #0...") {
		t.Errorf("a line is %q", lines[0])
	}
	if _, err := w.Call(reopen); err != nil {
		t.Fatal(err)
	}
	before := files[0].look()
	w.Sleep(10 * time.Second)
	if now, next := files[0].look(), files[1].look(); now != before || next < 12_000 {
		t.Errorf("%d and %d bytes, want %d and about 12,800", now, next, before)
	}
	missing := &runtimeapi.ReopenContainerLogRequest{ContainerId: "x"}
	if _, err := w.Call(missing); !err.Has(world.KindNotFound) {
		t.Errorf("a container that there is not: %v", err)
	}
}

// A process leaves its message in what was mounted for it when it began.
func TestMessage(t *testing.T) {
	said := &memory{}
	exists := true
	w := newWorld(1, func(o *Options) {
		o.OpenFile = func(path string) File {
			if path == "/message" {
				return said
			}
			return &memory{}
		}
		o.Exists = func(string) bool { return exists }
		o.Behaviour = func(Instance) Script {
			return Script{Runs: time.Second, ExitCode: 1, Message: "no cheese", LogBytes: 1280}
		}
	})
	s := w.mustRun(t, "u1")
	for attempt := range uint32(2) {
		said.tail = nil
		req := w.creation(s, "u1", "app", attempt).(*runtimeapi.CreateContainerRequest)
		req.Config.Annotations = map[string]string{
			"io.kubernetes.container.terminationMessagePath": "/dev/log"}
		req.Config.Mounts = []*runtimeapi.Mount{{ContainerPath: "/dev/log", HostPath: "/message"}}
		answer, err := w.Call(req)
		if err != nil {
			t.Fatal(err)
		}
		w.mustStart(t, answer.(*runtimeapi.CreateContainerResponse).ContainerId)
		w.Sleep(2 * time.Second)
		if got := string(said.tail) == "no cheese"; got != exists {
			t.Errorf("message %q, with a file: %t", said.tail, exists)
		}
		exists = false
	}
	facts := slices.DeleteFunc(w.facts, func(f truth.Fact) bool {
		return f.Kind != truth.ContainerExited
	})
	if len(facts) != 2 || facts[0].Message != "no cheese" ||
		!strings.Contains(facts[0].LogEnd, "line 9 of app #0") {
		t.Errorf("facts %+v", facts)
	}
}
