// Package trace prints what happens in a run as aligned lines that people read and grep: what the
// agent gets and does, and what really happens in the simulated world.
//
// Start reading at Printer; describe.go has the text of each body and fact.
package trace

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"seedlet.dev/sim"
	"seedlet.dev/sim/plan"
	"seedlet.dev/sim/truth"
	"seedlet.dev/world"
)

// Printer prints a run, a line for each event and effect of the agent, for each fact of the
// simulated world, and for what the plan does to it:
//
//	#12     0:01.004318  1  ← ListContainers     #4      3 containers
//	                        → StopContainer      #9      ab12cd34ef56 grace 30s
//	        0:01.021100     · ContainerExited            web/app ab12cd34ef56 exit 0 own
//	        0:02.000000     ! restartRuntime             down 3s
//
// The columns are the event's number, the virtual time, the incarnation of the agent, the kind of
// the line, its name, the operation, and the essential parts. Set Write or Handle before use, and
// the filters.
type Printer struct {
	Write func(line string)
	// Handle, if not nil, gets the lines in parts, instead of Write.
	Handle func(Row)
	// Kinds are the kinds of the lines to print; empty: all.
	Kinds string
	// From is the virtual time since the start of the run from which lines are printed.
	From time.Duration
	// Pod is the name of the pod that lines have to be about; empty: all lines.
	Pod string

	calls       map[world.OpID]string // by operation in flight
	incarnation int
	windows     []windowEnd // to come, the earliest first
	healed      time.Time   // when all faults end
	related     relation    // of the lines to Pod
}

// Kinds of lines.
const (
	KindEvent  = '←' // the agent gets an event
	KindEffect = '→' // the agent issues an effect
	KindFact   = '·' // something happens in the simulated world
	KindPlan   = '!' // the plan does something to it
)

// Attach has a run printed.
func (t *Printer) Attach(p *plan.Plan, o *sim.Options) {
	t.healed = plan.Start.Add(time.Duration(p.Spec.Duration))
	t.windows = []windowEnd{{t.healed, "the faults heal", ""}}
	t.related = newRelation(t.Pod)
	o.Watch, o.WatchFact, o.WatchHappening = t.step, t.fact, t.happening
}

// step writes the lines of one step.
func (t *Printer) step(s sim.Step) {
	if s.Incarnation != t.incarnation {
		t.incarnation, t.calls = s.Incarnation, map[world.OpID]string{}
		t.related.forgetOps()
		t.line(Row{At: s.Event.Time, Kind: KindPlan, Incarnation: s.Incarnation,
			Name: "the agent starts", isForAll: true})
	}
	call, known := t.calls[s.Event.Op]
	delete(t.calls, s.Event.Op)
	switch {
	case known:
	case s.Event.Body == nil && s.Event.Op == 0:
		call = "wake"
	default:
		call = world.BodyName(s.Event.Body)
	}
	t.line(Row{Number: s.Number, At: s.Event.Time, Incarnation: s.Incarnation, Kind: KindEvent,
		Name: call, Op: s.Event.Op, Text: outcome(s.Event)})
	for _, eff := range s.Effects {
		name := world.CallName(eff.Body)
		if eff.Op != 0 {
			t.calls[eff.Op] = name
		}
		t.line(Row{Number: s.Number, At: s.Event.Time, Incarnation: s.Incarnation, Kind: KindEffect,
			Name: name, Op: eff.Op, Text: describe(eff.Body), Pod: eff.Pod})
	}
}

// fact writes the line of a fact of the simulated world.
func (t *Printer) fact(f truth.Fact) {
	t.related.learn(&f)
	t.line(Row{At: f.Time, Kind: KindFact, Name: string(f.Kind), Text: describeFact(&f),
		Pod: f.PodUID})
}

// happening writes the line of a happening of the plan that begins.
func (t *Printer) happening(at time.Time, h *plan.Happening) {
	deed, name := h.Deed()
	text := describeDeed(deed)
	isWindow := h.Fault != nil
	if isWindow {
		text = "begins: " + text
	}
	t.line(Row{At: at, Kind: KindPlan, Name: name, Text: text, isForAll: isWindow})
	if isWindow {
		t.addWindowEnd(at, name, h.Fault)
	}
}

// Row is one line, in parts.
type Row struct {
	Number      uint64 // of the event of its step; zero for facts and the plan
	At          time.Time
	Incarnation int // of the agent; zero for facts and happenings
	Kind        rune
	Name        string
	Op          world.OpID
	Text        string
	Pod         string // the UID of the pod that it is about, if known
	isForAll    bool   // about all pods
}

// line writes a line, unless the filters leave it out, after those about the windows that have
// closed since the line before.
func (t *Printer) line(r Row) {
	for len(t.windows) > 0 && !t.windows[0].at.After(r.At) {
		w := t.windows[0]
		t.windows = t.windows[1:]
		t.line(Row{At: w.at, Kind: KindPlan, Name: w.name, Text: w.text, isForAll: true})
	}
	isRelated := r.isForAll || t.related.has(&r)
	if t.Kinds != "" && !strings.ContainsRune(t.Kinds, r.Kind) || r.At.Sub(plan.Start) < t.From ||
		!isRelated {
		return
	}
	if t.Handle != nil {
		t.Handle(r)
		return
	}
	number, id, incarnation := "", "", ""
	if r.Op != 0 {
		id = fmt.Sprintf("#%d", r.Op)
	}
	at := virtualTime(r.At)
	switch {
	case r.Kind == KindEffect && t.Pod == "" && strings.ContainsRune(cmp.Or(t.Kinds, "←"), KindEvent):
		at = "" // that of the event above
	case r.Number > 0:
		number = fmt.Sprintf("#%d", r.Number)
	}
	if r.Incarnation > 0 && at != "" {
		incarnation = fmt.Sprint(r.Incarnation)
	}
	line := fmt.Sprintf("%-7s %13s %2s  %c %-18s %-7s %s", number, at, incarnation, r.Kind, r.Name, id,
		strings.Map(visible, r.Text))
	t.Write(strings.TrimRight(line, " "))
}

// visible replaces a control character, as a manifest or an error may have: each row is one line,
// and a terminal shows it as it is.
func visible(r rune) rune {
	if unicode.IsControl(r) {
		return ' '
	}
	return r
}

// windowEnd is a line to come about the end of a fault window.
type windowEnd struct {
	at         time.Time
	name, text string
}

// addWindowEnd adds the line about the end of a fault window that opens now. All faults heal at the
// end of the plan's duration, of which there is a line.
func (t *Printer) addWindowEnd(now time.Time, name string, w *plan.FaultWindow) {
	end := windowEnd{now.Add(time.Duration(w.For)), name, "ends: " + w.ID}
	if end.at.Before(t.healed) {
		t.windows = append(t.windows, end)
		slices.SortStableFunc(t.windows, func(x, y windowEnd) int { return x.at.Compare(y.at) })
	}
}

// virtualTime returns the time since the start of the run, in minutes and seconds.
func virtualTime(t time.Time) string {
	d := t.Sub(plan.Start)
	return fmt.Sprintf("%d:%09.6f", int(d.Minutes()), (d % time.Minute).Seconds())
}
