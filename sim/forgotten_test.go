package sim_test

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/core"
	"seedlet.dev/core/timer"
	"seedlet.dev/sim"
	"seedlet.dev/world"
)

// Whatever makes an effect possible has its component planned: if all components of an agent whose
// plans are done were planned once more, none would have an effect. A few look at the machine
// again when their time has come, however early they could. SEEDLET_FORGOTTEN_SEEDS is for more
// seeds, and for more frequent looks.
func TestNothingIsForgotten(t *testing.T) {
	seeds, every := uint64(1), uint64(250)
	if n, err := strconv.ParseUint(os.Getenv("SEEDLET_FORGOTTEN_SEEDS"), 10, 64); err == nil {
		seeds, every = n, 61
	}
	for _, s := range loadAll(t) {
		t.Run(s.Metadata.Name, func(t *testing.T) {
			t.Parallel()
			looks := 0
			for seed := uint64(1); seed <= seeds; seed++ {
				found := map[string]bool{}
				run(t, generate(t, s, seed), sim.Options{Watch: func(step sim.Step) {
					wake := step.Agent.NextWake()
					hasMore := !wake.IsZero() && !wake.After(step.Event.Time) // to plan, in the next step
					if step.Number%every != 0 || hasMore {
						return
					}
					looks++
					for _, what := range forgotten(t, step.Agent, step.Event.Time) {
						if !found[what] {
							found[what] = true
							t.Errorf("seed %d, after event %d: nothing has planned %s", seed, step.Number, what)
						}
					}
				}})
			}
			if looks == 0 {
				t.Error("the agent was never looked at")
			}
		})
	}
}

// agentState is what a test reads of a snapshot.
type agentState struct {
	HasAPIServer bool
	Timers       map[string]time.Time
	Pods         map[string]struct{ Namespace, Name string }
	CSI          struct{ Volumes, Drivers map[string]json.RawMessage }
	APIPodUIDs   map[string]string // by full name
	Images       struct{ Images map[string]json.RawMessage }
	Objects      struct{ Watches map[string]json.RawMessage }
	Node         struct{ Hosts, Resolv struct{ Path string } }
	Ops          struct {
		Records map[world.OpID]struct{ Owner timer.Key }
	}
}

// components returns the keys of the components that an agent has.
func (s *agentState) components() []string {
	keys := strings.Fields("begun/ manifests/ manifests/http pleg/ events/ runtime/ runtime/podCIDR " +
		"shutdown/ imagegc/ containergc/ eviction/ pullrecord/ qos/ housekeeping/ device-mounts/ " +
		"device-mounts/blocks logs/links logs/rotation machine/ oom/ plugins/ csisearch/ " +
		"allocation/allocated_pods_state allocation/actuated_pods_state resize/ admission/ setaside/")
	keys = append(keys, "hostfile/"+s.Node.Hosts.Path, "hostfile/"+s.Node.Resolv.Path)
	if s.HasAPIServer {
		keys = append(keys, "node/", "certificates/", "lease/", "csinode/", "apipods/")
	}
	keys = append(keys, withPrefix("csi/", s.CSI.Volumes)...)
	keys = append(keys, withPrefix("csidriver/", s.CSI.Drivers)...)
	keys = append(keys, withPrefix("image/", s.Images.Images)...)
	keys = append(keys, withPrefix("object/", s.Objects.Watches)...)
	keys = append(keys, withPrefix("mirror/", s.APIPodUIDs)...)
	for uid, p := range s.Pods { //ordered: the agent orders what is due at one time
		keys = append(keys, "pod/"+uid, "status/"+uid, "volumestats/"+uid,
			"mirror/"+p.Namespace+"/"+p.Name)
	}
	return keys
}

func withPrefix[V any](prefix string, names map[string]V) (keys []string) {
	for name := range names { //ordered: the agent orders what is due at one time
		keys = append(keys, prefix+name)
	}
	return keys
}

// forgotten returns the effects of a copy of an agent, once all its components are planned.
func forgotten(t *testing.T, agent *core.Agent, now time.Time) (found []string) {
	var all map[string]json.RawMessage
	var state agentState
	readSnapshot(t, agent, &all)
	readSnapshot(t, agent, &state)
	due := state.Timers
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
			owner := after.Ops.Records[e.Op].Owner
			if _, isLog := e.Body.(*world.Log); !isLog && !looksAgain[owner.Component] &&
				!state.waitsForTier(e.Body) {
				found = append(found, fmt.Sprintf("%s of %s", world.BodyName(e.Body), owner))
			}
		}
		if wake := planned.NextWake(); wake.IsZero() || wake.After(now) {
			return found
		}
	}
	t.Fatal("the plans have no end")
	return nil
}

// looksAgain has the components that look at the machine when their time has come, also if they
// could since something else has changed.
var looksAgain = map[string]bool{"imagegc": true, "eviction": true, "volumestats": true}

// waitsForTier reports whether an effect is one for which pods wait while the cgroups above theirs
// are set. Since another pod has gone, they may no longer have to wait; they are planned after it.
func (s *agentState) waitsForTier(effect any) bool {
	switch effect.(type) {
	case *world.SetCgroup, *runtimeapi.UpdatePodSandboxResourcesRequest:
	default:
		return false
	}
	for _, r := range s.Ops.Records { //ordered: any
		if r.Owner.Component == "qos" {
			return true
		}
	}
	return false
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
