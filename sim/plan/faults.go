package plan

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path"
	"slices"
	"strings"

	"seedlet.dev/world"
)

// FaultWindow is a period in which faults of one class are injected. Package faults decides which
// calls they apply to.
type FaultWindow struct {
	ID          string     `json:"id"` // seeds the decisions, which do not depend on other windows
	For         Duration   `json:"for"`
	Class       FaultClass `json:"class"`
	Calls       []string   `json:"calls,omitempty"`       // none: every call of the class
	Probability float64    `json:"probability,omitempty"` // that a fault applies to a call
	Takes       Span       `json:"takes,omitempty"`       // the delay, where the class has one
	Path        string     `json:"path,omitempty"`        // of path-hangs

	// Pod is the entry of pods whose calls are affected; absent: all calls.
	Pod string `json:"pod,omitempty"`
	// Kind is the kind of the errors of error-before and error-after; absent: one is drawn for each.
	Kind world.ErrorKind `json:"kind,omitempty"`
	// Nth is which of the calls that the window may affect is the only one that it does; zero: each.
	Nth int `json:"nth,omitempty"`
	// Forever is set if the window never ends: the pod can never be made. Only calls that make
	// something fail like that, so the pod has to go without a trace once it is not desired any more,
	// and all others have to be as if it were not there.
	Forever bool `json:"forever,omitempty"`
}

// FaultRange is one class of faults between the agent and its ports.
type FaultRange struct {
	Class       FaultClass `json:"class"`
	Calls       []string   `json:"calls,omitempty"` // absent: every call of the class
	Windows     Count      `json:"windows"`
	For         Span       `json:"for"` // the length of a window
	Probability Share      `json:"probability,omitempty"`
	Takes       Span       `json:"takes,omitempty"`  // as in FaultWindow
	Always      bool       `json:"always,omitempty"` // in every seed
	Path        string     `json:"path,omitempty"`   // of path-hangs
	At          *Span      `json:"at,omitempty"`     // when a window begins; absent: at any time

	// Seeds is the share of the seeds that have the range at all; absent: each.
	Seeds *Share `json:"seeds,omitempty"`
	// OnePod, OneKind and OneCall are the shares of the windows that are about one pod, that have
	// errors of one kind, and that affect one call only.
	OnePod  Share `json:"onePod,omitempty"`
	OneKind Share `json:"oneKind,omitempty"`
	OneCall Share `json:"oneCall,omitempty"`
	Forever bool  `json:"forever,omitempty"` // as in FaultWindow; each window is about one pod
}

// FaultClass is a kind of fault.
type FaultClass string

// The classes of faults between the agent and the runtime, the file system, the network and the
// host.
const (
	FaultLatency      FaultClass = "latency"      // request and response take longer on their way
	FaultSlowPort     FaultClass = "slow"         // the port takes longer to serve the call
	FaultErrorBefore  FaultClass = "error-before" // an error, and the call has no effect
	FaultErrorAfter   FaultClass = "error-after"  // an error, although the call took effect
	FaultResponseLost FaultClass = "lost"         // no response, although the call took effect
	FaultFileEvents   FaultClass = "unheard"      // notifications of changed files are late or lost
	FaultDiskFull     FaultClass = "disk-full"    // no space for what the agent writes
	FaultPathHangs    FaultClass = "path-hangs"   // calls at and below a path hang until the end

	// FaultAgentStalls pauses the agent's process, as SIGSTOP does: events wait until the end.
	FaultAgentStalls FaultClass = "agent-stalls"

	FaultNetworkNotReady FaultClass = "network-not-ready" // as the runtime's status reports
	FaultRuntimeNotReady FaultClass = "runtime-not-ready" // as the runtime's status reports
	FaultStaleStats      FaultClass = "stale-stats"       // the runtime's statistics of pods go back
	FaultMissingStats    FaultClass = "missing-stats"     // the runtime has none of its oldest sandbox

	FaultEventsLost   FaultClass = "events-lost"   // events of the runtime are lost
	FaultEventsLate   FaultClass = "events-late"   // they are late, and later ones overtake them
	FaultEventsTwice  FaultClass = "events-twice"  // they arrive a second time, later
	FaultStreamBroken FaultClass = "stream-broken" // the event stream breaks and cannot be reopened
)

// The classes of faults between the agent and the API server.
const (
	FaultAPIThrottled    FaultClass = "api-throttled"    // 429; Takes is the Retry-After
	FaultAPIDown         FaultClass = "api-down"         // connections are refused, watches expire
	FaultAPIPartition    FaultClass = "api-partition"    // the network loses every packet
	FaultAPIUnauthorized FaultClass = "api-unauthorized" // 401: the server does not know the agent
	FaultWatchLag        FaultClass = "watch-lag"        // watch events are late by Takes
	FaultWatchGap        FaultClass = "watch-gap"        // watches break, and their version is gone
)

var faultClasses = append([]FaultClass{
	FaultLatency, FaultSlowPort, FaultErrorBefore, FaultErrorAfter, FaultResponseLost,
	FaultFileEvents, FaultDiskFull, FaultEventsLost, FaultEventsLate, FaultEventsTwice,
	FaultStreamBroken, FaultNetworkNotReady, FaultRuntimeNotReady, FaultPathHangs,
	FaultAgentStalls, FaultStaleStats, FaultMissingStats,
}, apiFaultClasses...)

// FaultClasses returns the classes of faults.
func FaultClasses() []FaultClass { return slices.Clone(faultClasses) }

var apiFaultClasses = []FaultClass{
	FaultAPIThrottled, FaultAPIDown, FaultAPIPartition, FaultAPIUnauthorized, FaultWatchLag,
	FaultWatchGap,
}

// AffectsAPI reports whether faults of the class are between the agent and the API server.
func (c FaultClass) AffectsAPI() bool { return slices.Contains(apiFaultClasses, c) }

// errorKinds are the kinds of errors that a class of faults may have. Those of which package world
// says that there was no effect come before the effect.
var errorKinds = map[FaultClass][]world.ErrorKind{
	FaultErrorBefore: {world.KindNotFound, world.KindExists, world.KindConflict, world.KindInvalid,
		world.KindRefused, world.KindExhausted, world.KindUnavailable, world.KindInternal},
	FaultErrorAfter: {world.KindUnavailable, world.KindTimeout, world.KindInternal},
}

// makingCalls are those that may fail for ever: they make a pod, and none of them is needed to
// remove it.
var makingCalls = []string{"RunPodSandbox", "CreateContainer", "StartContainer"}

// isClaim reports whether an error says what is so. Of some calls that would be a lie that no port
// tells, such as that the machine shuts down (DelayShutdown with KindConflict), that there is no
// Node, or that a status of a pod is not valid: a range that is to have such kinds names its calls.
func isClaim(kind world.ErrorKind) bool {
	return slices.Contains([]world.ErrorKind{world.KindNotFound, world.KindExists,
		world.KindConflict, world.KindInvalid}, kind)
}

// IsAPICall reports whether a call goes to the API server.
func IsAPICall(call string) bool { return slices.Contains(apiCalls, call) }

var apiCalls = []string{
	"WatchObjects", "GetObject", "CreateObject", "UpdateObject", "PatchObject", "DeleteObject",
	"CreateToken",
}

// faultableCalls are the calls that faults can apply to: every call of the agent that has a
// response.
var faultableCalls = func() []string {
	var calls []string
	for _, name := range world.BodyNames() {
		if call, isRequest := strings.CutSuffix(name, "Request"); isRequest {
			switch call {
			case "Pods", "RunningPods", "State", "Health", "Metrics", "Container": // requests to the agent
			default:
				calls = append(calls, call)
			}
		}
	}
	calls = append(calls, apiCalls...)
	return append(calls,
		"ReadFiles", "ReadTail", "ReadInVolume", "StatPath", "ListDir", "ReadLinks", "MeasureTree",
		"MeasureFilesystem", "MeasureDevice", "MakeDir", "MakeFile", "MakeLink", "WriteFile",
		"WriteDir", "Rename", "Compress",
		"RemoveTree", "ShareWithGroup", "MountMemory", "BindSubPath", "Unmount",
		"HTTPGet", "TCPConnect", "GRPCCheck", "FetchManifest",
		"SetCgroup", "RemoveCgroup", "ListCgroups", "ReadMachine", "MeasureNode",
		"MeasureTrees", "DelayShutdown",
		"PermitShutdown", "GetPluginInfo", "NotifyPluginRegistration",
		"BindMount", "MountDevice", "MountNFS", "ListMounts",
		"GetCSINodeInfo", "StageVolume", "UnstageVolume", "PublishVolume", "UnpublishVolume",
		"ExpandVolume", "GetVolumeStats", "HoldDevice", "ReleaseDevice",
		"GetCredentials", "ReadDockerConfig", "MakeKey",
		"RunISCSIAdm", "FindSCSIDisks", "ScanSCSIHost", "ScanSCSIHosts", "RemoveSCSIDisks",
		"MeasureFiles")
}()

// Calls returns the calls of the agent that have a response.
func Calls() []string { return slices.Clone(faultableCalls) }

// addFaults generates the fault windows. The order of the random draws is that of the fields.
func (g *generator) addFaults() {
	for i := range g.scenario.Spec.Faults {
		f := &g.scenario.Spec.Faults[i]
		class := fmt.Sprintf("%s-%d", f.Class, i)
		r := g.stream("fault " + class)
		weight := g.swarmWeight(class, f.Always)
		narrow := g.stream("narrow " + class)
		if f.Seeds != nil && !f.Seeds.drawBool(narrow) {
			continue
		}
		for n := range g.occurrences(class, f.Windows, f.Always) {
			at, w := g.randomTime(r), &FaultWindow{
				ID: fmt.Sprintf("%s-%d", class, n), For: Duration(f.For.draw(r)),
				Class: f.Class, Calls: f.Calls, Takes: f.Takes, Path: f.Path,
				Probability: min(1, float64(int(f.Probability.draw(r)*weight*1000))/1000),
			}
			if f.At != nil {
				at = Duration(f.At.draw(r))
			}
			if g.narrowFault(narrow, f, w) {
				g.add(at, w)
			}
		}
	}
}

// callsToSkip is the most calls that a window passes over before the only one that it affects.
const callsToSkip = 5

// narrowFault makes a window one of one pod, one kind of error, or one call, as the range says. It
// returns false if the window has to be about a pod, and there is none.
func (g *generator) narrowFault(r *rand.Rand, f *FaultRange, w *FaultWindow) bool {
	if f.OnePod.drawBool(r) || f.Forever {
		var pods []string
		for i := range g.plan.Spec.Pods {
			if p := &g.plan.Spec.Pods[i]; p.Hostile == nil && p.Panics == 0 {
				pods = append(pods, p.Name)
			}
		}
		if len(pods) > 0 {
			w.Pod = pods[r.IntN(len(pods))]
		}
	}
	kinds := slices.Clone(errorKinds[w.Class])
	if len(w.Calls) == 0 {
		kinds = slices.DeleteFunc(kinds, isClaim)
	}
	if f.OneKind.drawBool(r) && len(kinds) > 0 {
		w.Kind = kinds[r.IntN(len(kinds))]
	}
	if f.OneCall.drawBool(r) {
		w.Nth, w.Probability = 1+r.IntN(callsToSkip), 1
		if len(w.Calls) > 0 {
			w.Calls = []string{w.Calls[r.IntN(len(w.Calls))]}
		}
	}
	w.Forever = f.Forever
	return w.Pod != "" || !f.Forever
}

// Length implements Deed.
func (w *FaultWindow) Length() Duration { return w.For }

// PodEntry implements Deed.
func (w *FaultWindow) PodEntry() string { return w.Pod }

func (w *FaultWindow) validate(s *Spec) error {
	switch {
	case w.ID == "":
		return errors.New("id: want a name, have none")
	case w.Probability < 0 || w.Probability > 1:
		return fmt.Errorf("probability: want a number from 0 to 1, have %g", w.Probability)
	case w.Pod != "" && s.PodNamed(w.Pod) == nil:
		return fmt.Errorf("pod: no pod is called %q", w.Pod)
	case w.Kind != "" && !slices.Contains(errorKinds[w.Class], w.Kind):
		return fmt.Errorf("kind: want one of %v for %s, have %q", errorKinds[w.Class], w.Class, w.Kind)
	}
	if err := w.validateForever(); err != nil {
		return err
	}
	if err := validatePath(w.Class, w.Path); err != nil {
		return err
	}
	return validateClass(w.Class, w.Calls)
}

func (w *FaultWindow) validateForever() error {
	isOther := func(call string) bool { return !slices.Contains(makingCalls, call) }
	switch {
	case w.Nth < 0:
		return fmt.Errorf("nth: want no negative number, have %d", w.Nth)
	case !w.Forever:
		return nil
	case w.Pod == "" || w.Class != FaultErrorBefore || w.Nth != 0:
		return fmt.Errorf("forever: want a pod, the class %s and no nth", FaultErrorBefore)
	case len(w.Calls) == 0 || slices.ContainsFunc(w.Calls, isOther):
		return fmt.Errorf("forever: want calls of %v, have %v", makingCalls, w.Calls)
	}
	return nil
}

// IsForever reports whether a pod of the plan can never be made, by the name of its entry.
func (s *Spec) IsForever(entry string) bool {
	return slices.ContainsFunc(s.Happenings, func(h Happening) bool {
		return h.Fault != nil && h.Fault.Forever && h.Fault.Pod == entry
	})
}

func validateClass(class FaultClass, calls []string) error {
	if !slices.Contains(faultClasses, class) {
		return fmt.Errorf("class: want one of %v, have %q", faultClasses, class)
	}
	for i, call := range calls {
		if !slices.Contains(faultableCalls, call) {
			return fmt.Errorf("calls[%d]: no call is named %q, there are %s", i, call,
				strings.Join(faultableCalls, ", "))
		}
	}
	return nil
}

func validatePath(class FaultClass, p string) error {
	isExport := strings.HasPrefix(p, NFSServer+":/")
	if (class == FaultPathHangs) != (path.IsAbs(p) || isExport) {
		return fmt.Errorf("path: want an absolute one, or an export of %s, for %s and none for others, "+
			"have %q", NFSServer, FaultPathHangs, p)
	}
	return nil
}
