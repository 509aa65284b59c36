package sim_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"seedlet.dev/core"
	"seedlet.dev/core/timer"
	"seedlet.dev/sim"
	"seedlet.dev/world"
)

// Whatever makes an operation possible has its component planned, or has set its timer: if all
// components of an agent that has nothing to do were planned, none without a timer would issue
// anything. SEEDLET_FORGOTTEN_SEEDS is for more seeds, and for more frequent looks.
func TestNothingIsForgotten(t *testing.T) {
	seeds, every := uint64(1), uint64(250)
	if n, err := strconv.ParseUint(os.Getenv("SEEDLET_FORGOTTEN_SEEDS"), 10, 64); err == nil {
		seeds, every = n, 61
	}
	for _, s := range loadAll(t) {
		t.Run(s.Metadata.Name, func(t *testing.T) {
			t.Parallel()
			for seed := uint64(1); seed <= seeds; seed++ {
				found := map[string]bool{}
				run(t, generate(t, s, seed), sim.Options{Watch: func(step sim.Step) {
					if step.Number%every != 0 {
						return
					}
					for _, what := range forgotten(t, step.Agent, step.Event.Time) {
						if !found[what] {
							found[what] = true
							t.Errorf("seed %d, after event %d: nothing has %s planned", seed, step.Number, what)
						}
					}
				}})
			}
		})
	}
}

// agentState is what a test reads of a snapshot.
type agentState struct {
	HasAPIServer bool
	Timers       map[string]time.Time
	Pods         map[string]json.RawMessage
	CSI          struct{ Volumes, Drivers map[string]json.RawMessage }
	Ops          struct {
		Records map[world.OpID]struct{ Owner timer.Key }
	}
}

// isBusy reports whether an agent is about to plan something, at once or after an operation that is
// in flight. Operations that observe are in flight at any time.
func (s *agentState) isBusy(now time.Time) bool {
	for _, at := range s.Timers {
		if !at.After(now) {
			return true
		}
	}
	observing := strings.Fields("pleg events runtime object lease node machine imagegc eviction " +
		"volumestats logs manifests hostfile shutdown")
	for _, r := range s.Ops.Records {
		if !slices.Contains(observing, r.Owner.Component) {
			return true
		}
	}
	return false
}

// components returns the keys of the components that an agent has.
func (s *agentState) components() []string {
	keys := strings.Fields("begun/ manifests/ manifests/http pleg/ events/ runtime/ runtime/podCIDR " +
		"shutdown/ imagegc/ containergc/ eviction/ pullrecord/ qos/ housekeeping/ device-mounts/ " +
		"device-mounts/blocks logs/links logs/rotation machine/ oom/ plugins/ csisearch/")
	if s.HasAPIServer {
		keys = append(keys, "node/", "certificates/", "lease/", "csinode/")
	}
	add := func(prefix string, of map[string]json.RawMessage) {
		for name := range of { //ordered: the agent orders what is due at one time
			keys = append(keys, prefix+name)
		}
	}
	for _, prefix := range []string{"pod/", "status/", "volumestats/"} {
		add(prefix, s.Pods)
	}
	add("csi/", s.CSI.Volumes)
	add("csidriver/", s.CSI.Drivers)
	return keys
}

// forgotten returns which operations a copy of an agent issues once all its components are planned,
// of those without a timer. An agent that is busy has forgotten nothing yet.
func forgotten(t *testing.T, agent *core.Agent, now time.Time) (found []string) {
	var all map[string]json.RawMessage
	var state agentState
	readSnapshot(t, agent, &all)
	readSnapshot(t, agent, &state)
	if state.isBusy(now) {
		return nil
	}
	due := maps.Clone(state.Timers)
	for _, key := range state.components() {
		due[key] = now
	}
	timers, err := json.Marshal(due)
	if err != nil {
		t.Fatal(err)
	}
	all["timers"] = timers
	data, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	planned, err := core.Restore(data)
	if err != nil {
		t.Fatal(err)
	}
	for range 100 { // steps, each of which plans a bounded number of components
		effects := slices.Clone(planned.Step(world.Event{Time: now}))
		var after agentState
		readSnapshot(t, planned, &after)
		for _, e := range effects {
			owner := after.Ops.Records[e.Op].Owner.String()
			if _, hasTimer := state.Timers[owner]; e.Op != 0 && !hasTimer {
				found = append(found, fmt.Sprintf("%s of %s", world.CallName(e.Body), owner))
			}
		}
		if wake := planned.NextWake(); wake.IsZero() || wake.After(now) {
			return found
		}
	}
	t.Fatal("the plans have no end")
	return nil
}

func readSnapshot(t *testing.T, agent *core.Agent, into any) {
	data, err := agent.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, into); err != nil {
		t.Fatal(err)
	}
}
