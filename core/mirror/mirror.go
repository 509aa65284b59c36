// Package mirror maintains the mirror pods of static pods at the API server.
//
// Facts: for every full name that has or needs a mirror pod, the write in flight and its back-off.
// Plan: compares the API object of that name with the static pod; a missing mirror pod is created,
// and one of another pod, of another version of the pod, of another Node, or marked for deletion is
// deleted and created again. Events: the completions of these writes. A change of a mirror pod
// never affects the static pod. Start reading at Writer.Plan.
package mirror

import (
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"seedlet.dev/core/manifest"
	"seedlet.dev/core/op"
	"seedlet.dev/core/statuswriter"
	"seedlet.dev/core/timer"
	"seedlet.dev/world"
)

// Component is the component of the keys of mirror pods.
const Component = "mirror"

const (
	requestTimeout = 30 * time.Second
	backoffFirst   = time.Second
	backoffMax     = time.Minute
	watchLag       = time.Second // most writes are observed by then
)

// Key returns the owner of the writes for a full name.
func Key(name string) timer.Key { return timer.Key{Component: Component, Name: name} }

// Writer creates and deletes mirror pods. The zero value is ready.
type Writer struct {
	Writes map[string]*Write `json:"writes,omitempty"` // by namespace/name
}

// Write is the work on one mirror pod.
type Write struct {
	Op       world.OpID `json:"op,omitempty"`
	Failures int        `json:"failures,omitempty"`
	// NotBefore is when to compare again: after the back-off of a failure, or when the watch has
	// probably observed the last write. An unnecessary write does no harm.
	NotBefore time.Time `json:"notBefore"`
}

// IsMirror reports whether an object is a mirror pod.
func IsMirror(pod *v1.Pod) bool {
	_, isMirror := pod.Annotations[v1.MirrorPodAnnotationKey]
	return isMirror
}

// StaticUID returns the UID of the static pod of a mirror pod.
func StaticUID(object *v1.Pod) string { return object.Annotations[v1.MirrorPodAnnotationKey] }

// Plan issues the next write for a full name, and returns when to plan again. The static pod is nil
// without one, object is the API object with the name, nil without one, and node is nil as long as
// there is no Node.
func (m *Writer) Plan(name string, static, object *v1.Pod, node *v1.Node,
	effects *op.Effects) time.Time {
	w := m.Writes[name]
	mirrored := object != nil && IsMirror(object)
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
	case effects.Now().Before(w.NotBefore):
		return w.NotBefore
	case mirrored && !isUpToDate(static, object, node):
		w.Op = effects.Issue(Key(name), string(object.UID), requestTimeout,
			statuswriter.DeleteRequest(object))
	case object == nil && node != nil:
		w.Op = effects.Issue(Key(name), "", requestTimeout, &world.CreateObject{
			Object: world.Object{Pod: newMirror(static, node)}})
	}
	return time.Time{}
}

// RetryNow ends the back-off of a name: the API server responds again.
func (m *Writer) RetryNow(name string) {
	if w := m.Writes[name]; w != nil {
		w.Failures, w.NotBefore = 0, time.Time{}
	}
}

// isUpToDate reports whether an object is the mirror pod that a static pod needs.
func isUpToDate(static, object *v1.Pod, node *v1.Node) bool {
	return static != nil && object.DeletionTimestamp == nil &&
		object.Annotations[v1.MirrorPodAnnotationKey] == configHash(static) &&
		(node == nil || len(object.OwnerReferences) == 1 &&
			object.OwnerReferences[0].UID == node.UID)
}

// configHash returns the value of the mirror annotation for a version of a static pod.
func configHash(static *v1.Pod) string { return static.Annotations[manifest.ConfigHashAnnotation] }

// newMirror returns the mirror pod of a static pod. The mirror pod is owned by the Node, so that it
// is garbage-collected with the Node, and so that the API server allows the node to create it
// (KEP-1314).
func newMirror(static *v1.Pod, node *v1.Node) *v1.Pod {
	object := static.DeepCopy()
	object.UID, object.Status = "", v1.PodStatus{}
	if object.Annotations == nil {
		object.Annotations = map[string]string{}
	}
	object.Annotations[v1.MirrorPodAnnotationKey] = configHash(static)
	controls := true
	object.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID, Controller: &controls,
	}}
	return object
}

// HandleCompletion applies the completion of a write.
func (m *Writer) HandleCompletion(id world.OpID, r op.Record, ev world.Event, effects *op.Effects) {
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
	w.NotBefore = ev.Time.Add(timer.RetryDelay(ev.Err, w.Failures, backoffFirst, backoffMax))
	if w.Failures == 1 {
		effects.Log(world.LevelWarning, "writing a mirror pod failed", "pod",
			r.Owner.Name, "call", r.Call, "err", ev.Err.Error())
	}
}
