package image

import (
	"fmt"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	"pgregory.net/rapid"

	"seedlet.dev/core/credentials"
	"seedlet.dev/core/op"
	"seedlet.dev/core/pullrecord"
	"seedlet.dev/core/timer"
	"seedlet.dev/world"
)

func TestLimitsFromConfig(t *testing.T) {
	yes, no, qps, most := true, false, int32(5), int32(3)
	for _, test := range []struct {
		config kubeletconfig.KubeletConfiguration
		want   Limits
	}{
		{kubeletconfig.KubeletConfiguration{SerializeImagePulls: &yes}, Limits{ParallelMax: 1}},
		{kubeletconfig.KubeletConfiguration{SerializeImagePulls: &no}, Limits{}},
		{kubeletconfig.KubeletConfiguration{SerializeImagePulls: &no, MaxParallelImagePulls: &most,
			RegistryPullQPS: &qps, RegistryBurst: 10},
			Limits{ParallelMax: 3, Interval: 200 * time.Millisecond, Burst: 10}},
	} {
		if got := LimitsFromConfig(&test.config); got != test.want {
			t.Errorf("%+v, want %+v", got, test.want)
		}
	}
}

// planner plans the images of a store under test and the records of its pulls, as the agent does.
type planner struct {
	store Store
	table op.Table
	out   op.Effects
	now   time.Time
	wakes timer.Queue[timer.Key]
	queue []timer.Key
}

// planUntilIdle plans what is enqueued or due. Issued is called with each effect.
func (p *planner) planUntilIdle(issued func(world.Effect)) {
	for {
		if key, isDue := p.wakes.Pop(p.now); isDue {
			p.queue = append(p.queue, key)
		}
		if len(p.queue) == 0 {
			return
		}
		key := p.queue[0]
		p.queue = p.queue[1:]
		p.out.Reset(&p.table, p.now)
		if key == pullrecord.Owner {
			p.wakes.Set(key, p.store.Records.Plan(&p.out))
		} else {
			p.wakes.Set(key, p.store.Plan(key.Name, &Env{Effects: &p.out,
				Enqueue: func(k timer.Key) { p.queue = append(p.queue, k) }}))
		}
		if p.store.Records.Changed {
			p.queue = append(p.queue, pullrecord.Owner)
		}
		for _, eff := range p.out.List() {
			issued(eff)
		}
	}
}

// handlePull handles the completion of an operation on an image. A pod that gets it waits no more.
func (p *planner) handlePull(r op.Record, ev world.Event) {
	ref := r.Owner.Name
	for _, uid := range p.store.HandleCompletion(ref, r, ev, &p.out) {
		if p.store.Require(uid, Request{Ref: ref}, v1.PullAlways, t0).ID != "" {
			p.store.Release(uid, ref)
		}
	}
}

// queueHead has the head of the queue of pulls planned.
func (p *planner) queueHead() {
	for _, name := range p.store.Head().Names {
		p.queue = append(p.queue, Key(name))
	}
}

// registry completes the pulls of a store under test.
type registry struct {
	planner
	inFlight []world.OpID
	started  []time.Time
}

func (p *registry) plan() {
	p.planUntilIdle(func(eff world.Effect) {
		if _, is := eff.Body.(*runtimeapi.PullImageRequest); is {
			p.inFlight, p.started = append(p.inFlight, eff.Op), append(p.started, p.now)
		}
	})
}

func (p *registry) finish(i int, err *world.Error) {
	id := p.inFlight[i]
	p.inFlight = append(p.inFlight[:i:i], p.inFlight[i+1:]...)
	record, _ := p.table.Complete(id)
	p.out.Reset(&p.table, p.now)
	ev := world.Event{Time: p.now, Op: id, Err: err}
	if err == nil {
		ev.Body = &runtimeapi.PullImageResponse{ImageRef: "sha256:x"}
	}
	p.handlePull(record, ev)
	p.queue = append(p.queue, record.Owner)
	p.queueHead()
	p.plan()
}

// Whatever the order in which pulls are requested, released, fail and complete: the limits of
// concurrent pulls and of pulls in any period hold, and no pull waits that could start.
func TestLimitsHold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := &registry{planner: planner{now: t0}}
		p.store.Limits = Limits{ParallelMax: rapid.IntRange(0, 3).Draw(t, "parallel")}
		if rapid.Bool().Draw(t, "limited") {
			p.store.Limits.Interval = time.Second
			p.store.Limits.Burst = rapid.IntRange(1, 3).Draw(t, "burst")
		}
		limits := p.store.Limits
		t.Repeat(map[string]func(*rapid.T){
			"need": func(t *rapid.T) {
				ref := fmt.Sprint("i", rapid.IntRange(0, 9).Draw(t, "ref"))
				p.store.Require("pod", Request{Ref: ref}, v1.PullAlways, t0)
				p.queue = append(p.queue, Key(ref))
				p.plan()
			},
			"release": func(t *rapid.T) {
				ref := fmt.Sprint("i", rapid.IntRange(0, 9).Draw(t, "ref"))
				p.store.Release("pod", ref)
				p.queue = append(p.queue, Key(ref))
				p.queueHead()
				p.plan()
			},
			"end": func(t *rapid.T) {
				if len(p.inFlight) == 0 {
					t.Skip("no pull to end")
				}
				var err *world.Error
				if rapid.Bool().Draw(t, "fails") {
					err = refused
				}
				p.finish(rapid.IntRange(0, len(p.inFlight)-1).Draw(t, "which"), err)
			},
			"wait": func(t *rapid.T) {
				p.now = p.now.Add(time.Duration(rapid.IntRange(1, 2000).Draw(t, "ms")) *
					time.Millisecond)
				p.plan()
			},
			"": func(t *rapid.T) {
				if limits.ParallelMax > 0 && len(p.inFlight) > limits.ParallelMax {
					t.Fatalf("%d pulls at once", len(p.inFlight))
				}
				if p.store.PullQueue.InFlight != len(p.inFlight) {
					t.Fatalf("%d pulls counted, want %d", p.store.PullQueue.InFlight, len(p.inFlight))
				}
				checkPullRate(t, p.started, limits)
				full := limits.ParallelMax > 0 && len(p.inFlight) == limits.ParallelMax
				if next := p.store.Head().Names; len(next) > 0 && !full && p.wakes.Len() == 0 {
					t.Fatalf("the pull of %s waits although it could start", next[0])
				}
			},
		})
	})
}

func checkPullRate(t *rapid.T, starts []time.Time, limits Limits) {
	if limits.Interval == 0 {
		return
	}
	for i := range starts {
		for k := i; k < len(starts); k++ {
			period := starts[k].Sub(starts[i])
			if most := limits.Burst + int(period/limits.Interval); k-i+1 > most {
				t.Fatalf("%d pulls in %v, want at most %d", k-i+1, period, most)
			}
		}
	}
}

// start adds an image that is ready to the queue, and reports whether its pull starts.
func (q *PullQueue) start(name, tenant string, limits Limits) bool {
	at := q.add(name, tenant)
	q.Waiting[at].Ready = true
	started, _ := q.tryStart(at, limits, t0)
	return started
}

// Pods take turns at pulls: a pod of many images delays another one by the pull in flight and one
// more, and its own images keep their order.
func TestPodsTakeTurnsAtPulls(t *testing.T) {
	var q PullQueue
	limits := Limits{ParallelMax: 1}
	start := func(name, tenant string) bool { return q.start(name, tenant, limits) }
	for i := range 20 {
		if started := start(fmt.Sprintf("greedy-%02d", i), "greedy"); started != (i == 0) {
			t.Fatalf("pull %d started: %v", i, started)
		}
	}
	start("b1", "b")
	start("b2", "b")
	start("c", "c")
	var order []string
	for len(q.Waiting) > 0 {
		q.InFlight--
		order = append(order, q.Waiting[0].Name)
		if !start(q.Waiting[0].Name, "") {
			t.Fatal("the first of the queue does not start")
		}
	}
	want := []string{"b1", "c", "greedy-01", "b2", "greedy-02"}
	if !slices.Equal(order[:5], want) || len(order) != 22 || !slices.IsSorted(order[4:]) {
		t.Errorf("pulls in the order %v, want %v first", order, want)
	}
}

// Pods that need an image again whenever its pull has completed do not delay another one for ever.
func TestRepeatedPullsDoNotStarveOthers(t *testing.T) {
	var q PullQueue
	limits := Limits{ParallelMax: 1}
	for _, pull := range [][2]string{{"z", "z"}, {"b1", "b"}, {"b2", "b"}} {
		q.start(pull[0], pull[1], limits)
	}
	for i := range 5 {
		tenant := []string{"x", "y"}[i%2]
		q.InFlight--
		if q.start("again", tenant, limits) || len(q.Waiting) == 0 {
			continue
		}
		if !q.start(q.Waiting[0].Name, "", limits) {
			t.Fatal("the first of the queue does not start")
		}
	}
	if len(q.Waiting) > 0 && q.Waiting[0].Name == "b2" {
		t.Error("the second image of b still waits after five other pulls")
	}
}

// An image that cannot be pulled yet for a reason of its own delays no other.
func TestImageThatIsNotReadyDelaysNoOther(t *testing.T) {
	for name, block := range map[string]func(*Image, *Env){ //ordered: each by itself
		"it backs off": func(i *Image, _ *Env) { i.PullNotBefore = t0.Add(time.Hour) },
		"it is removed": func(_ *Image, env *Env) {
			env.IsRemoving = func(ref string) bool { return ref == "y" }
		},
		"its account is read": func(i *Image, _ *Env) {
			i.Account, i.AccountOp = &credentials.Account{Namespace: "ns", Name: "robot"}, 1
		},
	} {
		var s Store
		var table op.Table
		var out op.Effects
		s.Limits = Limits{ParallelMax: 1}
		env := &Env{Effects: &out, Enqueue: func(timer.Key) {}}
		pulled := func(ref string) (started bool) {
			out.Reset(&table, t0)
			s.Plan(ref, env)
			for _, e := range out.List() {
				_, isPull := e.Body.(*runtimeapi.PullImageRequest)
				started = started || isPull
			}
			return started
		}
		for _, ref := range []string{"x", "y", "z"} {
			s.Require("pod-"+ref, Request{Ref: ref}, v1.PullAlways, t0)
			if pulled(ref) != (ref == "x") {
				t.Fatalf("%s: the pull of %s", name, ref)
			}
		}
		s.PullQueue.InFlight = 0
		block(s.Images["y"], env)
		if pulled("y") || !pulled("z") {
			t.Errorf("%s: the image behind it is not pulled", name)
		}
	}
}
