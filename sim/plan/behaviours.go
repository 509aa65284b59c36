package plan

import (
	"math/rand/v2"
	"time"
)

// Behaviour is what the processes of one container do, one process after the other. The last entry
// of Processes applies to all later ones.
type Behaviour struct {
	Container   string            `json:"container"`
	StopTakes   Duration          `json:"stopTakes,omitempty"` // from TERM to the exit
	IgnoresTerm bool              `json:"ignoresTerm,omitempty"`
	HandlesTerm bool              `json:"handlesTerm,omitempty"` // exits with 0 after TERM
	LogKiB      int               `json:"logKiB,omitempty"`      // logged by each process per second
	Processes   []ProcessRun      `json:"processes,omitempty"`   // none: each runs until stopped
	Responses   []HandlerResponse `json:"answers,omitempty"`     // to probes and hooks
	Writes      []FileWrite       `json:"writes,omitempty"`      // by each process
	Loads       []Load            `json:"loads,omitempty"`       // of each process
}

// ProcessRun is what one process does. The zero ProcessRun runs until it is stopped.
type ProcessRun struct {
	Runs     Duration `json:"runs,omitempty"`
	ExitCode int32    `json:"exitCode,omitempty"`
	OOM      bool     `json:"oom,omitempty"`
	// MessageBytes is the length of the termination message of a process that exits by itself.
	MessageBytes int `json:"messageBytes,omitempty"`
}

// BehaviourRange is what the processes of one container may do. The processes of a container
// without one run until they are stopped, and exit within a second of TERM.
type BehaviourRange struct {
	Container string `json:"container"`
	// Runs is for how long a process runs until it exits by itself. Absent: until it is stopped.
	Runs      *Span   `json:"runs,omitempty"`
	ExitCodes []int32 `json:"exitCodes,omitempty"` // one is drawn for each process; absent: 0
	// Times is how many processes exit by themselves; later ones run until stopped. Absent: all.
	Times       *Count `json:"times,omitempty"`
	StopTakes   Span   `json:"stopTakes,omitempty"`
	IgnoresTerm Share  `json:"ignoresTerm,omitempty"` // of containers
	HandlesTerm Share  `json:"handlesTerm,omitempty"` // of containers
	OOM         Share  `json:"oom,omitempty"`         // of processes that exit by themselves
	LogKiB      *Count `json:"logKiB,omitempty"`      // as in Behaviour
	// MessageBytes is the length of the termination message of a process that exits by itself.
	MessageBytes *Count `json:"messageBytes,omitempty"`
	// Responses may be given to probes and hooks. Absent: all succeed at once.
	Responses []HandlerResponseRange `json:"answers,omitempty"`
	// Writes may be made by each process.
	Writes []FileWriteRange `json:"writes,omitempty"`
	Loads  []LoadRange      `json:"loads,omitempty"` // of each process
}

// processesMax is how many processes of a container are generated one by one.
const processesMax = 12

func (b *BehaviourRange) draw(r *rand.Rand) Behaviour {
	behaviour := Behaviour{
		Container: b.Container, StopTakes: Duration(b.StopTakes.draw(r)),
		IgnoresTerm: b.IgnoresTerm.drawBool(r), HandlesTerm: b.HandlesTerm.drawBool(r),
	}
	if b.LogKiB != nil {
		behaviour.LogKiB = b.LogKiB.draw(r)
	}
	if b.Runs == nil {
		return behaviour
	}
	times := processesMax
	if b.Times != nil {
		times = b.Times.draw(r)
	}
	for range min(times, processesMax) {
		run := ProcessRun{Runs: Duration(max(b.Runs.draw(r), time.Millisecond))}
		if len(b.ExitCodes) > 0 {
			run.ExitCode = b.ExitCodes[r.IntN(len(b.ExitCodes))]
		}
		run.OOM = b.OOM.drawBool(r)
		if b.MessageBytes != nil {
			run.MessageBytes = b.MessageBytes.draw(r)
		}
		behaviour.Processes = append(behaviour.Processes, run)
	}
	if b.Times != nil {
		behaviour.Processes = append(behaviour.Processes, ProcessRun{})
	}
	return behaviour
}
