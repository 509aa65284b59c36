package report

import (
	"encoding/json"
)

// Run is what the outputs are made from. Texts are numbers of Strings. Times are microseconds since
// the start of the run.
type Run struct {
	Title   string   `json:"title"`
	Summary string   `json:"summary"` // what the run came to, in a line
	End     int64    `json:"end"`
	Strings []string `json:"strings"`
	Lanes   []*Lane  `json:"lanes"` // the first is that of the node; a container's follow its pod's
	Rows    Rows     `json:"rows"`
	Ops     []Op     `json:"ops"`  // in the order of their effects
	Bars    []Bar    `json:"bars"` // across all lanes, in the order in which they ended
	// Healed is when the faults ended.
	Healed  int64    `json:"healed"`
	Verdict *Verdict `json:"verdict,omitempty"` // nil if no oracle reported a violation
}

// Lane is the life of a pod, or of a container of the pod before it.
type Lane struct {
	Name  string `json:"name"`
	Pod   int    `json:"pod"` // of a container: the number of its pod's lane; else -1
	UID   string `json:"uid,omitempty"`
	Spans []Span `json:"spans"` // one after the other

	number int // while the run is recorded
}

// State is the state of a pod or container, as what really happened and what the agent has reported
// have it.
type State int

// The states. The page and the trace name them as stateNames does.
const (
	none State = iota
	waiting
	running
	ready
	terminating
	succeeded
	failed
	unknown // to the runtime
)

var stateNames = []string{"", "waiting", "running", "ready", "terminating", "ended", "failed",
	"unknown"}

// Span is a state from a time to another.
type Span struct {
	From, To int64
	State    State
	Label    int // what there is to say besides the state
	Row      int // with which it began
}

// MarshalJSON writes a list: a run has many spans.
func (s Span) MarshalJSON() ([]byte, error) {
	return json.Marshal([]int64{s.From, s.To, int64(s.State), int64(s.Label), int64(s.Row)})
}

// Rows are the events and effects of the agent, the facts, and what the plan did, in the order in
// which they happened. Each list has an entry for each row.
type Rows struct {
	At          []int64  `json:"at"`
	Kind        []int    `json:"kind"`   // a number of kinds
	Number      []uint64 `json:"number"` // of the event of the step; zero outside of steps
	Incarnation []int    `json:"incarnation"`
	Name        []int    `json:"name"`
	Text        []int    `json:"text"`
	Lane        []int    `json:"lane"`
	Op          []int    `json:"op"`     // the number in Ops of its operation, or -1
	Origin      []int    `json:"origin"` // of a fact: the row of what led to it; else -1
}

// Op is an operation: an effect of the agent that has an answer.
type Op struct {
	Effect  int    // its row
	ID      uint64 // unique in its incarnation
	Reached int64  // when it reached its port, after having waited for others; -1: it did not
	End     int64  // when it was answered, or the agent ended
	Answer  int    // its row, or -1
}

// MarshalJSON writes a list: a run has many operations.
func (o Op) MarshalJSON() ([]byte, error) {
	return json.Marshal([]int64{int64(o.Effect), int64(o.ID), o.Reached, o.End, int64(o.Answer)})
}

// Bar is a time in which something was so for the whole node: an agent ran, the power was off.
type Bar struct {
	From  int64  `json:"from"`
	To    int64  `json:"to"`
	Kind  string `json:"kind"` // agent, agentDown, machineDown, runtimeDown, fault
	Label int    `json:"label"`
	Row   int    `json:"row"` // with which it began
}

// Verdict is the violation that ended the run.
type Verdict struct {
	At      int64  `json:"at"`
	Oracle  string `json:"oracle"`
	Message string `json:"message"`
	Event   uint64 `json:"event"`
	Row     int    `json:"row"` // the last one
}
