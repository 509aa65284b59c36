// Package report shows a run to people: as a page without a server that draws every pod over
// virtual time (WriteHTML), and as a trace for Perfetto (WriteTrace).
//
// Start reading at Run, then at Recorder, which makes one while sim.Run executes a plan; life.go
// has the states of pods and containers.
package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"seedlet.dev/sim"
	"seedlet.dev/sim/plan"
	"seedlet.dev/sim/trace"
	"seedlet.dev/sim/truth"
	"seedlet.dev/world"
)

// textMax bounds the text of a row in bytes: a patch or a log line may have a whole object.
const textMax = 2000

// kinds are the kinds of rows. Rows.Kind counts in them.
var kinds = []rune{trace.KindEvent, trace.KindEffect, trace.KindFact, trace.KindPlan}

// kindNames are what --only calls the kinds, for one row.
var kindNames = []string{"event", "effect", "fact", "plan"}

// Recorder makes a Run of what it sees.
type Recorder struct {
	run      Run
	numbers  map[string]int // of Strings
	lanes    []*Lane        // by their numbers while the run is recorded
	pods     []*pod         // in the order in which they were seen first
	byUID    map[string]*pod
	ops      map[world.OpID]int   // in flight; numbers of Ops
	lane     int                  // of the fact that is recorded now
	origin   int                  // likewise: the row of what led to it; else -1
	origins  map[truth.Origin]int // rows of operations and happenings
	happened int                  // happenings so far
	now      int64                // the time of the last event or fact
	agent    *process             // nil while it is down
	down     *Bar                 // since the agent was killed; nil while it runs
}

// process is the agent's, from its start to its end.
type process struct {
	Bar
	incarnation int
}

// New returns a recorder of a run of the plan.
func New(p *plan.Plan) *Recorder {
	r := &Recorder{numbers: map[string]int{}, byUID: map[string]*pod{}, ops: map[world.OpID]int{},
		origin: -1, origins: map[truth.Origin]int{}}
	r.number("")
	r.run.Title, r.run.Ops, r.run.Bars = p.Metadata.Name, []Op{}, []Bar{}
	r.run.Healed = time.Duration(p.Spec.Duration).Microseconds()
	r.addLane(&Lane{Name: "node", Pod: -1})
	return r
}

// Attach has the run recorded. What observed it before does so still.
func (r *Recorder) Attach(p *plan.Plan, o *sim.Options) {
	var own sim.Options
	rows := trace.Printer{Handle: r.row}
	rows.Attach(p, &own)
	before := *o
	o.Watch = func(s sim.Step) {
		if before.Watch != nil {
			before.Watch(s)
		}
		own.Watch(s)
		r.step(&s)
	}
	o.WatchFact = func(f truth.Fact) {
		if before.WatchFact != nil {
			before.WatchFact(f)
		}
		r.now = sinceStart(f.Time)
		r.lane = r.laneOf(&f)
		if row, known := r.origins[f.Origin]; known {
			r.origin = row
		}
		own.WatchFact(f)
		r.fact(&f)
		r.lane, r.origin = 0, -1
	}
	o.WatchHappening = func(at time.Time, h *plan.Happening) {
		if before.WatchHappening != nil {
			before.WatchHappening(at, h)
		}
		own.WatchHappening(at, h)
		r.happened++
		r.origins[sim.HappeningOrigin(r.happened)] = r.last()
		r.happening(sinceStart(at), h)
	}
	o.WatchEffect = func(eff world.Effect) {
		if before.WatchEffect != nil {
			before.WatchEffect(eff)
		}
		if op, inFlight := r.ops[eff.Op]; inFlight {
			r.run.Ops[op].Reached = r.now
		}
	}
}

func sinceStart(t time.Time) int64 { return t.Sub(plan.Start).Microseconds() }

// number returns the number of a text.
func (r *Recorder) number(text string) int {
	if len(text) > textMax {
		text = strings.ToValidUTF8(text[:textMax], "") + "…"
	}
	n, known := r.numbers[text]
	if !known {
		n = len(r.run.Strings)
		r.numbers[text] = n
		r.run.Strings = append(r.run.Strings, text)
	}
	return n
}

func (r *Recorder) addLane(l *Lane) *Lane {
	l.number, l.Spans = len(r.lanes), []Span{}
	r.lanes = append(r.lanes, l)
	return l
}

// row records a row. That of an answer is in the lane of the effect.
func (r *Recorder) row(t trace.Row) {
	at, rows := sinceStart(t.At), &r.run.Rows
	row, op, lane := len(rows.At), -1, r.lane
	if t.Kind == trace.KindPlan && t.Incarnation > 0 {
		r.agentStarted(at, t.Incarnation, row)
	}
	if t.Kind == trace.KindEffect {
		lane = r.laneOfPod(t.Pod)
		if t.Op != 0 {
			op = len(r.run.Ops)
			r.ops[t.Op] = op
			r.origins[sim.EffectOrigin(t.Incarnation, t.Op)] = row
			r.run.Ops = append(r.run.Ops, Op{Effect: row, ID: uint64(t.Op), Reached: -1, Answer: -1})
		}
	}
	if inFlight, isAnswer := r.ops[t.Op]; isAnswer && t.Kind == trace.KindEvent {
		op, lane = inFlight, rows.Lane[r.run.Ops[inFlight].Effect]
		r.run.Ops[op].Answer, r.run.Ops[op].End = row, at
		delete(r.ops, t.Op)
	}
	rows.At = append(rows.At, at)
	rows.Kind = append(rows.Kind, slices.Index(kinds, t.Kind))
	rows.Number = append(rows.Number, t.Number)
	rows.Incarnation = append(rows.Incarnation, t.Incarnation)
	rows.Name = append(rows.Name, r.number(t.Name))
	rows.Text = append(rows.Text, r.number(t.Text))
	rows.Lane = append(rows.Lane, lane)
	rows.Op = append(rows.Op, op)
	rows.Origin = append(rows.Origin, r.origin)
}

// last returns the number of the last row.
func (r *Recorder) last() int { return len(r.run.Rows.At) - 1 }

// step records what a step of the agent says besides its rows: the statuses that it has served.
func (r *Recorder) step(s *sim.Step) {
	r.now = sinceStart(s.Event.Time)
	r.agent.To = r.now
	for i, eff := range s.Effects {
		served, is := eff.Body.(*world.PodsAnswer)
		if !is {
			continue
		}
		for _, pod := range served.Pods {
			r.status(pod, r.last()-len(s.Effects)+1+i)
		}
	}
}

// happening records the bar of a happening that lasts.
func (r *Recorder) happening(at int64, h *plan.Happening) {
	bar := Bar{From: at, To: at, Row: r.last()}
	deed, name := h.Deed()
	bar.Label = r.number(name)
	switch d := deed.(type) {
	case *plan.FaultWindow:
		bar.Kind, bar.Label = "fault", r.number(string(d.Class))
		bar.To = min(at+time.Duration(d.For).Microseconds(), r.run.Healed)
	case *plan.RuntimeRestart:
		bar.Kind, bar.To = "runtimeDown", at+time.Duration(d.Down).Microseconds()
	case *plan.Reboot:
		bar.Kind, bar.To = "machineDown", at+time.Duration(d.Down).Microseconds()
		r.agentEnded(at)
	case *plan.AgentKill:
		r.now = at
		if r.agent != nil {
			r.down = &Bar{From: at, Kind: "agentDown", Label: bar.Label, Row: bar.Row}
			r.agentEnded(at)
		}
		return
	default:
		return
	}
	r.run.Bars = append(r.run.Bars, bar)
}

// agentStarted records that an incarnation of the agent starts. An agent that has panicked ended
// after its last step.
func (r *Recorder) agentStarted(at int64, incarnation, row int) {
	if r.agent != nil {
		r.agentEnded(r.agent.To)
	}
	if r.down != nil {
		r.down.To = at
		r.run.Bars = append(r.run.Bars, *r.down)
		r.down = nil
	}
	r.agent = &process{incarnation: incarnation, Bar: Bar{From: at, To: at, Kind: "agent", Row: row,
		Label: r.number(fmt.Sprint("agent ", incarnation))}}
}

// agentEnded records that the agent has ended. Its operations get no answer.
func (r *Recorder) agentEnded(at int64) {
	if r.agent == nil {
		return
	}
	r.agent.To = at
	r.run.Bars = append(r.run.Bars, r.agent.Bar)
	r.agent = nil
	r.endOps(at)
}

func (r *Recorder) endOps(at int64) {
	for _, op := range r.ops { //ordered: each is changed by itself
		r.run.Ops[op].End = at
	}
	clear(r.ops)
}

// Finish returns what was recorded of a run with that verdict. The recorder must not be used
// further.
func (r *Recorder) Finish(v *sim.Verdict) *Run {
	run := &r.run
	run.End = max(v.Virtual.Microseconds(), r.now, 1)
	run.Healed = min(run.Healed, run.End)
	run.Summary = fmt.Sprintf("%d events, %d effects, %d incarnations of the agent, %d restarts of "+
		"containers, %v virtual, hash %016x", v.Events, v.Effects, v.Incarnations, v.Restarts,
		v.Virtual.Round(time.Millisecond), v.Hash)
	if f := v.Failure; f != nil {
		run.Verdict = &Verdict{At: f.Virtual.Microseconds(), Oracle: f.Oracle, Message: f.Message,
			Event: f.Event, Row: r.last()}
	}
	r.agentEnded(run.End)
	r.endOps(run.End)
	if r.down != nil {
		r.down.To = run.End
		run.Bars = append(run.Bars, *r.down)
	}
	for i := range run.Bars {
		run.Bars[i].To = min(run.Bars[i].To, run.End)
	}
	r.arrangeLanes()
	return run
}

// arrangeLanes puts the lanes of pods in the order of their names, each followed by those of its
// containers.
func (r *Recorder) arrangeLanes() {
	slices.SortStableFunc(r.pods, func(x, y *pod) int {
		return compareNames(x.lane.Name, y.lane.Name)
	})
	place := make([]int, len(r.lanes))
	add := func(l *Lane) {
		place[l.number] = len(r.run.Lanes)
		r.run.Lanes = append(r.run.Lanes, l)
	}
	add(r.lanes[0])
	for _, p := range r.pods {
		p.end(r)
		add(p.lane)
		for _, c := range p.containers {
			c.lane.Pod = place[p.lane.number]
			add(c.lane)
		}
	}
	for i, lane := range r.run.Rows.Lane {
		r.run.Rows.Lane[i] = place[lane]
	}
}

// compareNames compares names as people do: web-2 comes before web-10.
func compareNames(x, y string) int {
	xs, xn := cutNumber(x)
	ys, yn := cutNumber(y)
	return cmp.Or(strings.Compare(xs, ys), cmp.Compare(len(xn), len(yn)), strings.Compare(xn, yn))
}

// cutNumber returns a name without the digits at its end, and them without zeros before them.
func cutNumber(name string) (rest, digits string) {
	rest = strings.TrimRight(name, "0123456789")
	return rest, strings.TrimLeft(name[len(rest):], "0")
}
