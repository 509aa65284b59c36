package faults

import (
	"cmp"
	"slices"
	"time"

	"seedlet.dev/sim/apiserver"
	"seedlet.dev/sim/plan"
	"seedlet.dev/sim/runtime"
	"seedlet.dev/sim/wire"
	"seedlet.dev/world"
)

// The bounds of delays.
const (
	latencyLeast = 50 * time.Microsecond // of a request or response without a fault
	latencyMost  = 4 * time.Millisecond
	// fileEventLateMax bounds how late the notification of a changed file is.
	fileEventLateMax = 15 * time.Second
)

// priorityChanges is how often the priority strategy changes its priorities in a run. The strategy
// finds bugs whose depth is at most one more (Burckhardt et al., "A Randomized Scheduler with
// Probabilistic Guarantees of Finding Bugs").
const priorityChanges = 3

// Injector decides the latency of each call, and which faults apply to it.
type Injector struct {
	seed            uint64
	healed          time.Time // when all faults end
	order           plan.Order
	windows         []window
	priorityChanges []time.Time // of the priority strategy
	landsBy         time.Time   // see LandsBy

	// IsPod reports whether a UID is one that a pod of the plan has had, by the name of its entry. Set
	// it before the first call.
	IsPod func(entry, uid string) bool
}

// window is a fault window in virtual time.
type window struct {
	*plan.FaultWindow
	from, to time.Time // zero: the window has an anchor, and is not open yet
	hash     uint64    // of the ID
	calls    int       // so far, that it may have affected
}

// NewInjector returns the injector of a plan's faults, for a run that begins at start.
func NewInjector(spec *plan.Spec, start time.Time) *Injector {
	f := &Injector{seed: spec.Seed, order: spec.Order,
		healed: start.Add(time.Duration(spec.Duration))}
	for i := range spec.Happenings {
		h := &spec.Happenings[i]
		if h.Fault == nil {
			continue
		}
		w := window{FaultWindow: h.Fault, hash: hashText(h.Fault.ID)}
		if h.When == nil {
			w.open(start.Add(time.Duration(h.At)), f.healed)
		}
		f.windows = append(f.windows, w)
	}
	if spec.Order == plan.OrderPriority {
		r := wire.Stream(spec.Seed, "priority changes")
		for range priorityChanges {
			f.priorityChanges = append(f.priorityChanges, start.Add(
				time.Duration(r.Int64N(int64(spec.Duration)+1))))
		}
		slices.SortFunc(f.priorityChanges, time.Time.Compare)
	}
	return f
}

// open sets when the window begins and ends.
func (w *window) open(from, healed time.Time) {
	w.from, w.to = from, from.Add(time.Duration(w.For))
	if w.Forever {
		w.to = from.Add(notYet)
		return
	}
	if w.to.After(healed) {
		w.to = healed
	}
}

// Open opens a window of the plan, unless it was opened before. One that has no anchor is open from
// its time on.
func (f *Injector) Open(w *plan.FaultWindow, now time.Time) {
	for i := range f.windows {
		if f.windows[i].FaultWindow == w && f.windows[i].from.IsZero() {
			f.windows[i].open(now, f.healed)
		}
	}
}

// Decide implements wire.FaultSource.
func (f *Injector) Decide(id wire.CallID, now time.Time) wire.Outcome {
	call := mix(id.Hash + uint64(id.Nth))
	outcome := f.faultFree(id, call, now)
	for i := range f.windows {
		w := &f.windows[i]
		if now.Before(w.from) || !now.Before(w.to) || !w.applies(id.Name) || !f.isAbout(w, id.Pod) {
			continue
		}
		if w.calls++; w.Nth > 0 && w.calls != w.Nth {
			continue
		}
		dice := decisionStream(mix(f.seed ^ w.hash ^ call))
		if w.Class == plan.FaultFileEvents || dice.share() < w.Probability {
			w.apply(&outcome, &dice, id.Name)
		}
	}
	lands := now.Add(outcome.RequestLatency + outcome.EffectDelay + outcome.ResponseLatency)
	if lands.After(f.landsBy) {
		f.landsBy = lands
	}
	return outcome
}

// LandsBy returns by when the effects of all calls and notifications so far have landed, but for
// what the ports take themselves.
func (f *Injector) LandsBy() time.Time { return f.landsBy }

// Reseed decides the fates of later calls by another seed. The windows of the plan stay.
func (f *Injector) Reseed(seed uint64) { f.seed = seed }

// isAbout reports whether the faults of a window may affect calls about a pod.
func (f *Injector) isAbout(w *window, uid string) bool {
	return w.Pod == "" || uid != "" && f.IsPod(w.Pod, uid)
}

// faultFree returns the latency of a call to which no fault applies.
func (f *Injector) faultFree(id wire.CallID, call uint64, now time.Time) wire.Outcome {
	dice := decisionStream(mix(f.seed ^ call))
	if f.order == plan.OrderPriority {
		era := 0
		for era < len(f.priorityChanges) && !now.Before(f.priorityChanges[era]) {
			era++
		}
		priority := decisionStream(mix(f.seed ^ id.Hash ^ uint64(era)<<48))
		at := latencyLeast + time.Duration(priority.share()*float64(latencyMost-latencyLeast))
		jitter := time.Duration(dice.next() % uint64(latencyLeast))
		return wire.Outcome{RequestLatency: at + jitter, ResponseLatency: at + jitter}
	}
	return wire.Outcome{
		RequestLatency:  dice.between(latencyLeast, latencyMost),
		ResponseLatency: dice.between(latencyLeast, latencyMost),
	}
}

// APIReach returns how far the agent's requests get on the way to the API server at a time.
func (f *Injector) APIReach(now time.Time) apiserver.Reachability {
	worst := apiserver.Reachable
	for i := range f.windows {
		w := &f.windows[i]
		if now.Before(w.from) || !now.Before(w.to) {
			continue
		}
		switch w.Class {
		case plan.FaultAPIDown:
			return apiserver.ServerDown
		case plan.FaultAPIPartition:
			worst = apiserver.NetworkDown
		case plan.FaultAPIUnauthorized:
			if worst == apiserver.Reachable {
				worst = apiserver.Unauthorized
			}
		}
	}
	return worst
}

// applies reports whether the window's faults can apply to a call. Each class has a case, also one
// of a whole port, and one that explains no call: by applies, oracles decide what they excuse.
func (w *window) applies(call string) bool {
	switch w.Class {
	case plan.FaultEventsLost, plan.FaultEventsLate, plan.FaultEventsTwice:
		return call == runtime.CallEvent
	case plan.FaultStreamBroken:
		return call == "GetEvents"
	case plan.FaultNetworkNotReady:
		return call == "RunPodSandbox" // which the runtime refuses
	case plan.FaultStaleStats:
		return call == "ListPodSandboxStats"
	case plan.FaultRuntimeNotReady, plan.FaultPathHangs, plan.FaultMissingStats:
		return false
	case plan.FaultAgentStalls:
		return true // no response is handled before the end
	case plan.FaultFileEvents:
		return call == fileEvent
	case plan.FaultDiskFull:
		return slices.Contains(diskFullCalls, call)
	case plan.FaultLatency, plan.FaultSlowPort, plan.FaultErrorBefore, plan.FaultErrorAfter,
		plan.FaultResponseLost:
		isNotice := call == runtime.CallEvent || call == apiserver.CallObject || call == fileEvent
		return !isNotice && w.hasCall(call)
	}
	return w.appliesToAPI(call)
}

// fileEvent is the name by which the outcomes of notifications of changed files are decided.
const fileEvent = "FileChanged"

// hasCall reports whether the window has a call among those that it is limited to, if it is.
func (w *window) hasCall(call string) bool {
	return len(w.Calls) == 0 || slices.Contains(w.Calls, call)
}

// appliesToAPI is applies for the classes of faults of the API server.
func (w *window) appliesToAPI(call string) bool {
	switch w.Class {
	case plan.FaultWatchLag:
		return call == apiserver.CallObject
	case plan.FaultWatchGap:
		return call == apiserver.CallObject || call == "WatchObjects"
	case plan.FaultAPIThrottled:
		return plan.IsAPICall(call) && w.hasCall(call)
	case plan.FaultAPIDown, plan.FaultAPIPartition, plan.FaultAPIUnauthorized:
		return call == apiserver.CallObject || plan.IsAPICall(call)
	}
	panic("faults: no case says which calls the class " + string(w.Class) + " may explain")
}

// apply adds a fault of the window to the outcome of a call.
func (w *window) apply(outcome *wire.Outcome, dice *decisionStream, call string) {
	switch w.Class {
	case plan.FaultLatency:
		outcome.RequestLatency += dice.between(w.Takes.Least, w.Takes.Most)
		outcome.ResponseLatency += dice.between(w.Takes.Least, w.Takes.Most)
	case plan.FaultSlowPort:
		outcome.EffectDelay += dice.between(w.Takes.Least, w.Takes.Most)
	case plan.FaultErrorBefore:
		kinds := []world.ErrorKind{
			world.KindInternal, world.KindUnavailable, world.KindExhausted, world.KindInternal,
		}
		kind := cmp.Or(w.Kind, kinds[dice.next()%4])
		outcome.ErrorBefore = world.Errorf(kind, call, "refused by the plan's %s", w.ID)
	case plan.FaultErrorAfter:
		kinds := []world.ErrorKind{world.KindInternal, world.KindUnavailable, world.KindTimeout}
		kind := cmp.Or(w.Kind, kinds[dice.next()%3])
		outcome.ErrorAfter = world.Errorf(kind, call, "failed by the plan's %s", w.ID)
	case plan.FaultResponseLost:
		outcome.ResponseLost = true
		outcome.EffectDelay += dice.between(w.Takes.Least, w.Takes.Most)
	case plan.FaultEventsLost:
		outcome.ResponseLost = true
	case plan.FaultAPIThrottled:
		outcome.ErrorBefore = w.throttledError(dice, call)
	case plan.FaultEventsLate, plan.FaultWatchLag:
		outcome.EffectDelay += dice.between(w.Takes.Least, w.Takes.Most)
	case plan.FaultEventsTwice:
		outcome.Duplicated = true
		outcome.EffectDelay += dice.between(w.Takes.Least, w.Takes.Most)
	case plan.FaultStreamBroken:
		outcome.ErrorBefore = world.Errorf(world.KindUnavailable, call, "refused by the plan's %s", w.ID)
	case plan.FaultFileEvents:
		outcome.ResponseLost = dice.share() < w.Probability
		outcome.RequestLatency += dice.between(0, fileEventLateMax)
	}
}

// throttledError returns the error of an API server that limits the rate of requests.
func (w *window) throttledError(dice *decisionStream, call string) *world.Error {
	err := world.Errorf(world.KindThrottled, call, "too many requests, says the plan's %s", w.ID)
	err.RetryAfter = dice.between(w.Takes.Least, w.Takes.Most).Round(time.Second)
	return err
}

// decisionStream is the random stream of a single decision (splitmix64).
type decisionStream uint64

func (d *decisionStream) next() uint64 {
	*d += 0x9e3779b97f4a7c15
	return mix(uint64(*d))
}

func (d *decisionStream) share() float64 { return float64(d.next()>>11) / (1 << 53) }

func (d *decisionStream) between(least, most time.Duration) time.Duration {
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

// hashText is FNV-1a with its bits spread. It is the same in every process.
func hashText(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return mix(h)
}
