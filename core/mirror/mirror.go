// Package mirror keeps a mirror at the API server of every static pod, for others to see.
//
// It keeps: for every name that a mirror has or should have, the write in flight. Its plan
// compares the object of that name with the static pod: one that is missing is made, and one that
// is of another pod, of another state of it, of another Node, or marked for deletion, is removed
// and made anew. Nothing that happens to a mirror ever touches the static pod itself. Start
// reading at Plan.
package mirror

import (
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"seedlet.dev/core/manifest"
	"seedlet.dev/core/op"
	"seedlet.dev/core/status"
	"seedlet.dev/core/timer"
	"seedlet.dev/world"
)

// Component is the component part of the key of every mirror.
const Component = "mirror"

const (
	timeout      = 30 * time.Second
	failureFirst = time.Second
	failureMost  = time.Minute
	watchLag     = time.Second // what was written is mostly seen by then
)

// Key is the owner of the writes of the mirror of a full name.
func Key(name string) timer.Key { return timer.Key{Component: Component, Name: name} }

// Pods is the writes of all mirrors. The zero value is ready.
type Pods struct {
	Writes map[string]*Write `json:"writes,omitempty"` // by namespace/name
}

// Write is what is being done about one mirror, and how that went before.
type Write struct {
	Op       world.OpID `json:"op,omitempty"`
	Failures int        `json:"failures,omitempty"`
	// NotBefore is when to look again: after a failure, and until the watch may be expected to
	// show what a write has done. To write once too often does no harm.
	NotBefore time.Time `json:"notBefore"`
}

// Is says whether an object is the mirror of a static pod.
func Is(pod *v1.Pod) bool {
	_, is := pod.Annotations[v1.MirrorPodAnnotationKey]
	return is
}

// UID is that of the static pod that a mirror is of.
func UID(object *v1.Pod) string { return object.Annotations[v1.MirrorPodAnnotationKey] }

// Plan does what is to be done about the mirror of a full name: of the static pod, nil if there is
// none, given what the API server has of that name, nil for nothing, and the node, nil as long as
// it is not there.
func (m *Pods) Plan(name string, static, object *v1.Pod, node *v1.Node, out *op.Out) time.Time {
	w := m.Writes[name]
	mirrored := object != nil && Is(object)
	if w == nil {
		if static == nil && !mirrored {
			return time.Time{}
		}
		if m.Writes == nil {
			m.Writes = map[string]*Write{}
		}
		w = &Write{}
		m.Writes[name] = w
	}
	switch {
	case w.Op != 0:
		return time.Time{}
	case static == nil && !mirrored:
		delete(m.Writes, name)
		return time.Time{}
	case out.Now().Before(w.NotBefore):
		return w.NotBefore
	case mirrored && !fits(static, object, node):
		w.Op = out.Ask(Key(name), string(object.UID), timeout, status.Removal(object))
	case object == nil && node != nil:
		w.Op = out.Ask(Key(name), "", timeout, &world.CreateObject{
			Object: world.Object{Pod: of(static, node)}})
	}
	return time.Time{}
}

// Hurry says that the server answers again: nothing waits any longer because of a failure.
func (m *Pods) Hurry(name string) {
	if w := m.Writes[name]; w != nil {
		w.Failures, w.NotBefore = 0, time.Time{}
	}
}

// fits says whether an object is as the mirror of a static pod should be.
func fits(static, object *v1.Pod, node *v1.Node) bool {
	return static != nil && object.DeletionTimestamp == nil &&
		object.Annotations[v1.MirrorPodAnnotationKey] == hash(static) &&
		(node == nil || len(object.OwnerReferences) == 1 &&
			object.OwnerReferences[0].UID == node.UID)
}

// hash is what a mirror says of the state of the static pod that it is of.
func hash(static *v1.Pod) string { return static.Annotations[manifest.ConfigHashAnnotation] }

// of is the mirror of a static pod. It belongs to the node, so that nothing is left of it when
// the node goes, and so that the server lets a node make it (KEP-1314).
func of(static *v1.Pod, node *v1.Node) *v1.Pod {
	object := static.DeepCopy()
	object.UID, object.Status = "", v1.PodStatus{}
	if object.Annotations == nil {
		object.Annotations = map[string]string{}
	}
	object.Annotations[v1.MirrorPodAnnotationKey] = hash(static)
	controls := true
	object.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID, Controller: &controls,
	}}
	return object
}

// Answered takes the answer to a write.
func (m *Pods) Answered(id world.OpID, r op.Record, ev world.Event, out *op.Out) {
	w := m.Writes[r.Owner.Name]
	if w == nil || w.Op != id {
		return
	}
	w.Op = 0
	if ev.Err == nil || ev.Err.Has(world.KindNotFound) && r.Call == "DeleteObject" {
		w.Failures, w.NotBefore = 0, ev.Time.Add(watchLag)
		return
	}
	w.Failures++
	w.NotBefore = ev.Time.Add(timer.Retry(ev.Err, w.Failures, failureFirst, failureMost))
	if w.Failures == 1 {
		out.Log(world.LevelWarning, "the API server did not take a mirror pod", "pod",
			r.Owner.Name, "call", r.Call, "error", ev.Err.Error())
	}
}
