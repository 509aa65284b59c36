package pod

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/core/image"
	"seedlet.dev/core/op"
	"seedlet.dev/core/timer"
	"seedlet.dev/world"
)

// rig plans one pod by hand: what it asks for is answered by the test, or not at all.
type rig struct {
	t     *testing.T
	pod   *Pod
	env   *Env
	table op.Table
	now   time.Time
	wake  time.Time
	asked []world.Effect // what is not answered yet
	told  []*world.RecordEvent
}

func newRig(t *testing.T, p *Pod) *rig {
	r := &rig{t: t, pod: p, now: t0, env: &Env{
		Node: &Node{PodsDir: "/pods", LogsDir: "/logs", RuntimeTimeout: 2 * time.Minute,
			BackoffMax: 5 * time.Minute, IPs: []string{"192.0.2.1"}},
		Out: &op.Out{}, Images: &image.Store{Images: map[string]*image.Image{
			"i": {Name: "i", Ref: "i", ID: "sha", UserOf: "sha", PulledAt: t0.Add(time.Hour),
				CheckedAt: t0.Add(time.Hour)}}},
		Touch: func(timer.Key) {},
	}}
	return r
}

// at plans the pod a while after t0.
func (r *rig) at(after time.Duration) *rig {
	r.now = t0.Add(after)
	r.env.Out.Begin(&r.table, r.now)
	r.wake = r.pod.Plan(r.env)
	r.take()
	return r
}

func (r *rig) take() {
	for _, eff := range r.env.Out.Take() {
		if eff.Op != 0 {
			r.asked = append(r.asked, eff)
		}
		if e, is := eff.Body.(*world.RecordEvent); is {
			r.told = append(r.told, e)
		}
	}
}

// calls is what is asked and not answered or forgotten.
func (r *rig) calls() []string {
	var calls []string
	for _, eff := range r.asked {
		if _, open := r.table.Records[eff.Op]; open {
			calls = append(calls, world.Call(eff.Body))
		}
	}
	return calls
}

// find is the newest open question of a kind; nil if there is none.
func (r *rig) find(call string) *world.Effect {
	for i := len(r.asked) - 1; i >= 0; i-- {
		_, open := r.table.Records[r.asked[i].Op]
		if open && world.Call(r.asked[i].Body) == call {
			return &r.asked[i]
		}
	}
	return nil
}

// want fails unless a question of a kind is open.
func (r *rig) want(call string) *world.Effect {
	r.t.Helper()
	eff := r.find(call)
	if eff == nil {
		r.t.Fatalf("at %v: %s is not asked, open are %v", r.now.Sub(t0), call, r.calls())
	}
	return eff
}

func (r *rig) none(call string) {
	r.t.Helper()
	if r.find(call) != nil {
		r.t.Fatalf("at %v: %s is asked", r.now.Sub(t0), call)
	}
}

// answer answers the newest question of a kind, and plans.
func (r *rig) answer(call string, body any, err *world.Error) *rig {
	r.t.Helper()
	eff := r.want(call)
	record, _ := r.table.Settle(eff.Op)
	r.env.Out.Begin(&r.table, r.now)
	r.pod.Answered(eff.Op, record, world.Event{Time: r.now, Op: eff.Op, Body: body, Err: err},
		r.env)
	r.take()
	return r.at(r.now.Sub(t0))
}

func (r *rig) exec(code int32) *rig {
	r.t.Helper()
	return r.answer("ExecSync", &runtimeapi.ExecSyncResponse{ExitCode: code}, nil)
}

func exec(command string) v1.ProbeHandler {
	return v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{command}}}
}

func execHook(command string) *v1.LifecycleHandler {
	return &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{command}}}
}

// running is a pod of one container that runs since t0, changed before it is made.
func running(change func(*v1.Container)) *Pod {
	s := spec(v1.RestartPolicyAlways, "", "web")
	change(&s.Spec.Containers[0])
	c := run("web", 0, Running)
	c.Hash, c.Ran = hashOf(&s.Spec.Containers[0]), t0
	c.Grace = graceDefault
	if l := s.Spec.Containers[0].Lifecycle; l != nil {
		c.PreStop = l.PreStop
	}
	return facts(s, c)
}

func status(p *Pod) v1.ContainerStatus {
	return p.API(&Node{}, "containerd").Status.ContainerStatuses[0]
}
