package csi

import (
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"seedlet.dev/core/budget"
	"seedlet.dev/core/op"
	"seedlet.dev/core/timer"
	"seedlet.dev/core/volumeop"
	"seedlet.dev/world"
)

// Object is the CSINode of the node at the API server. It is read when something has to be
// changed, and after each failure of unknown outcome; no other client writes it.
type Object struct {
	Known bool `json:"known,omitempty"`
	// CSINode is the object as it was read or written last; nil: it does not exist.
	CSINode  *storagev1.CSINode `json:"csiNode,omitempty"`
	Op       world.OpID         `json:"op,omitempty"`
	Attempts volumeop.Attempts  `json:"attempts,omitzero"`
}

// ObjectOwner is the key of the CSINode.
var ObjectOwner = timer.Key{Component: "csinode"}

// nodeIDAnnotation is the annotation of the Node that has its ID of each driver.
const nodeIDAnnotation = "csi.volume.kubernetes.io/nodeid"

// migratedPlugins are the kinds of volumes that other components may take for migrated to CSI. The
// scheduler counts their volumes by it (migratedPlugins in csi_plugin.go).
const migratedPlugins = "kubernetes.io/aws-ebs,kubernetes.io/azure-disk,kubernetes.io/azure-file," +
	"kubernetes.io/cinder,kubernetes.io/gce-pd,kubernetes.io/portworx-volume," +
	"kubernetes.io/vsphere-volume"

// PlanObject issues the next request for the CSINode, and returns when to plan again.
func (n *Node) PlanObject(env *Env) time.Time {
	o := &n.Object
	var wake time.Time
	switch {
	case !n.Enabled || env.Object == nil || o.Op != 0:
	case o.Attempts.IsWaiting(env.Effects.Now(), &wake):
	case !o.Known:
		n.issueObject(&world.GetObject{Resource: world.ResourceCSINodes, Name: n.Name}, env)
	case o.CSINode == nil:
		created := n.desiredObject(&storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: n.Name,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: n.Name,
				UID: env.Object.UID}}}})
		n.issueObject(&world.CreateObject{Object: world.Object{CSINode: created}}, env)
	case !isOwnedBy(o.CSINode, env.Object): // it is that of an earlier Node of the name
		n.issueObject(&world.DeleteObject{Resource: world.ResourceCSINodes, Name: n.Name,
			UID: string(o.CSINode.UID)}, env)
	default:
		if desired := n.desiredObject(o.CSINode); !isSameObject(desired, o.CSINode) {
			n.issueObject(&world.UpdateObject{Object: world.Object{CSINode: desired}}, env)
		}
	}
	return wake
}

func (n *Node) issueObject(body any, env *Env) {
	n.Object.Op = env.Effects.Issue(ObjectOwner, "", apiTimeout, body)
}

func isOwnedBy(o *storagev1.CSINode, node *v1.Node) bool {
	return slices.ContainsFunc(o.OwnerReferences, func(r metav1.OwnerReference) bool {
		return r.Kind == "Node" && r.Name == node.Name && r.UID == node.UID
	})
}

func isSameObject(x, y *storagev1.CSINode) bool {
	return x.Annotations[v1.MigratedPluginsAnnotationKey] ==
		y.Annotations[v1.MigratedPluginsAnnotationKey] &&
		slices.EqualFunc(x.Spec.Drivers, y.Spec.Drivers, func(x, y storagev1.CSINodeDriver) bool {
			return x.Name == y.Name && isSameEntry(&x, &y)
		})
}

// desiredObject returns the CSINode with the entries of the drivers of this agent. Those of others,
// such as drivers that have not appeared since the agent started, stay.
func (n *Node) desiredObject(current *storagev1.CSINode) *storagev1.CSINode {
	desired := current.DeepCopy()
	metav1.SetMetaDataAnnotation(&desired.ObjectMeta, v1.MigratedPluginsAnnotationKey, migratedPlugins)
	desired.Spec.Drivers = []storagev1.CSINodeDriver{}
	listed := map[string]bool{}
	for _, entry := range current.Spec.Drivers {
		d := n.Drivers[entry.Name]
		switch {
		case listed[entry.Name] || d != nil && len(d.Sessions) == 0: // it has gone
			continue
		case d != nil && d.info() != nil:
			if wanted := entryOf(entry.Name, d.info()); !isSameEntry(&wanted, &entry) {
				entry = wanted
			}
		}
		listed[entry.Name] = true
		desired.Spec.Drivers = append(desired.Spec.Drivers, entry)
	}
	for _, name := range slices.Sorted(maps.Keys(n.Drivers)) {
		if info := n.Drivers[name].info(); info != nil && !listed[name] {
			desired.Spec.Drivers = append(desired.Spec.Drivers, entryOf(name, info))
		}
	}
	return desired
}

// entryOf returns the entry of a driver in the CSINode.
func entryOf(name string, info *world.CSINodeInfo) storagev1.CSINodeDriver {
	entry := storagev1.CSINodeDriver{Name: name, NodeID: info.NodeID,
		TopologyKeys: slices.Sorted(maps.Keys(info.Topology))}
	if info.VolumesMax > 0 {
		count := int32(min(info.VolumesMax, math.MaxInt32))
		entry.Allocatable = &storagev1.VolumeNodeResources{Count: &count}
	}
	return entry
}

// isSameEntry compares two entries of one driver; the order of the keys of the topology is none.
func isSameEntry(x, y *storagev1.CSINodeDriver) bool {
	count := func(e *storagev1.CSINodeDriver) int32 {
		if e.Allocatable == nil || e.Allocatable.Count == nil {
			return -1
		}
		return *e.Allocatable.Count
	}
	keys := func(e *storagev1.CSINodeDriver) []string {
		return slices.Sorted(slices.Values(e.TopologyKeys))
	}
	return x.NodeID == y.NodeID && count(x) == count(y) && slices.Equal(keys(x), keys(y))
}

// isPublished reports whether the cluster knows of a driver what it has answered, or nothing if
// info is nil.
func (n *Node) isPublished(name string, info *world.CSINodeInfo, env *Env) bool {
	if !n.Object.Known || n.Object.CSINode == nil || env.Object == nil {
		return false
	}
	drivers := n.Object.CSINode.Spec.Drivers
	i := slices.IndexFunc(drivers, func(e storagev1.CSINodeDriver) bool { return e.Name == name })
	id, hasID := nodeIDs(env.Object)[name]
	if info == nil {
		return i < 0 && !hasID
	}
	for key, value := range info.Topology { //ordered: whether one differs
		if have, exists := env.Object.Labels[key]; !exists || have != value {
			return false
		}
	}
	wanted := entryOf(name, info)
	return i >= 0 && isSameEntry(&wanted, &drivers[i]) && id == info.NodeID
}

// nodeIDs returns the IDs in the annotation of a Node. One that cannot be read is replaced.
func nodeIDs(node *v1.Node) map[string]string {
	ids := map[string]string{}
	if json.Unmarshal([]byte(node.Annotations[nodeIDAnnotation]), &ids) != nil {
		return map[string]string{}
	}
	return ids
}

// NodeMetadata returns the labels and annotations that the drivers need in the Node, as far as they
// differ from those that it has; a nil value removes an annotation. A label that has another value
// already is left: its driver is not registered.
func (n *Node) NodeMetadata(node *v1.Node) (labels, annotations map[string]any) {
	labels, annotations = map[string]any{}, map[string]any{}
	ids := nodeIDs(node)
	before := len(ids)
	changed := false
	for name, d := range n.Drivers { //ordered: each by itself
		info := d.info()
		switch {
		case info != nil:
			changed = changed || ids[name] != info.NodeID
			ids[name] = info.NodeID
			for key, value := range info.Topology { //ordered: a map
				if _, exists := node.Labels[key]; !exists {
					labels[key] = value
				}
			}
		case len(d.Sessions) == 0:
			delete(ids, name)
		}
	}
	switch {
	case !changed && len(ids) == before:
	case len(ids) == 0:
		annotations[nodeIDAnnotation] = nil
	default:
		text, err := json.Marshal(ids)
		if err != nil {
			panic("csi: encoding the IDs of the node: " + err.Error())
		}
		annotations[nodeIDAnnotation] = string(text)
	}
	return labels, annotations
}

// HandleObjectCompletion applies the completion of a request for the CSINode.
func (n *Node) HandleObjectCompletion(r op.Record, ev world.Event, env *Env) {
	o := &n.Object
	o.Op = 0
	read, ok := ev.Body.(*world.ObjectRead)
	switch {
	case ev.Err.Has(world.KindNotFound):
		o.Known, o.CSINode = true, nil
		o.Attempts.Succeed()
	case ev.Err == nil && r.Call == "DeleteObject":
		o.Known, o.CSINode = true, nil
	case ev.Err == nil && ok && read.Object.CSINode != nil:
		o.Known, o.CSINode = true, read.Object.CSINode
		o.Attempts.Succeed()
	default:
		n.failObject(r, ev, env)
	}
	for _, name := range slices.Sorted(maps.Keys(n.Drivers)) {
		env.Enqueue(DriverKey(name))
	}
}

// failObject notes a failed request. The object is read before the next write. Plugins are not
// registered if the API server refuses what they have answered.
func (n *Node) failObject(r op.Record, ev world.Event, env *Env) {
	o := &n.Object
	message, kind := "answered with another object", world.KindInternal
	if ev.Err != nil {
		message, kind = ev.Err.Message, ev.Err.Kind
	}
	o.Known = false
	if o.Attempts.Fail(ev.Time, message); o.Attempts.Failures == 1 && kind != world.KindConflict {
		env.Effects.Log(world.LevelWarning, "reading or writing the CSINode failed", "call", r.Call,
			"err", message)
	}
	if kind == world.KindConflict || kind == world.KindExists {
		o.Attempts.NotBefore = time.Time{} // it is read at once
	}
	if r.Call != "UpdateObject" || kind != world.KindInvalid && kind != world.KindRefused &&
		kind != world.KindTooLarge {
		return
	}
	for _, d := range n.Drivers { //ordered: each by itself
		for i := range d.Sessions {
			if s := &d.Sessions[i]; s.Info != nil && !s.Registered {
				s.Problem = budget.CutMessage("error updating CSINode object with CSI driver node info: " +
					strings.TrimSpace(message))
			}
		}
	}
}
