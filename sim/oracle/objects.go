package oracle

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"seedlet.dev/core/manifest"
	"seedlet.dev/core/mirror"
	"seedlet.dev/sim/truth"
	api "seedlet.dev/world" // world is another thing here
)

// objects is what the API server really has of the node, and what it was told.
type objects struct {
	pods    map[string]*v1.Pod // by namespace/name, those of the node
	node    *v1.Node
	joined  time.Time              // since when there is one
	over    map[string]v1.PodPhase // by UID of the object: the phase in which it ended, for ever
	made    map[string]maker       // by id of the container, those that have gone as well
	renewed time.Time              // when the agent last renewed the lease of its node
	nodes   []nodeState            // all that the Node has been
}

// maker is the pod that a container was made for.
type maker struct{ uid, full string }

func newObjects() objects {
	return objects{pods: map[string]*v1.Pod{}, over: map[string]v1.PodPhase{},
		made: map[string]maker{}}
}

// takeObject brings up to date what the API server has.
func (w *world) takeObject(f *truth.Fact) {
	o, after := &w.objects, &f.Write.After
	name := f.Write.Namespace + "/" + f.Write.Name
	switch f.Write.Resource {
	case api.ResourcePods:
		delete(o.pods, name)
		if after.Pod == nil {
			return
		}
		if after.Pod.Spec.NodeName == w.opts.NodeName {
			o.pods[name] = after.Pod
		}
		if phase := after.Pod.Status.Phase; isTerminal(phase) {
			o.over[string(after.Pod.UID)] = phase
			w.finish(f, after.Pod)
		}
	case api.ResourceNodes:
		if f.Write.Name == w.opts.NodeName {
			if o.node == nil {
				o.joined = f.Time
			}
			o.node = after.Node
			o.nodes = append(o.nodes, nodeState{f.Time, after.Node})
		}
	case api.ResourceLeases:
		if f.Write.Life > 0 && after.Lease != nil {
			o.renewed = f.Time
		}
	}
}

// finish takes that the API server was told that a pod is over. The agent may reject one of which
// nothing has run, if it does not fit.
func (w *world) finish(f *truth.Fact, object *v1.Pod) {
	p := w.pods[string(object.UID)]
	if p == nil || !p.overAt.IsZero() {
		return
	}
	p.overAt = f.Time
	if f.Write.Life == 0 {
		p.called = object.Status.Phase
		return
	}
	p.preempted = isPreempted(object)
	p.rejected = isRejection(&object.Status) && p.startedFirst.IsZero() &&
		w.mayReject(p, object.Status.Reason, f.Time)
}

// runs are the pods on the node that an object tells of: the one of its UID, or the static ones
// that it is a mirror of.
func (w *world) runs(object *v1.Pod) []*pod {
	if !mirror.Is(object) {
		if p := w.pods[string(object.UID)]; p != nil {
			return []*pod{p}
		}
		return nil
	}
	if full := w.names[object.Namespace+"/"+object.Name]; full != nil {
		return full.pods
	}
	return nil
}

// told says whether a fact is a status that the agent has told the API server of a pod.
func told(f *truth.Fact) bool {
	return f.Kind == truth.ObjectWritten && f.Write.Life > 0 &&
		f.Write.Resource == api.ResourcePods
}

// objectsUnsettled says what is wrong at the API server in the end.
func (w *world) objectsUnsettled(now time.Time) []string {
	if !w.opts.API {
		return nil
	}
	var lines []string
	add := func(name, format string, args ...any) {
		lines = append(lines, fmt.Sprintf("at the API server, pod %s: ", name)+
			fmt.Sprintf(format, args...))
	}
	for _, name := range slices.Sorted(maps.Keys(w.objects.pods)) {
		object := w.objects.pods[name]
		switch p := w.pods[string(object.UID)]; {
		case object.DeletionTimestamp != nil:
			if what := undeleted(object); what != "" {
				add(name, "it is marked for deletion, and %s", what)
			}
		case mirror.Is(object):
			if what := w.wrongMirror(object); what != "" {
				add(name, "%s", what)
			}
		case p != nil && p.spec != nil:
			still := later(later(p.changed, p.wishedAt), later(w.started, w.healed))
			if now.Sub(still) <= writtenThere {
				add(name, "it is not known yet whether it is told as it is")
			} else if what := w.misshown(p, object); what != "" {
				add(name, "%s", what)
			}
		}
	}
	for _, p := range w.order {
		if w.objects.node == nil { // to which all mirrors belong
			break
		}
		if p.spec == nil || p.spec.Annotations[manifest.ConfigSourceAnnotation] == "" {
			continue // of the API server
		}
		if w.objects.pods[p.full.text] == nil {
			add(p.full.text, "there is no mirror of it")
		}
	}
	return lines
}

// undeleted is what is left to do for the agent about an object that is to go. It is not the agent
// who takes finalizers away.
func undeleted(object *v1.Pod) string {
	switch grace := object.DeletionGracePeriodSeconds; {
	case len(object.Finalizers) == 0:
		return "still there"
	case !mirror.Is(object) && !isTerminal(object.Status.Phase):
		return "not told to be over"
	case grace == nil || *grace != 0:
		return "more than its finalizers keeps it"
	}
	return ""
}

// writtenThere is how long the agent may take to tell what has happened, when nothing goes wrong.
const writtenThere = 10 * time.Second

// wrongMirror is what is wrong with a mirror in the end.
func (w *world) wrongMirror(object *v1.Pod) string {
	if w.objects.node != nil && !slices.ContainsFunc(object.OwnerReferences, owns(w.objects.node)) {
		return "it does not belong to the Node"
	}
	is := object.Annotations[v1.MirrorPodAnnotationKey]
	wanted := ""
	for _, p := range w.runs(object) {
		if p.spec == nil {
			continue
		}
		if wanted = p.spec.Annotations[manifest.ConfigHashAnnotation]; wanted == is {
			return ""
		}
	}
	if wanted == "" {
		return "it is the mirror of nothing"
	}
	return fmt.Sprintf("it mirrors %s, the manifest is %s", is, wanted)
}

// apiTerminal fires when the agent takes back that a pod is over (upstream #58711, #105358).
type apiTerminal struct{}

func (*apiTerminal) entry() Entry {
	return Entry{"api-terminal", "A pod that the API server was told to be Succeeded or Failed " +
		"stays what it was told to be."}
}

func (*apiTerminal) fact(_ *world, f *truth.Fact) *finding {
	if !told(f) || f.Write.Before.Pod == nil {
		return nil
	}
	was, is := f.Write.Before.Pod.Status.Phase, f.Write.After.Pod.Status.Phase
	if !isTerminal(was) || is == was {
		return nil
	}
	return &finding{message: fmt.Sprintf("pod %s/%s was told to be %s, and then to be %s",
		f.Write.Namespace, f.Write.Name, was, is)}
}

// apiStopped fires when a pod that the API server was told to be over still runs, or runs again
// (upstream #104560, #106884, #37447).
type apiStopped struct{}

func (*apiStopped) entry() Entry {
	return Entry{"api-stopped", "The API server is told that a pod is over only when nothing of " +
		"it runs, and nothing of it is started after that."}
}

func (*apiStopped) fact(w *world, f *truth.Fact) *finding {
	if f.Kind == truth.ContainerStarted {
		if phase := w.objects.over[f.PodUID]; phase != "" && !w.mayNotKnow(f.PodUID, f.Time) {
			return &finding{message: fmt.Sprintf("container %s (%.12s) of pod %s/%s was started, "+
				"but the API server has it as %s", f.Container, f.ContainerID, f.PodNamespace,
				f.PodName, phase)}
		}
		return nil
	}
	if !told(f) || !isTerminal(f.Write.After.Pod.Status.Phase) ||
		isTerminal(f.Write.Before.Pod.Status.Phase) {
		return nil
	}
	if runs := w.runs(f.Write.After.Pod); len(runs) == 1 && runs[0].live > 0 {
		return &finding{message: fmt.Sprintf("pod %s is told to be %s, but %s runs", runs[0],
			f.Write.After.Pod.Status.Phase, runs[0].anyLive())}
	}
	return nil
}

// calledWithin is how long the agent may take to start nothing more of a pod that somebody else has
// called over.
const calledWithin = time.Minute

// mayNotKnow says whether the agent cannot know yet that somebody else has called a pod over.
func (w *world) mayNotKnow(uid string, now time.Time) bool {
	p := w.pods[uid]
	return p != nil && p.called != "" && (now.Sub(p.overAt) <= calledWithin ||
		!w.livedThrough(p.overAt) || w.struckAny(p.overAt.Add(-reconnects), now, "WatchObjects",
		"ObjectChanged", "CreateContainer", "StartContainer"))
}

// apiIdentity fires when an object has the status of another pod of its name.
type apiIdentity struct{}

func (*apiIdentity) entry() Entry {
	return Entry{"api-identity", "The API server is told of a pod only what is true of that pod, " +
		"not of another one that has, or had, its name."}
}

func (*apiIdentity) fact(w *world, f *truth.Fact) *finding {
	if !told(f) {
		return nil
	}
	object := f.Write.After.Pod
	full := object.Namespace + "/" + object.Name
	for _, list := range statuses(object) {
		for i := range list {
			for _, id := range idsOf(&list[i]) {
				is, known := w.objects.made[id]
				if known && is.full == full && (is.uid == string(object.UID) || mirror.Is(object)) ||
					!known {
					continue
				}
				return &finding{message: fmt.Sprintf("pod %s (uid %s) is told to have container "+
					"%.12s, which was made for %s (uid %s)", full, object.UID, id, is.full, is.uid)}
			}
		}
	}
	return nil
}

// idsOf are the ids of the containers that a status tells of.
func idsOf(s *v1.ContainerStatus) []string {
	ids := []string{s.ContainerID}
	for _, ended := range []*v1.ContainerStateTerminated{s.State.Terminated,
		s.LastTerminationState.Terminated} {
		if ended != nil {
			ids = append(ids, ended.ContainerID)
		}
	}
	for i := range ids {
		_, ids[i], _ = strings.Cut(ids[i], "://")
	}
	return ids
}

// apiRemoved fires when the agent removes a pod from the API server too early (upstream #116410),
// or not at all.
type apiRemoved struct{}

func (*apiRemoved) entry() Entry {
	return Entry{"api-removed", "The agent removes a pod from the API server if it is to be " +
		"deleted, was told to be over, and nothing of it runs: then within a bound, else never."}
}

func (*apiRemoved) fact(w *world, f *truth.Fact) *finding {
	if f.Kind != truth.ObjectRemoved || f.Write.Life == 0 || f.Write.Before.Pod == nil ||
		mirror.Is(f.Write.Before.Pod) {
		return nil
	}
	object := f.Write.Before.Pod
	name := object.Namespace + "/" + object.Name
	switch p := w.pods[string(object.UID)]; {
	case p != nil && p.live > 0:
		return &finding{message: fmt.Sprintf("pod %s was removed, but %s runs", p, p.anyLive())}
	case p != nil && p.spec != nil:
		return &finding{message: fmt.Sprintf("pod %s was removed, but nobody asked for that", name)}
	case !isTerminal(object.Status.Phase):
		return &finding{message: fmt.Sprintf("pod %s was removed as %s, without having been told "+
			"to be over", name, object.Status.Phase)}
	}
	return nil
}

// goneWithin is how long a pod of which nothing runs may still be at the API server, when nothing
// goes wrong but that the runtime does not remove what it has of it.
const goneWithin = 4 * time.Minute

// leaving are the calls that a pod needs to go from the API server when nothing of it runs.
var leaving = []string{"WatchObjects", "ObjectChanged", "GetObject", "PatchObject", "DeleteObject",
	"ListPodSandbox", "ListContainers", "PodSandboxStatus", "ContainerStatus", "RunPodSandbox",
	"CreateContainer", "StartContainer", "StopContainer", "StopPodSandbox", "ReadTail", "ReadFiles",
	"StatPath", "ListDir", "ReadLinks", "MakeDir", "MakeLink", "WriteFile", "WriteDir", "Rename",
	"MountMemory", "BindSubPath", "Unmount", "RemoveTree", "SetCgroup", "ListCgroups",
	"RemoveCgroup"}

func (*apiRemoved) answer(w *world, now time.Time, _ []*v1.Pod) *finding {
	if w.dead {
		return nil
	}
	for _, p := range w.order {
		object := w.objects.pods[p.full.text]
		if object == nil || string(object.UID) != p.uid || object.DeletionTimestamp == nil ||
			len(object.Finalizers) > 0 || mirror.Is(object) || !p.down() {
			continue
		}
		from := later(later(p.changed, object.DeletionTimestamp.Time), w.started)
		if now.Sub(from) > goneWithin && !w.struckAny(from, now, leaving...) {
			return says("pod %s is to be deleted and nothing of it has run since %v ago, but it is "+
				"still there", p, now.Sub(from).Round(time.Second))
		}
	}
	return nil
}

// down says that nothing of a pod runs, neither a container nor a sandbox.
func (p *pod) down() bool {
	return p.live == 0 && !slices.ContainsFunc(p.sandboxes, func(s *sandbox) bool { return s.ready })
}

// heartbeat fires when the node's lease is not renewed although nothing keeps the agent from it
// (upstream #48638, #121793).
type heartbeat struct{}

func (*heartbeat) entry() Entry {
	return Entry{"heartbeat", "The lease of the node is renewed within its grace period, whenever " +
		"the API server can be reached."}
}

// heartbeatMax is how old a lease may be until its node counts as gone.
const heartbeatMax = 40 * time.Second

func (h *heartbeat) fact(w *world, f *truth.Fact) *finding {
	if f.Write == nil || f.Write.Resource != api.ResourceLeases {
		return nil
	}
	return h.look(w, f.Time)
}

func (h *heartbeat) answer(w *world, now time.Time, _ []*v1.Pod) *finding { return h.look(w, now) }

func (*heartbeat) look(w *world, now time.Time) *finding {
	last := w.objects.renewed
	if last.IsZero() || w.dead || w.objects.node == nil {
		return nil
	}
	last = later(later(last, w.started), w.objects.joined)
	if since := now.Add(-heartbeatMax); !last.Before(since) ||
		w.struckAny(since, now, "GetObject", "CreateObject", "UpdateObject", "PatchObject") {
		return nil // long enough for another renewal everything has to be well
	}
	return &finding{message: fmt.Sprintf("the lease was not renewed for %v, although nothing kept "+
		"the agent from it", now.Sub(last).Round(time.Second))}
}

func owns(node *v1.Node) func(owner metav1.OwnerReference) bool {
	return func(owner metav1.OwnerReference) bool {
		return owner.Kind == "Node" && owner.UID == node.UID
	}
}
