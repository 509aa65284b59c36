package image

import (
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	"pgregory.net/rapid"

	"seedlet.dev/core/op"
	"seedlet.dev/core/timer"
	"seedlet.dev/world"
)

func TestLimitsOf(t *testing.T) {
	yes, no, qps, most := true, false, int32(5), int32(3)
	for _, test := range []struct {
		config kubeletconfig.KubeletConfiguration
		want   Limits
	}{
		{kubeletconfig.KubeletConfiguration{SerializeImagePulls: &yes}, Limits{ParallelMax: 1}},
		{kubeletconfig.KubeletConfiguration{SerializeImagePulls: &no}, Limits{}},
		{kubeletconfig.KubeletConfiguration{SerializeImagePulls: &no, MaxParallelImagePulls: &most,
			RegistryPullQPS: &qps, RegistryBurst: 10},
			Limits{ParallelMax: 3, Every: 200 * time.Millisecond, Burst: 10}},
	} {
		if got := LimitsOf(&test.config); got != test.want {
			t.Errorf("%+v, want %+v", got, test.want)
		}
	}
}

// pulls is a registry that a store pulls from, driven by what the store asks for.
type pulls struct {
	store  Store
	table  op.Table
	out    op.Out
	now    time.Time
	flying []world.OpID
	began  []time.Time
	wakes  timer.Queue[timer.Key]
	queue  []timer.Key
}

func (p *pulls) settle() {
	for {
		if key, ok := p.wakes.Pop(p.now); ok {
			p.queue = append(p.queue, key)
		}
		if len(p.queue) == 0 {
			return
		}
		key := p.queue[0]
		p.queue = p.queue[1:]
		p.out.Begin(&p.table, p.now)
		wake := p.store.Plan(key.Name, false, &p.out, func(k timer.Key) { p.queue = append(p.queue, k) })
		p.wakes.Set(key, wake)
		for _, eff := range p.out.Take() {
			if _, is := eff.Body.(*runtimeapi.PullImageRequest); is {
				p.flying, p.began = append(p.flying, eff.Op), append(p.began, p.now)
			}
		}
	}
}

func (p *pulls) end(i int, err *world.Error) {
	id := p.flying[i]
	p.flying = append(p.flying[:i:i], p.flying[i+1:]...)
	record, _ := p.table.Settle(id)
	p.out.Begin(&p.table, p.now)
	ev := world.Event{Time: p.now, Op: id, Err: err}
	if err == nil {
		ev.Body = &runtimeapi.PullImageResponse{ImageRef: "sha256:x"}
	}
	ref := record.Owner.Name
	for _, uid := range p.store.Answered(ref, record, ev, &p.out) {
		if p.store.Need(uid, Wanted{Ref: ref}, v1.PullAlways, t0).ID != "" {
			p.store.Release(uid, ref)
		}
	}
	p.queue = append(p.queue, Key(ref))
	if key, waits := p.store.Next(); waits {
		p.queue = append(p.queue, key)
	}
	p.settle()
}

// However pulls are asked for, given up, fail and end: never are there more at once, or in any
// stretch of time, than the limits allow, and none waits while it could begin.
func TestLimitsHold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := &pulls{now: t0}
		p.store.Limits = Limits{ParallelMax: rapid.IntRange(0, 3).Draw(t, "parallel")}
		if rapid.Bool().Draw(t, "limited") {
			p.store.Limits.Every = time.Second
			p.store.Limits.Burst = rapid.IntRange(1, 3).Draw(t, "burst")
		}
		limits := p.store.Limits
		t.Repeat(map[string]func(*rapid.T){
			"need": func(t *rapid.T) {
				ref := fmt.Sprint("i", rapid.IntRange(0, 9).Draw(t, "ref"))
				p.store.Need("pod", Wanted{Ref: ref}, v1.PullAlways, t0)
				p.queue = append(p.queue, Key(ref))
				p.settle()
			},
			"release": func(t *rapid.T) {
				ref := fmt.Sprint("i", rapid.IntRange(0, 9).Draw(t, "ref"))
				p.store.Release("pod", ref)
				p.queue = append(p.queue, Key(ref))
				if key, waits := p.store.Next(); waits {
					p.queue = append(p.queue, key)
				}
				p.settle()
			},
			"end": func(t *rapid.T) {
				if len(p.flying) == 0 {
					t.Skip("no pull to end")
				}
				var err *world.Error
				if rapid.Bool().Draw(t, "fails") {
					err = refused
				}
				p.end(rapid.IntRange(0, len(p.flying)-1).Draw(t, "which"), err)
			},
			"wait": func(t *rapid.T) {
				p.now = p.now.Add(time.Duration(rapid.IntRange(1, 2000).Draw(t, "ms")) *
					time.Millisecond)
				p.settle()
			},
			"": func(t *rapid.T) {
				if limits.ParallelMax > 0 && len(p.flying) > limits.ParallelMax {
					t.Fatalf("%d pulls at once", len(p.flying))
				}
				if p.store.Turns.Flying != len(p.flying) {
					t.Fatalf("%d are counted, %d fly", p.store.Turns.Flying, len(p.flying))
				}
				checkRate(t, p.began, limits)
				full := limits.ParallelMax > 0 && len(p.flying) == limits.ParallelMax
				if next, waits := p.store.Next(); waits && !full && p.wakes.Len() == 0 {
					t.Fatalf("%s waits for nothing", next.Name)
				}
			},
		})
	})
}

func checkRate(t *rapid.T, began []time.Time, limits Limits) {
	if limits.Every == 0 {
		return
	}
	for i := range began {
		for k := i; k < len(began); k++ {
			stretch := began[k].Sub(began[i])
			if most := limits.Burst + int(stretch/limits.Every); k-i+1 > most {
				t.Fatalf("%d pulls in %v, want at most %d", k-i+1, stretch, most)
			}
		}
	}
}
