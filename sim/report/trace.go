package report

import (
	"bufio"
	"encoding/json"
	"io"
	"strconv"
)

// entry is an entry of a trace of Chrome's format, which Perfetto reads: a process for each pod,
// with a thread for each container.
type entry struct {
	Name     string         `json:"name"`
	Category string         `json:"cat,omitempty"`
	Phase    string         `json:"ph"`
	At       int64          `json:"ts"`
	Length   *int64         `json:"dur,omitempty"`
	Process  int            `json:"pid"`
	Thread   int            `json:"tid"`
	ID       string         `json:"id,omitempty"`
	Scope    string         `json:"s,omitempty"`
	Args     map[string]any `json:"args,omitempty"`
}

// Phases of entries, by the names that the format has for them.
const (
	phaseMetadata   = "M"
	phaseComplete   = "X"
	phaseInstant    = "i"
	phaseAsyncBegin = "b"
	phaseAsyncEnd   = "e"
)

// traceWriter writes entries as one JSON object.
type traceWriter struct {
	run   *Run
	out   *bufio.Writer
	err   error
	count int
}

// WriteTrace writes the run as a trace: states are slices, operations, faults and strikes are
// asynchronous ones, rows are instants.
func (run *Run) WriteTrace(w io.Writer) error {
	t := &traceWriter{run: run, out: bufio.NewWriter(w)}
	t.raw(`{"displayTimeUnit":"ms","traceEvents":[`)
	t.lanes()
	t.bars()
	t.ops()
	t.rows()
	t.raw("\n]}\n")
	if t.err != nil {
		return t.err
	}
	return t.out.Flush()
}

func (t *traceWriter) raw(text string) {
	if t.err == nil {
		_, t.err = t.out.WriteString(text)
	}
}

func (t *traceWriter) add(e entry) {
	if t.count++; t.count > 1 {
		t.raw(",")
	}
	data, err := json.Marshal(e)
	if t.err == nil {
		t.err = err
	}
	t.raw("\n" + string(data))
}

// track returns the process and the thread of a lane. Zero is not a process for Perfetto.
func (t *traceWriter) track(lane int) (process, thread int) {
	if pod := t.run.Lanes[lane].Pod; pod >= 0 {
		return pod + 1, lane + 1
	}
	return lane + 1, lane + 1
}

// lanes writes the names of the processes and threads, and the states.
func (t *traceWriter) lanes() {
	for i, lane := range t.run.Lanes {
		process, thread := t.track(i)
		name := func(what, name string) {
			t.add(entry{Name: what, Phase: phaseMetadata, Process: process, Thread: thread,
				Args: map[string]any{"name": name}})
		}
		if lane.Pod < 0 {
			name("process_name", lane.Name)
			t.add(entry{Name: "process_sort_index", Phase: phaseMetadata, Process: process,
				Thread: thread, Args: map[string]any{"sort_index": i}})
			name("thread_name", map[bool]string{true: "node", false: "pod"}[i == 0])
		} else {
			name("thread_name", lane.Name)
		}
		for _, span := range lane.Spans {
			length := span.To - span.From
			t.add(entry{Name: stateNames[span.State], Category: "state", Phase: phaseComplete,
				At: span.From, Length: &length, Process: process, Thread: thread,
				Args: t.args("detail", span.Label)})
		}
	}
}

func (t *traceWriter) args(name string, text int) map[string]any {
	if t.run.Strings[text] == "" {
		return nil
	}
	return map[string]any{name: t.run.Strings[text]}
}

// bars writes the bars of the node, and the verdict.
func (t *traceWriter) bars() {
	for i, bar := range t.run.Bars {
		t.async(entry{Name: t.run.Strings[bar.Label], Category: bar.Kind, ID: id("bar", uint64(i)),
			Process: 1, Thread: 1, At: bar.From,
			Args: t.args("detail", t.run.Rows.Text[bar.Row])}, bar.To)
	}
	if v := t.run.Verdict; v != nil {
		t.add(entry{Name: "FAIL " + v.Oracle, Category: "verdict", Phase: phaseInstant, Scope: "g",
			At: v.At, Process: 1, Thread: 1, Args: map[string]any{"message": v.Message}})
	}
}

// async writes the begin and the end of an asynchronous slice.
func (t *traceWriter) async(e entry, end int64) {
	e.Phase = phaseAsyncBegin
	t.add(e)
	e.Phase, e.At, e.Args = phaseAsyncEnd, end, nil
	t.add(e)
}

func (t *traceWriter) ops() {
	rows := &t.run.Rows
	for i, op := range t.run.Ops {
		process, thread := t.track(rows.Lane[op.Effect])
		args := map[string]any{"operation": op.ID, "effect": t.run.Strings[rows.Text[op.Effect]]}
		if op.Answer >= 0 {
			args["answer"] = t.run.Strings[rows.Text[op.Answer]]
		}
		t.async(entry{Name: t.run.Strings[rows.Name[op.Effect]], Category: "operation",
			ID: id("op", uint64(i)), Process: process, Thread: thread, At: rows.At[op.Effect], Args: args},
			op.End)
	}
}

func (t *traceWriter) rows() {
	rows := &t.run.Rows
	for i, at := range rows.At {
		process, thread := t.track(rows.Lane[i])
		args := t.args("text", rows.Text[i])
		if n := rows.Number[i]; n > 0 {
			if args == nil {
				args = map[string]any{}
			}
			args["event"] = n
		}
		t.add(entry{Name: string(kinds[rows.Kind[i]]) + " " + t.run.Strings[rows.Name[i]],
			Category: kindNames[rows.Kind[i]], Phase: phaseInstant, Scope: "t", At: at,
			Process: process, Thread: thread, Args: args})
	}
}

func id(of string, n uint64) string { return of + "-" + strconv.FormatUint(n, 10) }
