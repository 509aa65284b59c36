package sim

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"seedlet.dev/sim/apiserver"
	"seedlet.dev/sim/runtime"
	"seedlet.dev/sim/wire"
	"seedlet.dev/world"
)

// Window is a stretch of time in which calls of some kinds go wrong in one way.
type Window struct {
	ID          string   `json:"id"` // what is drawn in it depends on its id, not on its place
	At          Duration `json:"at"`
	For         Duration `json:"for"`
	Class       Class    `json:"class"`
	Calls       []string `json:"calls,omitempty"` // none: all that the class can strike
	Probability float64  `json:"probability,omitempty"`
	Takes       Span     `json:"takes,omitempty"`
	Path        string   `json:"path,omitempty"` // of path-hangs
}

// Class is a way to go wrong.
type Class string

// The classes of faults.
const (
	ClassLatency  Class = "latency"      // call and answer take longer on their way
	ClassSlow     Class = "slow"         // the port takes longer to do it
	ClassRefused  Class = "error-before" // an error, without an effect
	ClassFailed   Class = "error-after"  // an error, although it took effect
	ClassLost     Class = "lost"         // no answer until the deadline, although it took effect
	ClassUnheard  Class = "unheard"      // changes of files are not told, or told late
	ClassDiskFull Class = "disk-full"    // no space for what the agent writes

	ClassPathHangs Class = "path-hangs" // calls at a path and below it are not answered meanwhile

	ClassNetworkDown Class = "network-not-ready" // so the runtime says
	ClassUnready     Class = "runtime-not-ready" // likewise

	ClassEventsLost  Class = "events-lost"   // the runtime's events are not told
	ClassEventsLate  Class = "events-late"   // they come late, and others before them
	ClassEventsTwice Class = "events-twice"  // they come again later
	ClassNoStream    Class = "stream-broken" // the stream of events ends, and none can be opened
)

var classes = append([]Class{
	ClassLatency, ClassSlow, ClassRefused, ClassFailed, ClassLost, ClassUnheard, ClassDiskFull,
	ClassEventsLost, ClassEventsLate, ClassEventsTwice, ClassNoStream, ClassNetworkDown,
	ClassUnready, ClassPathHangs,
}, apiClasses...)

// strikable are the calls that faults can strike: every one that the agent can make.
var strikable = func() []string {
	var calls []string
	for _, name := range world.BodyNames() {
		if call, is := strings.CutSuffix(name, "Request"); is {
			switch call {
			case "Pods", "State", "Health", "Metrics":
			default:
				calls = append(calls, call)
			}
		}
	}
	calls = append(calls, apiCalls...)
	return append(calls,
		"ReadFiles", "ReadTail", "StatPath", "ListDir", "ReadLinks", "MeasureTree",
		"MakeDir", "MakeFile", "MakeLink", "WriteFile", "WriteDir", "Rename", "Compress",
		"RemoveTree", "ShareWithGroup", "MountMemory", "BindSubPath", "Unmount",
		"HTTPGet", "TCPConnect", "GRPCCheck", "FetchManifest",
		"SetCgroup", "RemoveCgroup", "ListCgroups")
}()

func checkClass(class Class, calls []string) error {
	if !slices.Contains(classes, class) {
		return fmt.Errorf("class: want one of %v, have %q", classes, class)
	}
	for i, call := range calls {
		if !slices.Contains(strikable, call) {
			return fmt.Errorf("calls[%d]: no call is named %q, there are %s", i, call,
				strings.Join(strikable, ", "))
		}
	}
	return nil
}

func (w *Window) validate() error {
	switch {
	case w.ID == "":
		return errors.New("id: want a name, have none")
	case w.Probability < 0 || w.Probability > 1:
		return fmt.Errorf("probability: want a number from 0 to 1, have %g", w.Probability)
	}
	if err := checkPath(w.Class, w.Path); err != nil {
		return err
	}
	return checkClass(w.Class, w.Calls)
}

func checkPath(class Class, p string) error {
	if (class == ClassPathHangs) != path.IsAbs(p) {
		return fmt.Errorf("path: want an absolute one for %s and none for others, have %q",
			ClassPathHangs, p)
	}
	return nil
}

// The ends of a latency when nothing is wrong.
const (
	latencyLeast = 50 * time.Microsecond
	latencyMost  = 4 * time.Millisecond
	// unheardLate is the longest that a late word of a changed file takes.
	unheardLate = 15 * time.Second
)

// fates decides what happens to calls on their way: a function of the seed, the windows that are
// open, and the name and ordinal of the call.
type fates struct {
	seed     uint64
	start    time.Time
	order    Order
	windows  []openWindow
	changes  []time.Time // priorities are drawn anew at these
	callHash map[string]uint64
}

type openWindow struct {
	Window
	from, to time.Time
	hash     uint64
}

func newFates(p *PlanSpec, start time.Time) *fates {
	f := &fates{seed: p.Seed, start: start, order: p.Order, callHash: map[string]uint64{}}
	for _, w := range p.Faults {
		from := start.Add(time.Duration(w.At))
		to := from.Add(time.Duration(w.For))
		if heals := start.Add(time.Duration(p.Duration)); to.After(heals) {
			to = heals
		}
		f.windows = append(f.windows, openWindow{w, from, to, hashText(w.ID)})
	}
	if p.Order == OrderPriority {
		r := wire.Stream(p.Seed, "priority changes")
		for range priorityChanges {
			f.changes = append(f.changes, start.Add(
				time.Duration(r.Int64N(int64(p.Duration)+1))))
		}
		slices.SortFunc(f.changes, time.Time.Compare)
	}
	return f
}

// priorityChanges is the depth of the bugs that the priority strategy looks for, less one.
const priorityChanges = 3

// Fate implements wire.FaultSource.
func (f *fates) Fate(call string, op int, now time.Time) wire.Fate {
	named, known := f.callHash[call]
	if !known {
		named = hashText(call)
		f.callHash[call] = named
	}
	fate := f.calm(named, op, now)
	for i := range f.windows {
		w := &f.windows[i]
		if now.Before(w.from) || !now.Before(w.to) || !w.strikes(call) {
			continue
		}
		dice := draws(mix(f.seed ^ w.hash ^ mix(named+uint64(op))))
		if w.Class == ClassUnheard || dice.share() < w.Probability {
			w.strike(&fate, &dice, call)
		}
	}
	return fate
}

func (w *openWindow) strikes(call string) bool {
	switch w.Class {
	case ClassEventsLost, ClassEventsLate, ClassEventsTwice:
		return call == runtime.CallEvent
	case ClassNoStream:
		return call == "GetEvents"
	case ClassNetworkDown, ClassUnready, ClassPathHangs:
		return false
	}
	if slices.Contains(apiClasses, w.Class) {
		return w.strikesAPI(call)
	}
	if call == runtime.CallEvent || call == apiserver.CallObject {
		return false
	}
	if call == "FileChanged" || w.Class == ClassUnheard {
		return call == "FileChanged" && w.Class == ClassUnheard
	}
	return len(w.Calls) == 0 || slices.Contains(w.Calls, call)
}

// calm is the fate of a call when nothing is wrong.
func (f *fates) calm(named uint64, op int, now time.Time) wire.Fate {
	dice := draws(mix(f.seed ^ mix(named^uint64(op)<<20)))
	if f.order == OrderPriority {
		era := 0
		for era < len(f.changes) && !now.Before(f.changes[era]) {
			era++
		}
		priority := draws(mix(f.seed ^ named ^ uint64(era)<<48))
		at := latencyLeast + time.Duration(priority.share()*float64(latencyMost-latencyLeast))
		jitter := time.Duration(dice.next() % uint64(latencyLeast))
		return wire.Fate{Receive: at + jitter, Answer: at + jitter}
	}
	return wire.Fate{
		Receive: dice.between(latencyLeast, latencyMost),
		Answer:  dice.between(latencyLeast, latencyMost),
	}
}

// strike makes a fate worse, as the window has it.
func (w *openWindow) strike(fate *wire.Fate, dice *draws, call string) {
	switch w.Class {
	case ClassLatency:
		fate.Receive += dice.between(w.Takes.Least, w.Takes.Most)
		fate.Answer += dice.between(w.Takes.Least, w.Takes.Most)
	case ClassSlow:
		fate.EffectDelay += dice.between(w.Takes.Least, w.Takes.Most)
	case ClassRefused:
		kinds := []world.ErrorKind{
			world.KindInternal, world.KindUnavailable, world.KindExhausted, world.KindInternal,
		}
		fate.Before = world.Errorf(kinds[dice.next()%4], call, "refused by the plan's %s", w.ID)
	case ClassFailed:
		kinds := []world.ErrorKind{world.KindInternal, world.KindUnavailable, world.KindTimeout}
		fate.After = world.Errorf(kinds[dice.next()%3], call, "failed by the plan's %s", w.ID)
	case ClassLost:
		fate.Lost = true
		fate.EffectDelay += dice.between(w.Takes.Least, w.Takes.Most)
	case ClassEventsLost:
		fate.Lost = true
	case ClassThrottled:
		fate.Before = w.throttled(dice, call)
	case ClassEventsLate, ClassWatchLag:
		fate.EffectDelay += dice.between(w.Takes.Least, w.Takes.Most)
	case ClassEventsTwice:
		fate.Twice = true
		fate.EffectDelay += dice.between(w.Takes.Least, w.Takes.Most)
	case ClassNoStream:
		fate.Before = world.Errorf(world.KindUnavailable, call, "refused by the plan's %s", w.ID)
	case ClassUnheard:
		fate.Lost = dice.share() < w.Probability
		fate.Receive += dice.between(0, unheardLate)
	}
}

// draws is a small random stream of its own, for one decision (splitmix64).
type draws uint64

func (d *draws) next() uint64 {
	*d += 0x9e3779b97f4a7c15
	return mix(uint64(*d))
}

func (d *draws) share() float64 { return float64(d.next()>>11) / (1 << 53) }

func (d *draws) between(least, most time.Duration) time.Duration {
	if most <= least {
		return least
	}
	return least + time.Duration(d.next()%uint64(most-least))
}

// mix spreads the bits of a number: the finalizer of splitmix64.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// hashText is FNV-1a, mixed: the same in every process.
func hashText(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return mix(h)
}
