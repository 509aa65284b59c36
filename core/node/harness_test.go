package node

import (
	"encoding/json"
	"strconv"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/core/config"
	"seedlet.dev/core/op"
	"seedlet.dev/core/runtime"
	"seedlet.dev/world"
)

var t0 = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

var (
	runtimeReady   = runtime.Condition{Type: runtimeapi.RuntimeReady, Status: true}
	runtimeUnready = runtime.Condition{Type: runtimeapi.RuntimeReady, Reason: "R", Message: "M"}
	networkReady   = runtime.Condition{Type: runtimeapi.NetworkReady, Status: true}
)

// harness is a Node and an API server.
type harness struct {
	t       *testing.T
	node    *Node
	env     *Env
	table   op.Table
	now     time.Time
	wake    time.Time
	issued  []world.Effect // not completed yet
	stored  *v1.Node
	version int
	created int
	events  []string // reasons of the recorded Events
}

func defaultConfig(
	change func(*kubeletconfig.KubeletConfiguration),
) *kubeletconfig.KubeletConfiguration {
	c := &kubeletconfig.KubeletConfiguration{}
	if change != nil {
		change(c)
	}
	config.SetDefaults(c)
	return c
}

// newHarness returns a node whose runtime is ready. Its images are not listed: TestImages does
// that.
func newHarness(t *testing.T, change func(*kubeletconfig.KubeletConfiguration),
	o Options) *harness {
	o.Version = "v1.36.3"
	r := &harness{t: t, now: t0,
		node: &Node{Settings: SettingsFromConfig(defaultConfig(change), "n1", o)},
		env: &Env{
			Boot: &world.Boot{Seed: 7, BootID: "b", CPUs: 4, MemoryBytes: 16 << 30,
				Addresses: []string{"192.0.2.1", "2001:db8::1"},
				Machine: world.Machine{MachineID: "m", OperatingSystem: "linux",
					Architecture: "amd64", RootDirBytes: 100 << 30}},
			Booted: t0, Relisted: true, Effects: &op.Effects{},
			Runtime: &runtime.Runtime{Name: "containerd", Version: "v2.1.0", AsOf: t0, ReadyAt: t0,
				Conditions: []runtime.Condition{runtimeReady, networkReady}},
		}}
	r.node.Images.NextAt = t0.Add(1000 * time.Hour)
	return r
}

// restartAgent starts another incarnation of the agent.
func (r *harness) restartAgent() {
	r.table, r.issued = op.Table{}, nil
	r.node = &Node{Settings: r.node.Settings, Images: Images{NextAt: r.node.Images.NextAt}}
	r.env.Booted = r.now
}

// plan plans the node after a while; the runtime was ready until then.
func (r *harness) plan(after time.Duration) []string {
	r.now = r.now.Add(after)
	if !r.env.Runtime.ReadyAt.IsZero() {
		r.env.Runtime.ReadyAt = r.now
	}
	r.env.Effects.Reset(&r.table, r.now)
	r.wake = r.node.Plan(r.env)
	r.collectEvents()
	var calls []string
	for _, eff := range r.env.Effects.List() {
		if eff.Op != 0 {
			r.issued = append(r.issued, eff)
			calls = append(calls, world.CallName(eff.Body)+r.table.Records[eff.Op].Subject)
		}
	}
	return calls
}

// complete completes the oldest issued operation, with an error or by executing it.
func (r *harness) complete(err *world.Error) {
	eff := r.issued[0]
	r.issued = r.issued[1:]
	record, ok := r.table.Complete(eff.Op)
	if !ok {
		r.t.Fatal("no operation was issued")
	}
	ev := world.Event{Time: r.now, Err: err}
	if err == nil {
		ev.Body, ev.Err = r.serve(eff.Body)
	}
	r.env.Effects.Reset(&r.table, r.now)
	r.node.HandleCompletion(eff.Op, record, ev, r.env.Boot, r.env.Effects)
	r.collectEvents()
}

func (r *harness) collectEvents() {
	for _, eff := range r.env.Effects.List() {
		if e, is := eff.Body.(*world.RecordEvent); is {
			r.events = append(r.events, e.Reason)
		}
	}
}

// planUntilIdle plans and completes until nothing more is issued, and returns the calls.
func (r *harness) planUntilIdle(after time.Duration) []string {
	r.t.Helper()
	calls := []string{}
	for {
		issued := r.plan(after)
		if len(issued) == 0 {
			return calls
		}
		calls, after = append(calls, issued...), 0
		for range issued {
			r.complete(nil)
		}
		if len(calls) > 20 {
			r.t.Fatalf("still not idle after %v", calls)
		}
	}
}

// serve executes a request as an API server does.
func (r *harness) serve(body any) (any, *world.Error) {
	if m, is := body.(*world.CreateObject); is {
		if r.stored != nil {
			return nil, world.Errorf(world.KindExists, "", "the node exists")
		}
		r.created++
		node := m.Object.Node.DeepCopy()
		node.UID = types.UID("uid-" + strconv.Itoa(r.created))
		return r.write(node), nil
	}
	if r.stored == nil {
		return nil, world.Errorf(world.KindNotFound, "", "no node")
	}
	m, is := body.(*world.PatchObject)
	if !is {
		return &world.ObjectRead{Object: world.Object{Node: r.stored}}, nil
	}
	before, err := json.Marshal(r.stored)
	if err != nil {
		r.t.Fatal(err)
	}
	data, err := strategicpatch.StrategicMergePatch(before, m.Patch, v1.Node{})
	if err != nil {
		r.t.Fatalf("%s: %v", m.Patch, err)
	}
	var node v1.Node
	if err := json.Unmarshal(data, &node); err != nil {
		r.t.Fatal(err)
	}
	switch {
	case node.UID != r.stored.UID, node.ResourceVersion != r.stored.ResourceVersion:
		return nil, world.Errorf(world.KindConflict, "", "another object")
	case m.Status:
		node.Spec = r.stored.Spec
	default:
		node.Status = r.stored.Status
	}
	return r.write(&node), nil
}

// write stores an object as it is after JSON.
func (r *harness) write(node *v1.Node) any {
	r.version++
	node.ResourceVersion = strconv.Itoa(r.version)
	data, err := json.Marshal(node)
	if err != nil {
		r.t.Fatal(err)
	}
	r.stored = &v1.Node{}
	if err := json.Unmarshal(data, r.stored); err != nil {
		r.t.Fatal(err)
	}
	return &world.ObjectRead{Object: world.Object{Node: r.stored}}
}

// observe has the watch report an object.
func (r *harness) observe(node *v1.Node) {
	r.node.Observe(node, r.table.LastID+1, r.now)
}

// change changes the object as another client does.
func (r *harness) change(change func(*v1.Node)) *v1.Node {
	node := r.stored.DeepCopy()
	change(node)
	r.write(node)
	return r.stored
}

func (r *harness) condition(t v1.NodeConditionType) v1.NodeCondition {
	for _, c := range r.stored.Status.Conditions {
		if c.Type == t {
			return c
		}
	}
	return v1.NodeCondition{}
}
