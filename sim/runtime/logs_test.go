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

// memoryFile stores the end and the size of a file, as the simulated disk does.
type memoryFile struct {
	tail       []byte
	size       int64
	beforeRead func()
}

func (m *memoryFile) Append(tail []byte, size int64) { m.tail, m.size = tail, m.size+size }

func (m *memoryFile) Write(data []byte) { m.tail, m.size = data, int64(len(data)) }

func (m *memoryFile) Resize(size int64) { m.tail, m.size = nil, size }

func (m *memoryFile) BeforeRead(do func()) { m.beforeRead = do }

// readSize returns the size of the file as a reader sees it.
func (m *memoryFile) readSize() int64 {
	if m.beforeRead != nil {
		m.beforeRead()
	}
	return m.size
}

// A log grows with the time, and continues in a new file after it is reopened.
func TestLogGrowthAndReopen(t *testing.T) {
	var files []*memoryFile
	w := newWorld(1, func(o *Options) {
		o.OpenFile = func(string) File {
			files = append(files, &memoryFile{})
			return files[len(files)-1]
		}
		o.Exists = func(string) bool { return true }
		o.Behaviour = func(Instance) Script { return Script{LogBytesPerSecond: 1280} }
	})
	c := w.mustCreate(t, w.mustRun(t, "u1"), "u1", "app", 0)
	reopen := &runtimeapi.ReopenContainerLogRequest{ContainerId: c}
	if _, err := w.Call(reopen); err == nil {
		t.Error("the log of a container that does not run was reopened")
	}
	w.mustStart(t, c)
	w.Sleep(10 * time.Second)
	if got := files[0].readSize(); got < 12_000 || got > 13_000 || got%lineBytes != 0 {
		t.Fatalf("%d bytes in 10 s, want about 12,800, in lines", got)
	}
	lines := strings.SplitAfter(string(files[0].tail), "\n")
	if len(lines[0]) != lineBytes || !strings.Contains(lines[0], "Z stdout F line 0 of app #0...") {
		t.Errorf("the first line is %q", lines[0])
	}
	if _, err := w.Call(reopen); err != nil {
		t.Fatal(err)
	}
	before := files[0].readSize()
	w.Sleep(10 * time.Second)
	if now, next := files[0].readSize(), files[1].readSize(); now != before || next < 12_000 {
		t.Errorf("%d and %d bytes, want %d and about 12,800", now, next, before)
	}
	missing := &runtimeapi.ReopenContainerLogRequest{ContainerId: "x"}
	if _, err := w.Call(missing); !err.Has(world.KindNotFound) {
		t.Errorf("an unknown container: %v", err)
	}
}

// A process writes its termination message to the file that was mounted when it started.
func TestTerminationMessage(t *testing.T) {
	messageFile := &memoryFile{}
	exists := true
	w := newWorld(1, func(o *Options) {
		o.OpenFile = func(path string) File {
			if path == "/message" {
				return messageFile
			}
			return &memoryFile{}
		}
		o.Exists = func(string) bool { return exists }
		o.Behaviour = func(Instance) Script {
			return Script{RunsFor: time.Second, ExitCode: 1, Message: "no cheese", LogBytesPerSecond: 1280}
		}
	})
	s := w.mustRun(t, "u1")
	for attempt := range uint32(2) {
		messageFile.tail = nil
		req := w.createRequest(s, "u1", "app", attempt).(*runtimeapi.CreateContainerRequest)
		req.Config.Annotations = map[string]string{
			"io.kubernetes.container.terminationMessagePath": "/dev/log"}
		req.Config.Mounts = []*runtimeapi.Mount{{ContainerPath: "/dev/log", HostPath: "/message"}}
		response, err := w.Call(req)
		if err != nil {
			t.Fatal(err)
		}
		w.mustStart(t, response.(*runtimeapi.CreateContainerResponse).ContainerId)
		w.Sleep(2 * time.Second)
		if got := string(messageFile.tail) == "no cheese"; got != exists {
			t.Errorf("message %q, with a file: %t", messageFile.tail, exists)
		}
		exists = false
	}
	facts := slices.DeleteFunc(w.facts, func(f truth.Fact) bool {
		return f.Kind != truth.ContainerExited
	})
	if len(facts) != 2 || facts[0].Message != "no cheese" ||
		!strings.Contains(facts[0].LogTail, "line 9 of app #0") {
		t.Errorf("facts %+v", facts)
	}
}
