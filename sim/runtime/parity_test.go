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

// parityWorld returns a runtime for the parity suites: its processes reply to commands, and its log
// files are on a simulated disk.
func parityWorld(seed uint64, old bool) *simWorld {
	w := newWorld(seed, nil)
	w.disk = disk.New(disk.Options{Agenda: w.agenda, Truth: &truth.Log{}, Seed: seed,
		Deliver: w.deliver})
	w.runtime = New(Options{Agenda: w.agenda, Truth: &truth.Log{}, Seed: seed, Deliver: w.deliver,
		Behaviour: replyingBehaviour, Images: images, Containerd16: old, Exists: w.disk.Exists,
		OpenFile: func(path string) File { return w.disk.Open(path) }})
	return w
}

// replyingBehaviour extends behaviour with the replies to the suites' commands. All processes write
// one log line each second.
func replyingBehaviour(i Instance) Script {
	script := behaviour(i)
	script.LogBytesPerSecond = lineBytes
	script.Replies = []ReplyRule{
		{Match: string(parity.Fails), Reply: truth.ReplyFailure},
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

func (w *simWorld) Events() []*runtimeapi.ContainerEventResponse { return slices.Clone(w.events) }

// seeds is the number of runs of each suite.
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
