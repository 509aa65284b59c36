package pod

import (
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/core/criconfig"
	"seedlet.dev/core/image"
	"seedlet.dev/core/op"
	"seedlet.dev/core/timer"
	"seedlet.dev/world"
)

// Podstatus holds the functions of package podstatus, which imports this one; podstatus_test.go
// sets them. Each call checks their types, because podstatus has another type Pod if it is compiled
// without these tests.
var Podstatus struct{ Update, ServedPod any }

// updateStatus updates the pod's status, as the agent does after every plan.
func updateStatus(p *Pod, now time.Time) {
	Podstatus.Update.(func(*Pod, time.Time))(p, now)
}

// servedPod returns the pod as the API serves it.
func servedPod(p *Pod, node *Node, runtimeName string) *v1.Pod {
	return Podstatus.ServedPod.(func(*Pod, *Node, string) *v1.Pod)(p, node, runtimeName)
}

// harness plans one pod. The test completes the operations that the pod issues, or leaves them in
// flight.
type harness struct {
	t      *testing.T
	pod    *Pod
	env    *Env
	table  op.Table
	now    time.Time
	wake   time.Time
	issued []world.Effect
	events []*world.RecordEvent
}

func newHarness(t *testing.T, p *Pod) *harness {
	r := &harness{t: t, pod: p, now: t0, env: &Env{
		Node: &Node{Node: criconfig.Node{PodsDir: "/pods", LogsDir: "/logs",
			IPs: []string{"192.0.2.1"}}, RuntimeTimeout: 2 * time.Minute,
			BackoffMax: 5 * time.Minute},
		Effects:     &op.Effects{},
		AreIDsKnown: func(string) bool { return true },
		Enqueue:     func(timer.Key) {}, ObjectOwner: func(string) string { return "" },
	}}
	r.putImage()
	return r
}

// putImage makes the image "i" present, also for another run after the one that has released it.
func (r *harness) putImage() {
	r.env.Images = &image.Store{Images: map[string]*image.Image{
		"i": {Name: "i", Ref: "i", ID: "sha", InspectedID: "sha", PulledAt: t0.Add(time.Hour),
			CheckedAt: t0.Add(time.Hour)}}}
}

// planAt plans the pod at a time after t0.
func (r *harness) planAt(after time.Duration) *harness {
	r.now = t0.Add(after)
	r.env.Effects.Reset(&r.table, r.now)
	r.wake = r.pod.Plan(r.env)
	updateStatus(r.pod, r.now)
	r.collect()
	return r
}

func (r *harness) collect() {
	for _, eff := range r.env.Effects.List() {
		if eff.Op != 0 {
			r.issued = append(r.issued, eff)
		}
		if e, ok := eff.Body.(*world.RecordEvent); ok {
			r.events = append(r.events, e)
		}
	}
}

// openCalls returns the calls of the operations in flight.
func (r *harness) openCalls() []string {
	var calls []string
	for _, eff := range r.issued {
		if _, open := r.table.Records[eff.Op]; open {
			calls = append(calls, world.CallName(eff.Body))
		}
	}
	return calls
}

// findCall returns the newest operation in flight of a call; nil if none exists.
func (r *harness) findCall(call string) *world.Effect {
	for i := len(r.issued) - 1; i >= 0; i-- {
		_, open := r.table.Records[r.issued[i].Op]
		if open && world.CallName(r.issued[i].Body) == call {
			return &r.issued[i]
		}
	}
	return nil
}

// expectCall fails unless an operation of a call is in flight.
func (r *harness) expectCall(call string) *world.Effect {
	r.t.Helper()
	eff := r.findCall(call)
	if eff == nil {
		r.t.Fatalf("at %v: %s is not in flight, but %v", r.now.Sub(t0), call, r.openCalls())
	}
	return eff
}

func (r *harness) expectNoCall(call string) {
	r.t.Helper()
	if r.findCall(call) != nil {
		r.t.Fatalf("at %v: %s is in flight", r.now.Sub(t0), call)
	}
}

// complete completes the newest operation of a call, and plans.
func (r *harness) complete(call string, body any, err *world.Error) *harness {
	r.t.Helper()
	eff := r.expectCall(call)
	record, _ := r.table.Complete(eff.Op)
	r.env.Effects.Reset(&r.table, r.now)
	r.pod.HandleCompletion(eff.Op, record, world.Event{Time: r.now, Op: eff.Op, Body: body, Err: err},
		r.env)
	r.collect()
	return r.planAt(r.now.Sub(t0))
}

// completeWrites completes the writes of the pod's record.
func (r *harness) completeWrites() *harness {
	for r.findCall("WriteFile") != nil {
		r.complete("WriteFile", &world.Done{}, nil)
	}
	return r
}

func (r *harness) completeExec(code int32) *harness {
	r.t.Helper()
	return r.complete("ExecSync", &runtimeapi.ExecSyncResponse{ExitCode: code}, nil)
}

func execProbe(command string) v1.ProbeHandler {
	return v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{command}}}
}

func execHook(command string) *v1.LifecycleHandler {
	return &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{command}}}
}

// runningPod returns a pod with one container, changed by the function, that runs since t0.
func runningPod(change func(*v1.Container)) *Pod {
	s := spec(v1.RestartPolicyAlways, "", "web")
	change(&s.Spec.Containers[0])
	c := run("web", 0, Running)
	c.Hash, c.RunningSeenAt = containerHash(&s.Spec.Containers[0]), t0
	c.Grace = criconfig.GracePeriodDefault
	if l := s.Spec.Containers[0].Lifecycle; l != nil {
		c.PreStop = l.PreStop
	}
	return podWith(s, c)
}

func status(p *Pod) v1.ContainerStatus {
	statuses := servedPod(p, &Node{}, "containerd").Status.ContainerStatuses
	return statuses[slices.IndexFunc(statuses, func(s v1.ContainerStatus) bool {
		return s.Name == p.Spec.Spec.Containers[0].Name
	})]
}

// waiting returns why the app container does not run, by its status.
func waiting(p *Pod) *v1.ContainerStateWaiting {
	updateStatus(p, t0)
	return status(p).State.Waiting
}
