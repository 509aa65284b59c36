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

// rig is a node and an API server that has its object, or not.
type rig struct {
	t       *testing.T
	node    *Node
	env     *Env
	table   op.Table
	now     time.Time
	wake    time.Time
	asked   []world.Effect // what is not answered yet
	there   *v1.Node
	version int
	made    int
	told    []string // the events
}

func defaults(
	change func(*kubeletconfig.KubeletConfiguration),
) *kubeletconfig.KubeletConfiguration {
	c := &kubeletconfig.KubeletConfiguration{}
	if change != nil {
		change(c)
	}
	config.SetDefaults(c)
	return c
}

// newRig is a node whose runtime is ready. The images are not listed: of them is another test.
func newRig(t *testing.T, change func(*kubeletconfig.KubeletConfiguration), o Options) *rig {
	o.Version = "v1.36.3"
	r := &rig{t: t, now: t0, node: &Node{Settings: SettingsOf(defaults(change), "n1", o)},
		env: &Env{
			Boot: &world.Boot{Seed: 7, BootID: "b", CPUs: 4, MemoryBytes: 16 << 30,
				Addresses: []string{"192.0.2.1", "2001:db8::1"},
				Machine: world.Machine{MachineID: "m", OperatingSystem: "linux",
					Architecture: "amd64", RootDirBytes: 100 << 30}},
			Booted: t0, Listed: true, Out: &op.Out{},
			Runtime: &runtime.Runtime{Name: "containerd", Version: "v2.1.0", AsOf: t0, ReadyAt: t0,
				Conditions: []runtime.Condition{runtimeReady, networkReady}},
		}}
	r.node.Images.NextAt = t0.Add(1000 * time.Hour)
	return r
}

// restart is a new life of the agent.
func (r *rig) restart() {
	r.table, r.asked = op.Table{}, nil
	r.node = &Node{Settings: r.node.Settings, Images: Images{NextAt: r.node.Images.NextAt}}
	r.env.Booted = r.now
}

// plan plans the node after a while, in which the runtime said that it is well.
func (r *rig) plan(after time.Duration) []string {
	r.now = r.now.Add(after)
	if !r.env.Runtime.ReadyAt.IsZero() {
		r.env.Runtime.ReadyAt = r.now
	}
	r.env.Out.Begin(&r.table, r.now)
	r.wake = r.node.Plan(r.env)
	var calls []string
	for _, eff := range r.env.Out.Take() {
		if eff.Op != 0 {
			r.asked = append(r.asked, eff)
			calls = append(calls, world.Call(eff.Body)+r.table.Records[eff.Op].Subject)
		}
	}
	return calls
}

// answer answers what was asked first, with an error or by doing it.
func (r *rig) answer(err *world.Error) {
	eff := r.asked[0]
	r.asked = r.asked[1:]
	record, ok := r.table.Settle(eff.Op)
	if !ok {
		r.t.Fatal("asked for nothing")
	}
	ev := world.Event{Time: r.now, Err: err}
	if err == nil {
		ev.Body, ev.Err = r.serve(eff.Body)
	}
	r.env.Out.Begin(&r.table, r.now)
	r.node.Answered(eff.Op, record, ev, r.env.Boot, r.env.Out)
	for _, eff := range r.env.Out.Take() {
		if e, is := eff.Body.(*world.RecordEvent); is {
			r.told = append(r.told, e.Reason)
		}
	}
}

// settle plans and serves until nothing more is asked, and says what was.
func (r *rig) settle(after time.Duration) []string {
	r.t.Helper()
	calls := []string{}
	for {
		asked := r.plan(after)
		if len(asked) == 0 {
			return calls
		}
		calls, after = append(calls, asked...), 0
		for range asked {
			r.answer(nil)
		}
		if len(calls) > 20 {
			r.t.Fatalf("it never rests: %v", calls)
		}
	}
}

// serve does what was asked, as an API server does.
func (r *rig) serve(body any) (any, *world.Error) {
	if m, is := body.(*world.CreateObject); is {
		if r.there != nil {
			return nil, world.Errorf(world.KindExists, "", "there is one")
		}
		r.made++
		node := m.Object.Node.DeepCopy()
		node.UID = types.UID("uid-" + strconv.Itoa(r.made))
		return r.store(node), nil
	}
	if r.there == nil {
		return nil, world.Errorf(world.KindNotFound, "", "no node")
	}
	m, is := body.(*world.PatchObject)
	if !is {
		return &world.ObjectRead{Object: world.Object{Node: r.there}}, nil
	}
	was, err := json.Marshal(r.there)
	if err != nil {
		r.t.Fatal(err)
	}
	data, err := strategicpatch.StrategicMergePatch(was, m.Patch, v1.Node{})
	if err != nil {
		r.t.Fatalf("%s: %v", m.Patch, err)
	}
	var node v1.Node
	if err := json.Unmarshal(data, &node); err != nil {
		r.t.Fatal(err)
	}
	switch {
	case node.UID != r.there.UID:
		return nil, world.Errorf(world.KindConflict, "", "another one")
	case m.Status:
		node.Spec = r.there.Spec
	default:
		node.Status = r.there.Status
	}
	return r.store(&node), nil
}

// store keeps an object in the form that it has after JSON.
func (r *rig) store(node *v1.Node) any {
	r.version++
	node.ResourceVersion = strconv.Itoa(r.version)
	data, err := json.Marshal(node)
	if err != nil {
		r.t.Fatal(err)
	}
	r.there = &v1.Node{}
	if err := json.Unmarshal(data, r.there); err != nil {
		r.t.Fatal(err)
	}
	return &world.ObjectRead{Object: world.Object{Node: r.there}}
}

// alter changes the object as somebody else does.
func (r *rig) alter(change func(*v1.Node)) *v1.Node {
	node := r.there.DeepCopy()
	change(node)
	r.store(node)
	return r.there
}

func (r *rig) condition(t v1.NodeConditionType) v1.NodeCondition {
	for _, c := range r.there.Status.Conditions {
		if c.Type == t {
			return c
		}
	}
	return v1.NodeCondition{}
}
