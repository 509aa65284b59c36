package sim

import (
	"fmt"
	"math/rand/v2"
	"time"

	v1 "k8s.io/api/core/v1"
)

// ActorRange is how often somebody does something to the pods of the API server, to the mirrors
// of static pods, and to other objects.
type ActorRange struct {
	Deletions   Count `json:"deletions,omitempty"`   // with the pod's own grace period
	Forced      Count `json:"forced,omitempty"`      // without any
	Shortened   Count `json:"shortened,omitempty"`   // and then once more, with a shorter one
	Recreations Count `json:"recreations,omitempty"` // and another pod of that name after it
	Reforced    Count `json:"reforced,omitempty"`    // the same by force, so that they may overlap
	Late        Count `json:"late,omitempty"`        // pods that come and go within moments
	Finalizers  Count `json:"finalizers,omitempty"`  // something keeps a removed pod for a while
	Ends        Count `json:"ends,omitempty"`        // a pod is called Failed or Succeeded
	Updates     Count `json:"updates,omitempty"`     // other images
	Relabels    Count `json:"relabels,omitempty"`    // other labels and annotations
	Mirrors     Count `json:"mirrors,omitempty"`     // a mirror is removed or changed
	Objects     Count `json:"objects,omitempty"`     // another object is changed, or goes and comes
	Nodes       Count `json:"nodes,omitempty"`       // the Node is removed
	Labels      Count `json:"labels,omitempty"`      // the Node has disk=ssd for a while
	Taints      Count `json:"taints,omitempty"`      // it is under maintenance for a while
	TTLs        Count `json:"ttls,omitempty"`        // objects may be cached for another time
	Debugs      Count `json:"debugs,omitempty"`      // a pod has an ephemeral container added
	Away        Span  `json:"away,omitempty"`        // between one thing and the next
	Always      bool  `json:"always,omitempty"`
}

// actors draws what somebody does to the cluster. Each pod has at most one of these things done
// to it.
func (d *drawing) actors() {
	for i := range d.scenario.Spec.Objects {
		o := d.scenario.Spec.Objects[i]
		d.plan.Spec.Objects = append(d.plan.Spec.Objects, o)
		d.act(Act{Do: ActCreate, Object: o.Name})
	}
	a := &d.scenario.Spec.Actors
	r := d.stream("actors")
	r.Shuffle(len(d.bound), func(i, k int) { d.bound[i], d.bound[k] = d.bound[k], d.bound[i] })
	d.eachBound("deletions", a.Deletions, func(p PlanPod, at Duration, _ *rand.Rand) {
		d.act(Act{At: at, Do: ActDelete, Pod: p.Name})
	})
	d.eachBound("forced deletions", a.Forced, func(p PlanPod, at Duration, r *rand.Rand) {
		if r.IntN(2) == 0 { // in the middle of its end
			d.act(Act{At: at, Do: ActDelete, Pod: p.Name})
			at += Duration(a.Away.draw(r))
		}
		d.act(Act{At: at, Do: ActDelete, Pod: p.Name, Grace: new(int64)})
	})
	d.eachBound("shortened deletions", a.Shortened, func(p PlanPod, at Duration, r *rand.Rand) {
		d.act(Act{At: at, Do: ActDelete, Pod: p.Name})
		d.act(Act{At: at + Duration(a.Away.draw(r)), Do: ActDelete, Pod: p.Name,
			Grace: new(int64(1 + r.IntN(5)))})
	})
	d.eachBound("recreations", a.Recreations, func(p PlanPod, at Duration, r *rand.Rand) {
		d.act(Act{At: at, Do: ActDelete, Pod: p.Name})
		d.act(Act{At: at + Duration(a.Away.draw(r)), Do: ActCreate, Pod: p.Name})
	})
	d.eachBound("forced recreations", a.Reforced, func(p PlanPod, at Duration, _ *rand.Rand) {
		d.act(Act{At: at, Do: ActDelete, Pod: p.Name, Grace: new(int64)})
		d.act(Act{At: at, Do: ActCreate, Pod: p.Name})
	})
	d.eachBound("short lives", a.Late, func(p PlanPod, at Duration, r *rand.Rand) {
		d.act(Act{At: at, Do: ActDelete, Pod: p.Name})
		d.act(Act{At: at + 1, Do: ActCreate, Pod: p.Name})
		d.act(Act{At: at + Duration(a.Away.draw(r)), Do: ActDelete, Pod: p.Name})
	})
	d.eachBound("finalizers", a.Finalizers, func(p PlanPod, at Duration, r *rand.Rand) {
		d.finalized(&p, at, a, r)
	})
	d.eachBound("ends", a.Ends, func(p PlanPod, at Duration, r *rand.Rand) {
		phase := []v1.PodPhase{v1.PodFailed, v1.PodSucceeded}[r.IntN(2)]
		d.act(Act{At: at, Do: ActEnd, Pod: p.Name, Status: true, Patch: map[string]any{
			"status": map[string]any{"phase": phase, "reason": "Ended", "message": "by somebody"}}})
	})
	d.eachBound("updates", a.Updates, func(p PlanPod, at Duration, r *rand.Rand) {
		for n := range 1 + r.IntN(3) {
			d.act(Act{At: at, Do: ActPatch, Pod: p.Name, Patch: otherImage(&p, n+2)})
			at += Duration(a.Away.draw(r))
		}
	})
	d.eachBound("relabels", a.Relabels, func(p PlanPod, at Duration, _ *rand.Rand) {
		d.act(Act{At: at, Do: ActPatch, Pod: p.Name, Patch: map[string]any{"metadata": map[string]any{
			"labels": map[string]any{"again": "yes"}, "annotations": map[string]any{"a": "b"}}}})
	})
	d.mirrors(a)
	d.others(a)
	d.nodeActs(a)
	d.debugs(a)
}

// finalized draws that a pod is removed, and kept by somebody who has something to do first,
// perhaps until long after its end.
func (d *drawing) finalized(p *PlanPod, at Duration, a *ActorRange, r *rand.Rand) {
	keep := func(finalizers any) map[string]any {
		return map[string]any{"metadata": map[string]any{"finalizers": finalizers}}
	}
	d.act(Act{At: at, Do: ActPatch, Pod: p.Name, Patch: keep([]any{"sim.seedlet.dev/keep"})})
	at += Duration(a.Away.draw(r))
	d.act(Act{At: at, Do: ActDelete, Pod: p.Name})
	at += Duration(2 * a.Away.draw(r))
	d.act(Act{At: at, Do: ActPatch, Pod: p.Name, Patch: keep(nil)})
	if r.IntN(2) == 0 {
		d.act(Act{At: at, Do: ActCreate, Pod: p.Name}) // as soon as it has gone
	}
}

// mirrors draws what is done to the mirrors of static pods.
func (d *drawing) mirrors(a *ActorRange) {
	r := d.stream("actors mirrors")
	for range d.times("mirrors", a.Mirrors, a.Always) {
		if len(d.files) == 0 {
			return
		}
		act := Act{At: d.moment(r), Do: ActDelete, Pod: d.files[r.IntN(len(d.files))].pod.Name}
		switch r.IntN(3) {
		case 0:
			act.Grace = new(int64)
		case 1:
			act.Do, act.Patch = ActPatch, map[string]any{
				"metadata": map[string]any{"labels": map[string]any{"changed": "yes"}}}
		}
		d.act(act)
	}
}

// others draws what is done to the Node and to what is neither it nor a pod.
func (d *drawing) others(a *ActorRange) {
	r := d.stream("actors objects")
	for n := range d.times("objects", a.Objects, a.Always) {
		objects := d.plan.Spec.Objects
		if len(objects) == 0 {
			break
		}
		o := objects[r.IntN(len(objects))]
		at := d.moment(r)
		if o.Object["kind"] == kindTrustBundle && r.IntN(3) > 0 {
			d.act(Act{At: at, Do: ActPatch, Object: o.Name, Patch: otherAnchors(n, r)})
			continue
		}
		if _, is := o.Object["data"]; is && r.IntN(3) > 0 {
			field := "data"
			if o.Object["kind"] == "Secret" {
				field = "stringData"
			}
			values := map[string]any{"version": fmt.Sprint(n + 2)}
			if data, _ := o.Object["data"].(map[string]any); data["copy"] != nil {
				values["copy"] = values["version"] // both change at once
			}
			d.act(Act{At: at, Do: ActPatch, Object: o.Name, Patch: map[string]any{field: values}})
			continue
		}
		d.act(Act{At: at, Do: ActDelete, Object: o.Name})
		d.act(Act{At: at + Duration(a.Away.draw(r)), Do: ActCreate, Object: o.Name})
	}
	r = d.stream("actors nodes")
	if d.plan.Spec.Node.API && r.IntN(2) == 0 {
		d.act(Act{Do: ActCreate, Node: true})
	}
	for range d.times("nodes", a.Nodes, a.Always) {
		at := d.moment(r)
		d.act(Act{At: at, Do: ActDelete, Node: true})
		d.act(Act{At: at + Duration(a.Away.draw(r)), Do: ActCreate, Node: true})
	}
}

// eachBound draws a number of pods that nothing has been done to yet, and what is done to them.
func (d *drawing) eachBound(what string, count Count, do func(PlanPod, Duration, *rand.Rand)) {
	r := d.stream("actors " + what)
	for range d.times(what, count, d.scenario.Spec.Actors.Always) {
		if len(d.bound) == 0 {
			return
		}
		p := d.bound[0]
		d.bound = d.bound[1:]
		do(p, d.moment(r), r)
	}
}

// act adds something that is done, at the latest when the faults end.
func (d *drawing) act(a Act) {
	a.At = Duration(min(time.Duration(a.At), time.Duration(d.plan.Spec.Duration)))
	d.plan.Spec.Acts = append(d.plan.Spec.Acts, a)
}

// otherImage is a patch that gives the containers of a pod another image.
func otherImage(p *PlanPod, n int) map[string]any {
	var containers []any
	spec, _ := p.Manifest["spec"].(map[string]any)
	list, _ := spec["containers"].([]any)
	for _, item := range list {
		if c, ok := item.(map[string]any); ok {
			containers = append(containers, map[string]any{
				"name": c["name"], "image": fmt.Sprintf("registry.test/other:%d", n)})
		}
	}
	return map[string]any{"spec": map[string]any{"containers": containers}}
}
