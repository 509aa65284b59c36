package csi

import (
	"cmp"
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
	CSINode *storagev1.CSINode `json:"csiNode,omitempty"`
	Op      world.OpID         `json:"op,omitempty"`
	// Writing is set while a write that concerns all drivers is in flight. Pending are those of single
	// drivers that may take effect.
	Writing  bool              `json:"writing,omitempty"`
	Pending  []EntryWrite      `json:"pending,omitempty"`
	Attempts volumeop.Attempts `json:"attempts,omitzero"`
}

// EntryWrite is an update of the entry of one driver. It may take effect while it is in flight, and
// after it has ended with unknown outcome, as long as the object has the version that it was made
// for: a read that does not show it proves nothing. Any change of the object ends that. If none is
// needed, because the driver needs what the object has, the update is made again.
type EntryWrite struct {
	Version string                   `json:"version"` // of the object
	Driver  string                   `json:"driver"`
	Entry   *storagev1.CSINodeDriver `json:"entry,omitempty"`   // nil: it is removed
	Unknown bool                     `json:"unknown,omitempty"` // it has ended with unknown outcome
	// Attempts are those to make it again.
	Attempts volumeop.Attempts `json:"attempts,omitzero"`
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
		n.issueObject("", &world.GetObject{Resource: world.ResourceCSINodes, Name: n.Name}, env)
	case o.CSINode == nil: // none of the drivers can be why it is refused
		created := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: n.Name,
			Annotations: map[string]string{v1.MigratedPluginsAnnotationKey: migratedPlugins},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: n.Name,
				UID: env.Object.UID}}}, Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{}}}
		n.issueObject("", &world.CreateObject{Object: world.Object{CSINode: created}}, env)
	case !isOwnedBy(o.CSINode, env.Object): // it is that of an earlier Node of the name
		n.issueObject("", &world.DeleteObject{Resource: world.ResourceCSINodes, Name: n.Name,
			UID: string(o.CSINode.UID)}, env)
	default:
		if wake = n.planEntries(env); o.Op == 0 {
			o.Attempts.Succeed()
		}
	}
	return wake
}

// planEntries issues the next change of a CSINode, and returns when to plan again. Each is that of
// one driver, so that one whose entry the API server refuses keeps no other from the object.
func (n *Node) planEntries(env *Env) time.Time {
	var wake time.Time
	current := n.Object.CSINode
	if current.Annotations[v1.MigratedPluginsAnnotationKey] != migratedPlugins {
		desired := current.DeepCopy()
		metav1.SetMetaDataAnnotation(&desired.ObjectMeta, v1.MigratedPluginsAnnotationKey,
			migratedPlugins)
		n.issueObject("", &world.UpdateObject{Object: world.Object{CSINode: desired}}, env)
		return wake
	}
	for _, name := range n.driversInTurn() {
		entry, changes := n.nextEntry(name, env)
		if changes && !n.isBackingOff(name, env, &wake) {
			n.issueEntry(name, entry, env)
			return wake
		}
	}
	pending := slices.SortedStableFunc(slices.Values(n.Object.Pending), func(x, y EntryWrite) int {
		return cmp.Compare(x.Attempts.Failures, y.Attempts.Failures)
	})
	for _, p := range pending {
		if !n.isBackingOff(p.Driver, env, &wake) && !p.Attempts.IsWaiting(env.Effects.Now(), &wake) {
			n.issueEntry(p.Driver, p.Entry, env)
			return wake
		}
	}
	return wake
}

// driversInTurn returns the names of the drivers, those first whose writes have failed the least:
// one that is refused each time keeps no other from the object.
func (n *Node) driversInTurn() []string {
	return slices.SortedFunc(maps.Keys(n.Drivers), func(x, y string) int {
		return cmp.Or(cmp.Compare(n.Drivers[x].Refused.Failures, n.Drivers[y].Refused.Failures),
			cmp.Compare(x, y))
	})
}

// isBackingOff reports whether a write for a driver has failed, and is due again later.
func (n *Node) isBackingOff(driver string, env *Env, wake *time.Time) bool {
	d := n.Drivers[driver]
	return d != nil && d.Refused.IsWaiting(env.Effects.Now(), wake)
}

// issueEntry issues an update of the entry of a driver; nil removes it.
func (n *Node) issueEntry(driver string, entry *storagev1.CSINodeDriver, env *Env) {
	o := &n.Object
	n.issueObject(driver, &world.UpdateObject{Object: world.Object{
		CSINode: n.withEntry(driver, entry)}}, env)
	if !o.isPending(driver) {
		o.Pending = append(o.Pending, EntryWrite{Version: o.CSINode.ResourceVersion, Driver: driver,
			Entry: entry})
	}
}

// failPending applies the failure of an update of the entry of a driver. One that has changed
// nothing takes no effect later, but an earlier one with unknown outcome may, unless the content is
// invalid.
func (o *Object) failPending(driver string, err *world.Error, now time.Time) {
	for i := range o.Pending {
		if p := &o.Pending[i]; p.Driver == driver {
			p.Unknown = p.Unknown || err == nil || err.IsUnknown()
			p.Attempts.Fail(now, "")
		}
	}
	o.Pending = slices.DeleteFunc(o.Pending, func(p EntryWrite) bool {
		return p.Driver == driver && (!p.Unknown || err.Has(world.KindInvalid))
	})
}

// isPending reports whether a write of the entry of a driver may take effect.
func (o *Object) isPending(driver string) bool {
	return slices.ContainsFunc(o.Pending, func(p EntryWrite) bool { return p.Driver == driver })
}

// issueObject issues a request whose subject is the driver that it is for; empty: none.
func (n *Node) issueObject(driver string, body any, env *Env) {
	_, reads := body.(*world.GetObject)
	n.Object.Op = env.Effects.Issue(ObjectOwner, driver, apiTimeout, body)
	n.Object.Writing = !reads && driver == ""
}

func isOwnedBy(o *storagev1.CSINode, node *v1.Node) bool {
	return slices.ContainsFunc(o.OwnerReferences, func(r metav1.OwnerReference) bool {
		return r.Kind == "Node" && r.Name == node.Name && r.UID == node.UID
	})
}

// nextEntry returns the entry of a driver that the next write of the CSINode leaves there, nil for
// none, and whether it differs from the present one. Of an entry only the number of volumes can
// change (ValidateCSINodeUpdate upstream): any other is removed first, and added by the next write.
// The Node has what a driver needs before the CSINode.
func (n *Node) nextEntry(name string, env *Env) (next *storagev1.CSINodeDriver, changes bool) {
	d, entry := n.Drivers[name], entryIn(n.Object.CSINode, name)
	s := d.source()
	switch {
	case len(d.Sessions) == 0: // it has gone
		return nil, entry != nil
	case s == nil, !s.Registered && !env.isInNode(name, s.Info):
		return entry, false // an earlier entry stays until then
	}
	wanted := entryOf(name, s.Info)
	switch {
	case entry == nil:
		return &wanted, true
	case isSameEntry(&wanted, entry):
		return entry, false
	}
	counted := *entry
	if counted.Allocatable = wanted.Allocatable; isSameEntry(&wanted, &counted) {
		return &counted, true
	}
	return nil, true
}

// withEntry returns the CSINode with an entry of a driver instead of the present one. Entries of
// others, such as drivers that have not appeared since the agent started, stay.
func (n *Node) withEntry(name string, entry *storagev1.CSINodeDriver) *storagev1.CSINode {
	desired := n.Object.CSINode.DeepCopy()
	desired.Spec.Drivers = slices.DeleteFunc(desired.Spec.Drivers,
		func(e storagev1.CSINodeDriver) bool {
			return e.Name == name
		})
	if entry != nil {
		desired.Spec.Drivers = append(desired.Spec.Drivers, *entry.DeepCopy())
	}
	return desired
}

// entryIn returns the entry of a driver in a CSINode; nil if it has none.
func entryIn(o *storagev1.CSINode, name string) *storagev1.CSINodeDriver {
	for i := range o.Spec.Drivers {
		if o.Spec.Drivers[i].Name == name {
			return &o.Spec.Drivers[i]
		}
	}
	return nil
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
	return n.isListed(name, info) && env.isInNode(name, info)
}

// isListed reports whether the CSINode has what a driver has answered, or nothing if info is nil. A
// write that may take effect may change its entry.
func (n *Node) isListed(name string, info *world.CSINodeInfo) bool {
	o := &n.Object
	if !o.Known || o.CSINode == nil || o.Writing || o.isPending(name) {
		return false
	}
	entry := entryIn(o.CSINode, name)
	if info == nil || entry == nil {
		return info == nil && entry == nil
	}
	wanted := entryOf(name, info)
	return isSameEntry(&wanted, entry)
}

// isInNode reports whether the Node has what a driver has answered, or nothing if info is nil. A
// write that may still take effect may change that.
func (e *Env) isInNode(name string, info *world.CSINodeInfo) bool {
	node := e.Object
	if node == nil || e.IsWriting != nil && e.IsWriting(name) {
		return false
	}
	id, hasID := nodeIDs(node)[name]
	if info == nil {
		return !hasID
	}
	for key, value := range info.Topology { //ordered: whether one differs
		if have, exists := node.Labels[key]; !exists || have != value {
			return false
		}
	}
	return id == info.NodeID
}

// nodeIDs returns the IDs in the annotation of a Node. One that cannot be read is replaced.
func nodeIDs(node *v1.Node) map[string]string {
	ids := map[string]string{}
	if json.Unmarshal([]byte(node.Annotations[nodeIDAnnotation]), &ids) != nil {
		return map[string]string{}
	}
	return ids
}

// NodeMetadata returns the first driver after another one, by their names, that needs labels and
// annotations in the Node which it does not have, and these; empty: there is none. A nil value
// removes an annotation. Each driver has its own patch: one may need what the API server refuses.
func (n *Node) NodeMetadata(node *v1.Node, after string, now time.Time) (driver string, labels,
	annotations map[string]any) {
	var wait time.Time
	for _, name := range slices.Sorted(maps.Keys(n.Drivers)) {
		if name <= after || n.Drivers[name].Refused.IsWaiting(now, &wait) {
			continue
		}
		if labels, annotations = n.metadataOf(name, node); len(labels)+len(annotations) > 0 {
			return name, labels, annotations
		}
	}
	return "", nil, nil
}

// metadataOf returns what a driver needs in a Node, as far as that does not have it. A label that
// has another value already is left: a driver is not registered for it.
func (n *Node) metadataOf(name string, node *v1.Node) (labels, annotations map[string]any) {
	labels, annotations = map[string]any{}, map[string]any{}
	d, ids := n.Drivers[name], nodeIDs(node)
	id, hasID := ids[name]
	switch s := d.source(); {
	case s != nil && !s.Registered && s.collision(node) != "":
		return nil, nil
	case s != nil:
		for key, value := range s.Info.Topology { //ordered: a map
			if _, exists := node.Labels[key]; !exists {
				labels[key] = value
			}
		}
		if id == s.Info.NodeID {
			return labels, annotations
		}
		ids[name] = s.Info.NodeID
	case len(d.Sessions) == 0 && hasID:
		delete(ids, name)
	default:
		return nil, nil
	}
	if annotations[nodeIDAnnotation] = nil; len(ids) > 0 {
		text, err := json.Marshal(ids)
		if err != nil {
			panic("csi: encoding the IDs of the node: " + err.Error())
		}
		annotations[nodeIDAnnotation] = string(text)
	}
	return labels, annotations
}

// RefuseMetadata notes that the API server has refused what a driver needs in the Node.
func (n *Node) RefuseMetadata(driver, message string, env *Env) {
	if d := n.Drivers[driver]; d != nil {
		d.refuse("error updating Node object with CSI driver node info: "+message, driver, env)
		env.Enqueue(DriverKey(driver))
	}
}

// AcceptMetadata notes that the Node has what a driver needs.
func (n *Node) AcceptMetadata(driver string) {
	if d := n.Drivers[driver]; d != nil {
		d.Refused.Succeed()
	}
}

// HandleObjectCompletion applies the completion of a request for the CSINode.
func (n *Node) HandleObjectCompletion(r op.Record, ev world.Event, env *Env) {
	o := &n.Object
	o.Op, o.Writing = 0, false
	read, ok := ev.Body.(*world.ObjectRead)
	switch {
	case ev.Err.Has(world.KindNotFound), ev.Err == nil && r.Call == "DeleteObject":
		o.Known, o.CSINode, o.Pending = true, nil, nil
	case ev.Err == nil && ok && read.Object.CSINode != nil:
		o.Known, o.CSINode = true, read.Object.CSINode
		o.Pending = slices.DeleteFunc(o.Pending, func(p EntryWrite) bool {
			return p.Version != o.CSINode.ResourceVersion || p.Driver == r.Subject
		})
		if r.Call != "GetObject" { // a read between two writes that fail is no success
			o.Attempts.Succeed()
		}
		if d := n.Drivers[r.Subject]; d != nil {
			d.Refused.Succeed()
		}
	default:
		n.failObject(r, ev, env)
	}
	for _, name := range slices.Sorted(maps.Keys(n.Drivers)) {
		env.Enqueue(DriverKey(name))
	}
	n.enqueueFull(env)
}

// failObject notes a failed request. The object is read before the next write. A plugin is not
// registered if the API server refuses its entry, or the object itself.
func (n *Node) failObject(r op.Record, ev world.Event, env *Env) {
	o := &n.Object
	message, kind := "answered with another object", world.KindInternal
	if ev.Err != nil {
		message, kind = ev.Err.Message, ev.Err.Kind
	}
	o.Known = false
	o.failPending(r.Subject, ev.Err, ev.Time)
	isRefused := kind == world.KindInvalid || kind == world.KindRefused || kind == world.KindTooLarge
	if !isRefused || r.Subject == "" { // else the other drivers go on
		if o.Attempts.Fail(ev.Time, message); o.Attempts.Failures == 1 && kind != world.KindConflict {
			env.Effects.Log(world.LevelWarning, "reading or writing the CSINode failed", "call", r.Call,
				"err", message)
		}
	}
	switch d := n.Drivers[r.Subject]; {
	case isRefused && r.Call != "GetObject":
		n.refuseEntries(r.Subject, message, env)
	case kind == world.KindConflict, kind == world.KindExists:
		if o.Attempts.Failures == 1 {
			o.Attempts.NotBefore = time.Time{} // it is read at once
		}
	case d != nil:
		d.Refused.Fail(ev.Time, message) // others have their turns meanwhile
	}
}

// refuseEntries notes that the API server refuses the entry of a driver; empty: those of all.
func (n *Node) refuseEntries(driver, message string, env *Env) {
	problem := "error updating CSINode object with CSI driver node info: " + strings.TrimSpace(message)
	for _, name := range slices.Sorted(maps.Keys(n.Drivers)) {
		if driver == "" || driver == name {
			n.Drivers[name].refuse(problem, name, env)
		}
	}
}

// refuse notes that the API server refuses what a driver needs. A plugin that is not registered
// cannot be; what a registered one needs, or one that has gone has left, is written again later.
func (d *Driver) refuse(problem, name string, env *Env) {
	s := d.source()
	switch {
	case s != nil && !s.Registered:
		s.Problem = budget.CutMessage(problem)
		return
	case s == nil && len(d.Sessions) > 0: // it has not answered, and so asked for nothing
		return
	}
	if d.Refused.Fail(env.Effects.Now(), problem); d.Refused.Failures == 1 {
		env.Effects.Log(world.LevelWarning, "Failed to make a CSI driver known to the cluster", "driver",
			name, "err", d.Refused.Problem)
	}
}
