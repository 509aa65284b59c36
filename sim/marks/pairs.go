package marks

import (
	"slices"
	"strings"

	"seedlet.dev/sim/plan"
	"seedlet.dev/sim/wire"
	"seedlet.dev/world"
)

// trouble is what a call can meet. Each trouble makes a pair with each of its calls.
type trouble struct {
	name  string // as in "agent-killed during"
	calls []string
	// expected are the calls of the pairs that are not rare, separated by spaces.
	expected string
}

func (t trouble) isExpected(call string) bool {
	return slices.Contains(strings.Fields(t.expected), call)
}

// The indexes of troubles that strike, and of the calls whose effects are not reported. Those of
// errors follow, in the order of errorKinds.
const (
	agentKilled = iota
	machineRebooted
	runtimeRestarted
	containerKilled
	sandboxKilled
	apiUnreachable
	watchesBroken
	effectFailed
	effectLost
	effectLate
	firstError
)

// errorKinds are the kinds of errors, in the order of their troubles.
var errorKinds = []world.ErrorKind{
	world.KindNotFound, world.KindExists, world.KindConflict, world.KindThrottled, world.KindInvalid,
	world.KindRefused, world.KindExhausted, world.KindCanceled, world.KindUnavailable,
	world.KindTimeout, world.KindInternal,
}

// expectedErrors are the calls whose errors of a kind are not rare, as trouble.expected.
var expectedErrors = map[world.ErrorKind]string{
	world.KindNotFound: "GetObject UpdateObject PatchObject DeleteObject ReadFiles ReadTail " +
		"StatPath ListDir ReadLinks",
	world.KindConflict:  "PatchObject",
	world.KindThrottled: "UpdateObject PatchObject",
	world.KindExhausted: "ExecSync ListContainers ListPodSandbox Status UpdateObject WriteFile",
	world.KindUnavailable: "ExecSync ImageStatus ListContainers ListPodSandbox StartContainer " +
		"Status StopContainer GetObject UpdateObject PatchObject WriteFile " +
		"FetchManifest ReadMachine",
	world.KindTimeout: "CreateContainer ExecSync ListContainers ListPodSandbox StartContainer " +
		"StopContainer GetObject UpdateObject PatchObject HTTPGet",
	world.KindInternal: "ExecSync ListContainers ListImages ListPodSandbox PullImage " +
		"StartContainer Status StopContainer GetObject UpdateObject PatchObject " +
		"ListDir ReadMachine",
}

// troubles are all troubles, by their indexes.
var troubles = func() []trouble {
	all := plan.Calls()
	changes, runtime, api := chosen(all, plan.ChangesSomething),
		chosen(all, func(call string) bool {
			return slices.Contains(world.BodyNames(), call+"Request")
		}),
		chosen(all, plan.IsAPICall)
	list := []trouble{
		agentKilled: {"agent-killed during", all,
			"CreateContainer ExecSync ListContainers ListPodSandbox " +
				"PodSandboxStatus PullImage RemoveImage RunPodSandbox RuntimeConfig StartContainer " +
				"Status StopContainer Version PatchObject ReadFiles ListDir ReadLinks " +
				"MakeDir WriteFile SetCgroup ListCgroups"},
		machineRebooted:  {"reboot during", all, ""},
		runtimeRestarted: {"runtime-restart during", runtime, "ExecSync"},
		containerKilled:  {"container-killed during", changes, ""},
		sandboxKilled:    {"sandbox-killed during", changes, ""},
		apiUnreachable:   {"api-unreachable during", api, "PatchObject"},
		watchesBroken:    {"watches-broken during", api, ""},
		effectFailed: {"error after the effect of", changes,
			"CreateContainer ExecSync StartContainer StopContainer UpdateObject " +
				"PatchObject"},
		effectLost: {"answer lost after the effect of", changes,
			"CreateContainer ExecSync PatchObject"},
		effectLate: {"given up before the effect of", changes,
			"CreateContainer RunPodSandbox StopContainer PatchObject"},
	}
	files := chosen(all, func(call string) bool {
		return plan.ChangesSomething(call) && !slices.Contains(runtime, call) &&
			!slices.Contains(api, call)
	})
	byKind := map[world.ErrorKind][]string{ // those that a call of a kind can have; absent: all
		world.KindExists:   {"CreateContainer", "RunPodSandbox", "CreateObject"},
		world.KindConflict: api, world.KindThrottled: api, world.KindInvalid: api,
		world.KindRefused: api, world.KindCanceled: files,
	}
	for _, kind := range errorKinds {
		calls, some := byKind[kind]
		if !some {
			calls = all
		}
		list = append(list, trouble{"error " + string(kind) + " of", calls, expectedErrors[kind]})
	}
	return list
}()

func chosen(calls []string, is func(string) bool) []string {
	return slices.DeleteFunc(slices.Clone(calls), func(call string) bool { return !is(call) })
}

// pair is a trouble and the call that it meets.
type pair struct {
	trouble int
	call    string
}

// pairIDs are the IDs of all pairs.
var pairIDs = func() map[pair]ID {
	ids := map[pair]ID{}
	for i := range troubles {
		for _, call := range troubles[i].calls {
			ids[pair{i, call}] = ID(len(places) + len(ids))
		}
	}
	return ids
}()

// reachPair records that a call meets a trouble. A call that makes no pair with it is ignored.
func (w *Watcher) reachPair(trouble int, call string) {
	if id, known := pairIDs[pair{trouble, call}]; known {
		w.reached.Add(id)
	}
}

// reachInFlight records that a trouble meets the calls in flight: of one pod, or of any.
func (w *Watcher) reachInFlight(trouble int, uid string) {
	for _, port := range w.ports {
		for _, call := range port.InFlight() {
			if call.Name != "" && (uid == "" || call.Effect.Pod == uid) {
				w.reachPair(trouble, call.Name)
			}
		}
	}
}

// ObserveEffect implements wire.EffectObserver.
func (w *Watcher) ObserveEffect(call string, how wire.Unreported) {
	switch how {
	case wire.EffectFailed:
		w.reachPair(effectFailed, call)
	case wire.EffectLost:
		w.reachPair(effectLost, call)
	case wire.EffectLate:
		w.reachPair(effectLate, call)
	}
}

// Completed observes a completion that the agent receives.
func (w *Watcher) Completed(ev *world.Event) {
	if ev.Err != nil {
		w.reachPair(firstError+slices.Index(errorKinds, ev.Err.Kind), ev.Err.Op)
	}
}
