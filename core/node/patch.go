package node

import (
	"encoding/json"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"seedlet.dev/world"
)

const (
	attachDetachAnnotation = "volumes.kubernetes.io/controller-managed-attach-detach"
	providedIPAnnotation   = "alpha.kubernetes.io/provided-node-ip"
	uninitializedTaint     = "node.cloudprovider.kubernetes.io/uninitialized"
)

// patchFields are the fields of a patch by name. A nil field is removed.
type patchFields map[string]any

// newObject returns the object to create.
func (n *Node) newObject(env *Env) *v1.Node {
	node := n.InitialObject(env.Boot)
	node.Status = *n.desiredStatus(env, false)
	return node
}

// InitialObject returns the object with which the node registers, without a status.
func (n *Node) InitialObject(boot *world.Boot) *v1.Node {
	s, m := &n.Settings, &boot.Machine
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: s.Name, Labels: s.labels(m.OperatingSystem, m.Architecture),
	}}
	node.Spec.ProviderID, node.Spec.Taints = s.ProviderID, slices.Clone(s.Taints)
	if s.ExternalCloud {
		node.Spec.Taints = append(node.Spec.Taints, v1.Taint{Key: uninitializedTaint, Value: "true",
			Effect: v1.TaintEffectNoSchedule})
	}
	for name, value := range s.annotations(true) { //ordered: each by itself
		if text, set := value.(string); set {
			metav1.SetMetaDataAnnotation(&node.ObjectMeta, name, text)
		}
	}
	return node
}

// annotations returns the annotations that the node sets or, if nil, removes.
func (s *Settings) annotations(reconcile bool) patchFields {
	a := patchFields{providedIPAnnotation: nil}
	if s.ExternalCloud && len(s.IPs) > 0 && !isUnspecified(s.IPs[0]) {
		text := s.IPs[0]
		for _, ip := range s.IPs[1:] {
			text += "," + ip
		}
		a[providedIPAnnotation] = text
	}
	if reconcile {
		a[attachDetachAnnotation] = nil
		if s.AttachDetach {
			a[attachDetachAnnotation] = "true"
		}
	}
	return a
}

// metadataPatch returns the patch of the object's labels and annotations; nil if there is no
// difference. Labels of others stay. With reconcile, all labels and annotations of the node are
// patched, else only those that other components depend on.
func (n *Node) metadataPatch(env *Env, reconcile bool) patchFields {
	desired, labels, m := patchFields{}, patchFields{}, &env.Boot.Machine
	for name, value := range n.Settings.labels(m.OperatingSystem, m.Architecture) { //ordered: a map
		if reconcile && slices.Contains(allowedLabels, name) && value != "" {
			desired[name] = value
		}
	}
	desired[v1.LabelOSStable], desired[v1.LabelArchStable] = m.OperatingSystem, m.Architecture
	addDifferences(labels, desired, n.Object.Labels)
	annotations := patchFields{}
	addDifferences(annotations, n.Settings.annotations(reconcile), n.Object.Annotations)
	return metadataFields(labels, annotations)
}

// metadataFields returns a patch of labels and annotations; nil if there are none.
func metadataFields(labels, annotations map[string]any) patchFields {
	patch := patchFields{}
	if len(labels) > 0 {
		patch["labels"] = labels
	}
	if len(annotations) > 0 {
		patch["annotations"] = annotations
	}
	if len(patch) == 0 {
		return nil
	}
	return patch
}

// addDifferences adds the desired values that differ from the current ones to a patch.
func addDifferences(patch, desired patchFields, current map[string]string) {
	for name, value := range desired { //ordered: a patch is a map
		have, exists := current[name]
		if value == nil && exists || value != nil && (!exists || have != value) {
			patch[name] = value
		}
	}
}

// statusPatch returns the differences of two statuses, without the conditions; nil if neither these
// nor the conditions differ.
func statusPatch(current, desired *v1.NodeStatus) patchFields {
	patch := patchFields{}
	set := func(name string, current, desired any) {
		if !equality.Semantic.DeepEqual(current, desired) {
			patch[name] = desired
		}
	}
	set("daemonEndpoints", current.DaemonEndpoints, desired.DaemonEndpoints)
	set("images", current.Images, desired.Images)
	set("runtimeHandlers", current.RuntimeHandlers, desired.RuntimeHandlers)
	set("features", current.Features, desired.Features)
	set("volumesInUse", current.VolumesInUse, desired.VolumesInUse)
	set("declaredFeatures", current.DeclaredFeatures, desired.DeclaredFeatures)
	if !equality.Semantic.DeepEqual(current.NodeInfo, desired.NodeInfo) {
		patch["nodeInfo"] = struct {
			v1.NodeSystemInfo
			Swap *v1.NodeSwapStatus `json:"swap"` // null removes the field
		}{desired.NodeInfo, desired.NodeInfo.Swap}
	}
	if !equality.Semantic.DeepEqual(current.Addresses, desired.Addresses) {
		// By default the API server merges addresses by type, which leaves old addresses of a type that
		// occurs twice.
		patch["addresses"] = append(asAny(desired.Addresses), patchFields{"$patch": "replace"})
	}
	resourcesPatch(patch, "capacity", current.Capacity, desired.Capacity)
	resourcesPatch(patch, "allocatable", current.Allocatable, desired.Allocatable)
	if len(patch) == 0 && !conditionsDiffer(current.Conditions, desired.Conditions) {
		return nil
	}
	return patch
}

func asAny[T any](list []T) []any {
	items := make([]any, len(list))
	for i := range list {
		items[i] = list[i]
	}
	return items
}

func resourcesPatch(patch patchFields, name string, current, desired v1.ResourceList) {
	changes := patchFields{}
	for r, amount := range desired { //ordered: a patch is a map
		if have, exists := current[r]; !exists || have.Cmp(amount) != 0 {
			changes[string(r)] = amount
		}
	}
	for r := range current { //ordered: a patch is a map
		if _, stays := desired[r]; !stays {
			changes[string(r)] = nil
		}
	}
	if len(changes) > 0 {
		patch[name] = changes
	}
}

// conditionsDiffer compares conditions, but for their heartbeat times.
func conditionsDiffer(current, desired []v1.NodeCondition) bool {
	return slices.ContainsFunc(desired, func(c v1.NodeCondition) bool {
		i := slices.IndexFunc(current, hasType(c.Type))
		if i < 0 {
			return true
		}
		condition := current[i]
		condition.LastHeartbeatTime = c.LastHeartbeatTime
		return !equality.Semantic.DeepEqual(condition, c)
	})
}

// withConditions adds the node's own conditions to a patch. The server merges them with other
// conditions by type.
func withConditions(patch patchFields, desired *v1.NodeStatus) patchFields {
	if patch == nil {
		patch = patchFields{}
	}
	patch["conditions"] = desired.Conditions
	return patch
}

// newPatch returns a patch of this object, which fails for another object of the same name.
func (n *Node) newPatch(metadata, status patchFields) *world.PatchObject {
	if metadata == nil {
		metadata = patchFields{}
	}
	metadata["uid"] = n.Object.UID
	all := patchFields{"metadata": metadata}
	if status != nil {
		all["status"] = status
	}
	data, err := json.Marshal(all)
	if err != nil {
		panic("node: marshaling a patch: " + err.Error())
	}
	return &world.PatchObject{Resource: world.ResourceNodes, Name: n.Settings.Name,
		Status: status != nil, Patch: data}
}
