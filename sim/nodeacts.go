package sim

import v1 "k8s.io/api/core/v1"

// What is done to the Node object, and to pods that run, besides what actors.go has.

// A label that pods of scenarios ask for, and a taint that drives them away.
const (
	nodeLabel = "disk"
	nodeValue = "ssd"
	nodeTaint = "maintenance"
)

// nodeActs draws when the Node gets and loses its label and its taint.
func (d *drawing) nodeActs(a *ActorRange) {
	label := func(value any) map[string]any {
		return map[string]any{"metadata": map[string]any{"labels": map[string]any{nodeLabel: value}}}
	}
	taint := func(entry map[string]any) map[string]any {
		entry["key"] = nodeTaint
		return map[string]any{"spec": map[string]any{"taints": []any{entry}}}
	}
	r := d.stream("actors labels")
	for range d.times("labels", a.Labels, a.Always) {
		at := d.moment(r)
		d.act(Act{At: at, Do: ActPatch, Node: true, Patch: label(nodeValue)})
		if r.IntN(3) > 0 {
			d.act(Act{At: at + Duration(a.Away.draw(r)), Do: ActPatch, Node: true, Patch: label(nil)})
		}
	}
	r = d.stream("actors taints")
	for range d.times("taints", a.Taints, a.Always) {
		at := d.moment(r)
		d.act(Act{At: at, Do: ActPatch, Node: true,
			Patch: taint(map[string]any{"effect": "NoExecute"})})
		d.act(Act{At: at + Duration(a.Away.draw(r)), Do: ActPatch, Node: true,
			Patch: taint(map[string]any{"$patch": "delete"})})
	}
	r = d.stream("actors ttls")
	for range d.times("ttls", a.TTLs, a.Always) {
		ttl := []any{"0", "15", "30", "150", nil}[r.IntN(5)] // a controller's steps, or none
		d.act(Act{At: d.moment(r), Do: ActPatch, Node: true, Patch: map[string]any{
			"metadata": map[string]any{"annotations": map[string]any{v1.ObjectTTLAnnotationKey: ttl}}}})
	}
}

// debugs draws when somebody looks into a pod with an ephemeral container. Whatever else is done to
// the pod is done all the same.
func (d *drawing) debugs(a *ActorRange) {
	var pods []string
	for i := range d.plan.Spec.Pods {
		if p := &d.plan.Spec.Pods[i]; p.API {
			pods = append(pods, p.Name)
		}
	}
	r := d.stream("actors debugs")
	for range d.times("debugs", a.Debugs, a.Always) {
		if len(pods) == 0 {
			return
		}
		i := r.IntN(len(pods))
		at := d.moment(r)
		d.act(Act{At: at, Do: ActDebug, Pod: pods[i], Container: "debug"})
		if r.IntN(3) == 0 {
			d.act(Act{At: at + Duration(a.Away.draw(r)), Do: ActDebug, Pod: pods[i],
				Container: "debug-again"})
		}
	}
}
