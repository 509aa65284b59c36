package plan

import (
	"fmt"
	"math/rand/v2"
	"slices"

	v1 "k8s.io/api/core/v1"
)

// ActorRange is how often users and controllers act on the pods of the API server, the mirrors of
// static pods, the Node and other objects.
type ActorRange struct {
	Deletions   Count `json:"deletions,omitempty"`   // with the pod's own grace period
	Forced      Count `json:"forced,omitempty"`      // without a grace period
	Shortened   Count `json:"shortened,omitempty"`   // repeated with a shorter grace period
	Recreations Count `json:"recreations,omitempty"` // followed by another pod of the same name

	ForcedRecreations Count `json:"reforced,omitempty"` // by force, so that the pods may overlap

	ShortLived     Count `json:"late,omitempty"`        // pods that are deleted just after creation
	Finalizers     Count `json:"finalizers,omitempty"`  // a finalizer delays a deletion
	TerminalPhases Count `json:"ends,omitempty"`        // a pod's phase is set to Failed or Succeeded
	Updates        Count `json:"updates,omitempty"`     // other images
	Relabels       Count `json:"relabels,omitempty"`    // other labels and annotations
	Chains         Count `json:"chains,omitempty"`      // several of these on one pod, perhaps at once
	Mirrors        Count `json:"mirrors,omitempty"`     // a mirror pod is deleted or changed
	Objects        Count `json:"objects,omitempty"`     // an object is changed, or recreated
	LateObjects    Count `json:"lateObjects,omitempty"` // an object is created later than the others
	Claims         Count `json:"claims,omitempty"`      // the claim of an ephemeral volume is deleted
	Nodes          Count `json:"nodes,omitempty"`       // the Node is recreated
	Labels         Count `json:"labels,omitempty"`      // the Node has disk=ssd for a while
	Taints         Count `json:"taints,omitempty"`      // the Node has a NoExecute taint for a while
	TTLs           Count `json:"ttls,omitempty"`        // the Node's object TTL annotation changes
	Debugs         Count `json:"debugs,omitempty"`      // a pod gets an ephemeral container
	Resizes        Count `json:"resizes,omitempty"`     // containers get other requests and limits
	// Dates is how often the machine's date is changed, DateBy by how much: one is drawn for each.
	Dates  Count            `json:"dates,omitempty"`
	DateBy []SignedDuration `json:"dateBy,omitempty"`

	// DriverChanges has half of the changes of a CSIDriver set other fields, and not recreate it.
	DriverChanges bool `json:"driverChanges,omitempty"`

	Interval Span `json:"away,omitempty"`   // from one act of a series to the next
	Always   bool `json:"always,omitempty"` // in every seed
}

// addActs generates the acts. Each pod of the API server has at most one series of acts.
func (g *generator) addActs() {
	g.addObjects()
	a, pods := &g.scenario.Spec.Actors, g.untouchedPods
	g.stream("actors").Shuffle(len(pods), func(i, k int) { pods[i], pods[k] = pods[k], pods[i] })
	g.addChains(a)
	g.addDeletions(a)
	g.addRecreations(a)
	g.forEachPod("finalizers", a.Finalizers, func(p Pod, at Duration, r *rand.Rand) {
		g.addFinalizerActs(&p, at, a, r)
	})
	g.forEachPod("ends", a.TerminalPhases, func(p Pod, at Duration, r *rand.Rand) {
		phase := []v1.PodPhase{v1.PodFailed, v1.PodSucceeded}[r.IntN(2)]
		status := map[string]any{"phase": phase, "reason": "Ended", "message": "by somebody"}
		g.addAct(at, Act{Verb: VerbSetTerminalPhase, Pod: p.Name, Status: true,
			Patch: map[string]any{"status": status}})
	})
	g.forEachPod("updates", a.Updates, func(p Pod, at Duration, r *rand.Rand) {
		for n := range 1 + r.IntN(3) {
			g.addAct(at, Act{Verb: VerbPatch, Pod: p.Name, Patch: imagePatch(&p, n+2)})
			at += Duration(a.Interval.draw(r))
		}
	})
	g.forEachPod("relabels", a.Relabels, func(p Pod, at Duration, _ *rand.Rand) {
		g.addAct(at, Act{Verb: VerbPatch, Pod: p.Name, Patch: relabelPatch()})
	})
	g.addMirrorActs(a)
	g.addObjectActs(a)
	g.addClaimActs(a)
	g.addPullSecrets()
	g.addNodeActs(a)
	g.addDebugActs(a)
	g.addResizes(a)
	r := g.stream("dates")
	for range g.occurrences("dates", a.Dates, a.Always) {
		if len(a.DateBy) > 0 {
			g.addAct(g.randomTime(r), Act{Verb: VerbDate, Node: true,
				By: a.DateBy[r.IntN(len(a.DateBy))]})
		}
	}
}

func (g *generator) addDeletions(a *ActorRange) {
	g.forEachPod("deletions", a.Deletions, func(p Pod, at Duration, _ *rand.Rand) {
		g.addAct(at, Act{Verb: VerbDelete, Pod: p.Name})
	})
	g.forEachPod("forced deletions", a.Forced, func(p Pod, at Duration, r *rand.Rand) {
		if r.IntN(2) == 0 { // while it terminates
			g.addAct(at, Act{Verb: VerbDelete, Pod: p.Name})
			at += Duration(a.Interval.draw(r))
		}
		g.addAct(at, Act{Verb: VerbDelete, Pod: p.Name, Grace: new(int64)})
	})
	g.forEachPod("shortened deletions", a.Shortened, func(p Pod, at Duration, r *rand.Rand) {
		g.addAct(at, Act{Verb: VerbDelete, Pod: p.Name})
		g.addAct(at+Duration(a.Interval.draw(r)), Act{Verb: VerbDelete, Pod: p.Name,
			Grace: new(int64(1 + r.IntN(5)))})
	})
}

func (g *generator) addRecreations(a *ActorRange) {
	g.forEachPod("recreations", a.Recreations, func(p Pod, at Duration, r *rand.Rand) {
		g.addAct(at, Act{Verb: VerbDelete, Pod: p.Name})
		g.addAct(at+Duration(a.Interval.draw(r)), Act{Verb: VerbCreate, Pod: p.Name})
	})
	g.forEachPod("forced recreations", a.ForcedRecreations,
		func(p Pod, at Duration, _ *rand.Rand) {
			g.addAct(at, Act{Verb: VerbDelete, Pod: p.Name, Grace: new(int64)})
			g.addAct(at, Act{Verb: VerbCreate, Pod: p.Name})
		})
	g.forEachPod("short lives", a.ShortLived, func(p Pod, at Duration, r *rand.Rand) {
		g.addAct(at, Act{Verb: VerbDelete, Pod: p.Name})
		g.addAct(at+1, Act{Verb: VerbCreate, Pod: p.Name})
		g.addAct(at+Duration(a.Interval.draw(r)), Act{Verb: VerbDelete, Pod: p.Name})
	})
}

// addFinalizerActs adds the deletion of a pod that a finalizer keeps at the API server, perhaps
// until long after the agent has stopped it. Another pod of the name may follow.
func (g *generator) addFinalizerActs(p *Pod, at Duration, a *ActorRange, r *rand.Rand) {
	g.addAct(at, Act{Verb: VerbPatch, Pod: p.Name, Patch: finalizerPatch(true)})
	at += Duration(a.Interval.draw(r))
	g.addAct(at, Act{Verb: VerbDelete, Pod: p.Name})
	at += Duration(2 * a.Interval.draw(r))
	g.addAct(at, Act{Verb: VerbPatch, Pod: p.Name, Patch: finalizerPatch(false)})
	if r.IntN(2) == 0 {
		g.addAct(at, Act{Verb: VerbCreate, Pod: p.Name}) // waits until the pod is removed
	}
}

// finalizerPatch gives a pod a finalizer, or takes it away.
func finalizerPatch(kept bool) map[string]any {
	var finalizers any
	if kept {
		finalizers = []any{"sim.seedlet.dev/keep"}
	}
	return map[string]any{"metadata": map[string]any{"finalizers": finalizers}}
}

// addMirrorActs adds deletions and changes of the mirrors of static pods.
func (g *generator) addMirrorActs(a *ActorRange) {
	r := g.stream("actors mirrors")
	for range g.occurrences("mirrors", a.Mirrors, a.Always) {
		if len(g.untouchedFiles) == 0 {
			return
		}
		at, act := g.randomTime(r), Act{Verb: VerbDelete,
			Pod: g.untouchedFiles[r.IntN(len(g.untouchedFiles))].pod.Name}
		switch r.IntN(3) {
		case 0:
			act.Grace = new(int64)
		case 1:
			act.Verb, act.Patch = VerbPatch, map[string]any{
				"metadata": map[string]any{"labels": map[string]any{"changed": "yes"}}}
		}
		g.addAct(at, act)
	}
}

// addObjects adds the objects, and their creation, which of some is late.
func (g *generator) addObjects() {
	a, late := &g.scenario.Spec.Actors, map[int]Duration{}
	r := g.stream("actors late objects")
	for range g.occurrences("late objects", a.LateObjects, a.Always) {
		if len(g.objects) > 0 {
			late[r.IntN(len(g.objects))] = Duration(a.Interval.draw(r))
		}
	}
	for i, o := range g.objects {
		g.plan.Spec.Objects = append(g.plan.Spec.Objects, o)
		g.addAct(late[i], Act{Verb: VerbCreate, Object: o.Name})
	}
}

// addClaimActs adds deletions of the claims that pods have of their own. These pods may have other
// acts as well.
func (g *generator) addClaimActs(a *ActorRange) {
	var claims []Act
	for i := range g.plan.Spec.Pods {
		p := &g.plan.Spec.Pods[i]
		pod, err := p.BoundPod()
		if !p.API || err != nil {
			continue
		}
		for k := range pod.Spec.Volumes {
			if v := &pod.Spec.Volumes[k]; v.Ephemeral != nil {
				claims = append(claims, Act{Verb: VerbDelete, Pod: p.Name, Volume: v.Name})
			}
		}
	}
	r := g.stream("actors claims")
	for range g.occurrences("claims", a.Claims, a.Always) {
		if len(claims) > 0 {
			g.addAct(g.randomTime(r), claims[r.IntN(len(claims))])
		}
	}
}

// addObjectActs adds changes and recreations of objects other than pods, and of the Node.
func (g *generator) addObjectActs(a *ActorRange) {
	r := g.stream("actors objects")
	for n := range g.occurrences("objects", a.Objects, a.Always) {
		objects := g.plan.Spec.Objects
		if len(objects) == 0 {
			break
		}
		o := objects[r.IntN(len(objects))]
		at := g.randomTime(r)
		if o.Manifest["kind"] == kindClusterTrustBundle && r.IntN(3) > 0 {
			g.addAct(at, Act{Verb: VerbPatch, Object: o.Name, Patch: trustAnchorsPatch(n, r)})
			continue
		}
		if o.Manifest["kind"] == kindCSIDriver && a.DriverChanges && r.IntN(2) == 0 {
			g.addAct(at, Act{Verb: VerbPatch, Object: o.Name, Patch: driverPatch(r)})
			continue
		}
		if _, hasData := o.Manifest["data"]; hasData && r.IntN(3) > 0 {
			g.addAct(at, Act{Verb: VerbPatch, Object: o.Name, Patch: dataPatch(&o, n)})
			continue
		}
		g.addAct(at, Act{Verb: VerbDelete, Object: o.Name})
		g.addAct(at+Duration(a.Interval.draw(r)), Act{Verb: VerbCreate, Object: o.Name})
	}
	r = g.stream("actors nodes")
	if g.plan.Spec.Node.API && r.IntN(2) == 0 {
		g.addAct(0, Act{Verb: VerbCreate, Node: true})
	}
	for range g.occurrences("nodes", a.Nodes, a.Always) {
		at := g.randomTime(r)
		g.addAct(at, Act{Verb: VerbDelete, Node: true})
		g.addAct(at+Duration(a.Interval.draw(r)), Act{Verb: VerbCreate, Node: true})
	}
}

// driverPatch sets the fields of a CSIDriver that may change.
func driverPatch(r *rand.Rand) map[string]any {
	spec := map[string]any{"requiresRepublish": r.IntN(2) == 0, "podInfoOnMount": r.IntN(2) == 0,
		"serviceAccountTokenInSecrets": r.IntN(2) == 0}
	spec["tokenRequests"] = []any{
		map[string]any{"audience": "changed", "expirationSeconds": 600 * (1 + r.IntN(2))}}
	return map[string]any{"spec": spec}
}

// dataPatch returns a patch that sets the n-th version in the data of a ConfigMap or Secret.
func dataPatch(o *Object, n int) map[string]any {
	field := "data"
	if o.Manifest["kind"] == "Secret" {
		field = "stringData"
	}
	values := map[string]any{"version": fmt.Sprint(n + 2)}
	if data, _ := o.Manifest["data"].(map[string]any); data["copy"] != nil {
		values["copy"] = values["version"] // an oracle checks that both change at once
	}
	return map[string]any{field: values}
}

// The label that pods of scenarios select, and the taint that evicts them.
const (
	nodeLabel = "disk"
	nodeValue = "ssd"
	nodeTaint = "maintenance"
)

// addNodeActs adds when the Node gets and loses its label and its taint, and changes of its TTL.
func (g *generator) addNodeActs(a *ActorRange) {
	label := func(value any) map[string]any {
		return map[string]any{"metadata": map[string]any{"labels": map[string]any{nodeLabel: value}}}
	}
	taint := func(entry map[string]any) map[string]any {
		entry["key"] = nodeTaint
		return map[string]any{"spec": map[string]any{"taints": []any{entry}}}
	}
	r := g.stream("actors labels")
	for range g.occurrences("labels", a.Labels, a.Always) {
		at := g.randomTime(r)
		g.addAct(at, Act{Verb: VerbPatch, Node: true, Patch: label(nodeValue)})
		if r.IntN(3) > 0 {
			g.addAct(at+Duration(a.Interval.draw(r)), Act{Verb: VerbPatch, Node: true,
				Patch: label(nil)})
		}
	}
	r = g.stream("actors taints")
	for range g.occurrences("taints", a.Taints, a.Always) {
		at := g.randomTime(r)
		g.addAct(at, Act{Verb: VerbPatch, Node: true,
			Patch: taint(map[string]any{"effect": "NoExecute"})})
		g.addAct(at+Duration(a.Interval.draw(r)), Act{Verb: VerbPatch, Node: true,
			Patch: taint(map[string]any{"$patch": "delete"})})
	}
	r = g.stream("actors ttls")
	for range g.occurrences("ttls", a.TTLs, a.Always) {
		ttl := []any{"0", "15", "30", "150", nil}[r.IntN(5)] // steps of the TTL controller, or none
		annotations := map[string]any{v1.ObjectTTLAnnotationKey: ttl}
		g.addAct(g.randomTime(r), Act{Verb: VerbPatch, Node: true, Patch: map[string]any{
			"metadata": map[string]any{"annotations": annotations}}})
	}
}

// addDebugActs adds ephemeral containers to pods, of which some have a device that another
// container of the pod has. These pods may have other acts as well.
func (g *generator) addDebugActs(a *ActorRange) {
	var pods []*Pod
	for i := range g.plan.Spec.Pods {
		if p := &g.plan.Spec.Pods[i]; p.API {
			pods = append(pods, p)
		}
	}
	r := g.stream("actors debugs")
	for range g.occurrences("debugs", a.Debugs, a.Always) {
		if len(pods) == 0 {
			return
		}
		pod := pods[r.IntN(len(pods))]
		at := g.randomTime(r)
		device := ""
		if devices := devicesOf(pod); len(devices) > 0 && r.IntN(3) > 0 {
			device = devices[r.IntN(len(devices))]
		}
		g.addAct(at, Act{Verb: VerbDebug, Pod: pod.Name, Container: "debug", Volume: device})
		if r.IntN(3) == 0 {
			g.addAct(at+Duration(a.Interval.draw(r)), Act{Verb: VerbDebug, Pod: pod.Name,
				Container: "debug-again", Volume: device})
		}
	}
}

// devicesOf returns the names of the volumes whose devices the containers of a pod have.
func devicesOf(p *Pod) (names []string) {
	pod, err := p.BoundPod()
	if err != nil {
		return nil
	}
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		for _, d := range c.VolumeDevices {
			if !slices.Contains(names, d.Name) {
				names = append(names, d.Name)
			}
		}
	}
	return names
}

// resizeTarget is something that has requests: a container in one of the lists of a pod's spec, or
// the pod as a whole.
type resizeTarget struct {
	pod             string // the name of its entry
	list, container string // empty: the pod as a whole
	resources       v1.ResourceRequirements
}

// addResizes changes the requests and limits of what has some. These pods may have other acts as
// well.
func (g *generator) addResizes(a *ActorRange) {
	targets := g.resizeTargets()
	r := g.stream("actors resizes")
	for range g.occurrences("resizes", a.Resizes, a.Always) {
		if len(targets) == 0 {
			return
		}
		t, at := targets[r.IntN(len(targets))], g.randomTime(r)
		for range 1 + r.IntN(3) {
			g.addAct(at, Act{Verb: VerbResize, Pod: t.pod, Patch: resizePatch(&t, r)})
			at += Duration(a.Interval.draw(r))
		}
	}
}

// resizeTargets returns what has requests of the pods of the API server.
func (g *generator) resizeTargets() (targets []resizeTarget) {
	for i := range g.plan.Spec.Pods {
		p := &g.plan.Spec.Pods[i]
		pod, err := p.BoundPod()
		if !p.API || err != nil {
			continue
		}
		for _, c := range pod.Spec.Containers {
			if len(c.Resources.Requests) > 0 {
				targets = append(targets, resizeTarget{p.Name, "containers", c.Name, c.Resources})
			}
		}
		for _, c := range pod.Spec.InitContainers {
			if len(c.Resources.Requests) > 0 {
				targets = append(targets, resizeTarget{p.Name, "initContainers", c.Name, c.Resources})
			}
		}
		if whole := pod.Spec.Resources; whole != nil {
			targets = append(targets, resizeTarget{pod: p.Name, resources: *whole})
		}
	}
	return targets
}

// resizePatch scales the CPU, the memory or both of a target, seldom beyond what the node has.
func resizePatch(t *resizeTarget, r *rand.Rand) map[string]any {
	percents := []int64{20, 50, 75, 100, 110, 150, 200, 300, 5000}
	which, resources := r.IntN(3), map[string]any{}
	cpu, memory := percents[r.IntN(len(percents))], percents[r.IntN(len(percents))]
	for _, field := range []string{"requests", "limits"} {
		list := t.resources.Requests
		if field == "limits" {
			list = t.resources.Limits
		}
		scaled := map[string]any{}
		if q, exists := list[v1.ResourceCPU]; exists && which != 0 {
			scaled["cpu"] = fmt.Sprintf("%dm", max(1, q.MilliValue()*cpu/100))
		}
		if q, exists := list[v1.ResourceMemory]; exists && which != 1 {
			scaled["memory"] = fmt.Sprint(max(1, q.Value()*memory/100))
		}
		if len(scaled) > 0 {
			resources[field] = scaled
		}
	}
	if t.container == "" {
		return map[string]any{"spec": map[string]any{"resources": resources}}
	}
	container := map[string]any{"name": t.container, "resources": resources}
	return map[string]any{"spec": map[string]any{t.list: []any{container}}}
}

// forEachPod draws how many pods a kind of act is about, takes them from the untouched ones, and
// calls add for each with a random time.
func (g *generator) forEachPod(kind string, count Count, add func(Pod, Duration, *rand.Rand)) {
	r := g.stream("actors " + kind)
	for range g.occurrences(kind, count, g.scenario.Spec.Actors.Always) {
		if len(g.untouchedPods) == 0 {
			return
		}
		p := g.untouchedPods[0]
		g.untouchedPods = g.untouchedPods[1:]
		add(p, g.randomTime(r), r)
	}
}

// addAct adds an act, which happens before the faults heal.
func (g *generator) addAct(at Duration, a Act) {
	g.add(min(at, g.plan.Spec.Duration), &a)
}
