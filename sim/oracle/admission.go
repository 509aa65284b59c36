package oracle

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	podresources "k8s.io/component-helpers/resource"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"seedlet.dev/core/mirror"
	"seedlet.dev/sim/truth"
)

// admission fires when a pod is taken that the node has no room for or is no place for, when one is
// rejected that it has, and when one is rejected that has run (upstream #105523, #118559, #124345,
// #138446).
type admission struct{}

func (*admission) entry() Entry {
	return Entry{"admission", "What runs never asks for more than the node has, nor for a port of " +
		"it twice. A pod is rejected only if it does not fit, and never once it has run."}
}

func (*admission) fact(w *world, f *truth.Fact) *finding {
	if len(w.opts.Allocatable) == 0 {
		return nil
	}
	switch {
	case f.Kind == truth.ContainerStarted:
		if p := w.pods[f.PodUID]; p != nil && p.live == 0 && len(p.specs) > 0 {
			return w.overcommitted(p, f.Time)
		}
	case told(f) && isRejection(&f.Write.After.Pod.Status) &&
		!isRejection(&f.Write.Before.Pod.Status):
		return w.misrejected(f.Write.After.Pod, f.Time)
	}
	return nil
}

// overcommitted says what the node has too little of when a pod begins to run.
func (w *world) overcommitted(p *pod, now time.Time) *finding {
	asks, rivals := p.asks(), []*pod{}
	for _, other := range w.order {
		if other != p && other.occupies() {
			rivals = append(rivals, other)
		}
	}
	for _, name := range resourceNames {
		used := int64(0)
		for _, other := range rivals {
			used += other.asks().of(name)
		}
		if has := w.has(name); asks.of(name) > has-used {
			return says("pod %s begins to run and asks for %d of %s, but %d of %d is taken", p,
				asks.of(name), name, used, has)
		}
	}
	for _, other := range rivals {
		if port := p.clash(other); port != 0 {
			return says("pod %s begins to run and asks for port %d of the host, which %s has", p,
				port, other)
		}
	}
	if p.startedFirst.IsZero() && !p.static && !w.mayMatch(p, placed, p.wishedFirst, now) {
		return says("pod %s begins to run, but the node is no place for it", p)
	}
	return nil
}

// misrejected says why it was wrong to reject a pod.
func (w *world) misrejected(object *v1.Pod, now time.Time) *finding {
	p := w.pods[string(object.UID)]
	switch reason := object.Status.Reason; {
	case mirror.Is(object):
		return says("static pod %s/%s is told to be rejected: %s", object.Namespace, object.Name,
			reason)
	case p == nil:
	case !p.startedFirst.IsZero():
		return says("pod %s is told to be rejected: %s, but it has run", p, reason)
	case !w.mayReject(p, reason, now):
		return says("pod %s is told to be rejected: %s (%s), but it would have fitted", p, reason,
			object.Status.Message)
	}
	return nil
}

const outOf = "OutOf" // and the name of the resource

// isRejection says whether a status says that a pod was not taken.
func isRejection(s *v1.PodStatus) bool {
	switch s.Reason {
	case "NodeAffinity", "NodePorts", "TaintToleration", "UnexpectedAdmissionError":
		return s.Phase == v1.PodFailed
	}
	return s.Phase == v1.PodFailed && strings.HasPrefix(s.Reason, outOf)
}

// mayReject says whether there was a reason to reject a pod at some time since it came. What the
// agent knows is a little old, or very old if something goes wrong.
func (w *world) mayReject(p *pod, reason string, now time.Time) bool {
	from := w.knownSince(p.wishedFirst, now)
	switch name, isOut := strings.CutPrefix(reason, outOf); {
	case isOut && p.priority() < priorityMin:
		return w.mayLack(p, v1.ResourceName(name), from)
	case isOut: // others may make room, but of something else not enough
		return slices.ContainsFunc(resourceNames, func(name v1.ResourceName) bool {
			return w.mayLack(p, name, from)
		})
	case reason == "NodePorts":
		for _, other := range w.order {
			if other != p && other.mayOccupy(from) && p.clash(other) != 0 {
				return true
			}
		}
	case reason == "NodeAffinity":
		return w.mayMatch(p, misplaced, p.wishedFirst, now)
	case reason == "TaintToleration":
		return w.mayMatch(p, driven, p.wishedFirst, now)
	}
	return false
}

// mayLack says whether the node may have had too little of a resource for a pod since a time. What
// makes room for it does not count.
func (w *world) mayLack(p *pod, name v1.ResourceName, from time.Time) bool {
	used := int64(0)
	for _, other := range w.order {
		if other != p && other.mayOccupy(from) && !p.outranks(other) {
			used += other.asks().of(name)
		}
	}
	return p.asks().of(name) > w.has(name)-used
}

const (
	// knownWithin is how long the agent may take to know what has ended, when nothing goes wrong.
	knownWithin = 10 * time.Second
	// taintsSeen is how long it may take for gone what is not there any more, or not have heard of
	// what is, when something does.
	taintsSeen = 2 * time.Minute
)

// knownSince is the time of the oldest that the agent may have gone by since another time.
func (w *world) knownSince(from, now time.Time) time.Time {
	if w.struckAny(from.Add(-taintsSeen), now, "WatchObjects", "ObjectChanged", "ListContainers",
		"ListPodSandbox", "ContainerStatus", "StopContainer", "StopPodSandbox") {
		return from.Add(-taintsSeen)
	}
	return from.Add(-knownWithin)
}

// resourceNames are those that the judges look at.
var resourceNames = []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory, v1.ResourcePods}

// has is what pods may have of a resource of the node, in thousandths of CPUs, bytes and places.
func (w *world) has(name v1.ResourceName) int64 {
	q := w.opts.Allocatable[name]
	if name == v1.ResourceCPU {
		return q.MilliValue()
	}
	return q.Value()
}

// claim is what a pod takes of the node, in the units of has.
type claim struct{ cpu, memory, pods int64 }

func (c *claim) of(name v1.ResourceName) int64 {
	switch name {
	case v1.ResourceCPU:
		return c.cpu
	case v1.ResourceMemory:
		return c.memory
	case v1.ResourcePods:
		return c.pods
	}
	return 0
}

// asks is what a pod takes of the node.
func (p *pod) asks() *claim {
	if len(p.specs) == 0 {
		return &claim{}
	}
	newest := p.specs[len(p.specs)-1]
	if p.claimedBy != newest {
		all := podresources.PodRequests(newest, podresources.PodResourcesOptions{})
		p.claimedBy = newest
		p.claimed = claim{cpu: all.Cpu().MilliValue(), memory: all.Memory().Value(), pods: 1}
	}
	return &p.claimed
}

// occupies says whether a pod runs, or has run and is to run again.
func (p *pod) occupies() bool {
	if p.live > 0 {
		return true
	}
	return p.spec != nil && !p.startedFirst.IsZero() && !p.loose() && !p.settledFor()
}

// settledFor says whether a wanted pod has come to its end, or may have.
func (p *pod) settledFor() bool {
	return p.rejected || p.preempted || p.ended() || p.maybeKilled(p.world.now) ||
		p.terminal != "" || p.world.objects.over[p.uid] != ""
}

// mayOccupy says whether the agent may have counted a pod at some time since another.
func (p *pod) mayOccupy(from time.Time) bool {
	s := p.newestSandbox()
	switch {
	case p.live > 0, s != nil && s.ready:
		return true
	case p.spec != nil && !p.rejected && p.world.objects.over[p.uid] == "" && !p.ended():
		return true
	}
	return p.changed.After(from) || !p.rejected && later(p.removedAt, p.overAt).After(from)
}

// clash is a port of the host that two pods ask for; zero if there is none. The judges know of no
// addresses: a port is one of all of them.
func (p *pod) clash(other *pod) int32 {
	if len(p.specs) == 0 || len(other.specs) == 0 {
		return 0
	}
	for _, mine := range hostPorts(p.specs[0]) {
		for _, its := range hostPorts(other.specs[0]) {
			if mine == its {
				return mine
			}
		}
	}
	return 0
}

func hostPorts(spec *v1.Pod) []int32 {
	var ports []int32
	for i := range spec.Spec.Containers {
		for _, port := range spec.Spec.Containers[i].Ports {
			if port.HostPort != 0 {
				ports = append(ports, port.HostPort)
			}
		}
	}
	return ports
}

// nodeState is how the Node was for a while; nil if there was none.
type nodeState struct {
	since time.Time
	node  *v1.Node
}

// mayMatch says whether a pod and the Node may have been so to each other at some time. At first
// there is none; while there is none, it is what the agent registers that counts.
func (w *world) mayMatch(p *pod, so func(*v1.Pod, *v1.Node) bool, from, now time.Time) bool {
	from = w.knownSince(from, now)
	states := append([]nodeState{{}}, w.objects.nodes...)
	for i := range states {
		if i+1 < len(states) && states[i+1].since.Before(from) {
			continue
		}
		node := cmp.Or(states[i].node, w.opts.Registers)
		for _, spec := range p.specs {
			if node == nil || so(spec, node) {
				return true
			}
		}
	}
	return false
}

func placed(pod *v1.Pod, node *v1.Node) bool { return !misplaced(pod, node) && !driven(pod, node) }

// misplaced says whether a Node is not what a pod selects.
func misplaced(pod *v1.Pod, node *v1.Node) bool {
	fits, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node)
	return err != nil || !fits
}

// driven says whether a taint of the Node drives a pod away.
func driven(pod *v1.Pod, node *v1.Node) bool {
	for i := range node.Spec.Taints {
		taint := &node.Spec.Taints[i]
		stands := taint.Effect != v1.TaintEffectNoExecute
		for k := range pod.Spec.Tolerations {
			stands = stands || pod.Spec.Tolerations[k].ToleratesTaint(logr.Logger{}, taint, false)
		}
		if !stands {
			return true
		}
	}
	return false
}

// lacksEnd is what is left to do about a pod that was rejected.
func (p *pod) lacksEnd() string {
	if p.live > 0 {
		return fmt.Sprintf("it was rejected, but %s runs", p.anyLive().name)
	}
	if s := p.newestSandbox(); s != nil && s.ready {
		return "it was rejected, but has a sandbox"
	}
	return ""
}

// waits says whether a static pod has to wait in the end, since what is there does not make room
// for it.
func (p *pod) waits() bool {
	w := p.world
	if !p.static || p.live > 0 || len(w.opts.Allocatable) == 0 {
		return false
	}
	for _, name := range resourceNames {
		if w.mayLack(p, name, w.now) {
			return true
		}
	}
	for _, other := range w.order {
		if other != p && other.mayOccupy(w.now) && p.clash(other) != 0 {
			return true
		}
	}
	node := cmp.Or(w.objects.node, w.opts.Registers)
	return node != nil && misplaced(p.spec, node)
}
