package runtime

import (
	"fmt"
	"path"
	"slices"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/sim/disk"
	"seedlet.dev/sim/truth"
	"seedlet.dev/world"
	"seedlet.dev/world/parity"
)

// parityWorld is a runtime as the suites want it: its processes answer their commands, and it
// writes to a disk.
func parityWorld(seed uint64, old bool) *simWorld {
	w := newWorld(seed, nil)
	w.disk = disk.New(disk.Options{Agenda: w.agenda, Truth: &truth.Log{}, Seed: seed,
		Answer: w.answer})
	w.runtime = New(Options{Agenda: w.agenda, Truth: &truth.Log{}, Seed: seed, Answer: w.answer,
		Behaviour: answering, Images: images, Old: old, Exists: w.disk.Exists,
		OpenFile: func(path string) File { return w.disk.Open(path) }})
	return w
}

// answering is the behaviour of the suites' processes with their answers to commands. All of them
// write a line each second.
func answering(i Instance) Script {
	script := behaviour(i)
	script.LogBytes = lineBytes
	script.Answers = []Answer{
		{Match: string(parity.Fails), Reply: truth.ReplyBad},
		{Match: string(parity.Hangs), Reply: truth.ReplyNone},
		{Match: string(parity.NoProgram), Reply: truth.ReplyRefused},
	}
	return script
}

func (w *simWorld) Exec(c parity.Command) ([]string, *runtimeapi.ExecSyncResponse) {
	want := &runtimeapi.ExecSyncResponse{Stdout: []byte("ok\n")}
	if c == parity.Fails {
		want = &runtimeapi.ExecSyncResponse{ExitCode: 1, Stderr: []byte("not well\n")}
	}
	return []string{"/sample", string(c)}, want
}

func (w *simWorld) RenameLog(from, to string) {
	rename := &world.Rename{From: path.Join(logDir, from), To: path.Join(logDir, to)}
	if _, err := w.wait(w.sendTo(w.disk, rename, w.timeout), rename)(); err != nil {
		panic(err)
	}
}

func (w *simWorld) LogBytes(name string) int64 {
	for e := range w.disk.Entries(logDir) {
		if e.Name == name {
			return e.Size
		}
	}
	return -1
}

func (w *simWorld) Stream(timeout time.Duration) func() (any, *world.Error) {
	body := &runtimeapi.GetEventsRequest{}
	return w.wait(w.sendTo(w.runtime, body, timeout), body)
}

func (w *simWorld) Heard() []*runtimeapi.ContainerEventResponse { return slices.Clone(w.heard) }

// seeds is how often each suite is run.
const seeds = 50

func TestParity(t *testing.T) {
	for seed := range uint64(seeds) {
		for _, old := range []bool{false, true} {
			t.Run(fmt.Sprintf("seed %d, old %v", seed, old), func(t *testing.T) {
				w := parityWorld(seed, old)
				parity.CRI(t, w)
				parity.Exec(t, w)
				parity.Logs(t, w)
				if old {
					parity.NoEvents(t, w)
				} else {
					parity.Events(t, w)
				}
			})
		}
	}
}
