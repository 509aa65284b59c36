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

// fields are those of a patch, by name. One that is nil is taken away.
type fields map[string]any

// fresh is the object that is made if there is none.
func (n *Node) fresh(env *Env) *v1.Node {
	node := n.Initial(env.Boot)
	node.Status = *n.status(env, false)
	return node
}

// Initial is the node as it is before anybody has said anything else of it: without a status.
func (n *Node) Initial(boot *world.Boot) *v1.Node {
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

// annotations are those that the node sets or, with nil, takes away.
func (s *Settings) annotations(fix bool) fields {
	a := fields{providedIPAnnotation: nil}
	if s.ExternalCloud && len(s.IPs) > 0 && !unspecified(s.IPs[0]) {
		text := s.IPs[0]
		for _, ip := range s.IPs[1:] {
			text += "," + ip
		}
		a[providedIPAnnotation] = text
	}
	if fix {
		a[attachDetachAnnotation] = nil
		if s.AttachDetach {
			a[attachDetachAnnotation] = "true"
		}
	}
	return a
}

// metadataPatch is what has to change in the labels and annotations of the object; nil if nothing.
// What is not the node's own stays. With fix, all of its own are put right, else only those that
// others cannot do without.
func (n *Node) metadataPatch(boot *world.Boot, fix bool) fields {
	own, labels, m := fields{}, fields{}, &boot.Machine
	for name, value := range n.Settings.labels(m.OperatingSystem, m.Architecture) { //ordered: a map
		if fix && slices.Contains(ownLabels, name) && value != "" {
			own[name] = value
		}
	}
	own[v1.LabelOSStable], own[v1.LabelArchStable] = m.OperatingSystem, m.Architecture
	differ(labels, own, n.Object.Labels)
	annotations := fields{}
	differ(annotations, n.Settings.annotations(fix), n.Object.Annotations)
	patch := fields{}
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

// differ puts into patch what is wanted and is not.
func differ(patch, want fields, is map[string]string) {
	for name, value := range want { //ordered: a patch is a map
		have, has := is[name]
		if value == nil && has || value != nil && (!has || have != value) {
			patch[name] = value
		}
	}
}

// statusPatch is what has to change in a status, but for its conditions' times; nil if nothing.
func statusPatch(is, want *v1.NodeStatus) fields {
	patch := fields{}
	set := func(name string, is, want any) {
		if !equality.Semantic.DeepEqual(is, want) {
			patch[name] = want
		}
	}
	set("daemonEndpoints", is.DaemonEndpoints, want.DaemonEndpoints)
	set("images", is.Images, want.Images)
	set("runtimeHandlers", is.RuntimeHandlers, want.RuntimeHandlers)
	set("features", is.Features, want.Features)
	set("declaredFeatures", is.DeclaredFeatures, want.DeclaredFeatures)
	if !equality.Semantic.DeepEqual(is.NodeInfo, want.NodeInfo) {
		patch["nodeInfo"] = struct {
			v1.NodeSystemInfo
			Swap *v1.NodeSwapStatus `json:"swap"` // null takes it away
		}{want.NodeInfo, want.NodeInfo.Swap}
	}
	if !equality.Semantic.DeepEqual(is.Addresses, want.Addresses) {
		// By the API's rules they would be merged by type, which leaves old ones of a type that
		// there are two of.
		patch["addresses"] = append(asAny(want.Addresses), fields{"$patch": "replace"})
	}
	resourcesPatch(patch, "capacity", is.Capacity, want.Capacity)
	resourcesPatch(patch, "allocatable", is.Allocatable, want.Allocatable)
	if len(patch) == 0 && !conditionsDiffer(is.Conditions, want.Conditions) {
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

func resourcesPatch(patch fields, name string, is, want v1.ResourceList) {
	changes := fields{}
	for r, amount := range want { //ordered: a patch is a map
		if have, has := is[r]; !has || have.Cmp(amount) != 0 {
			changes[string(r)] = amount
		}
	}
	for r := range is { //ordered: a patch is a map
		if _, stays := want[r]; !stays {
			changes[string(r)] = nil
		}
	}
	if len(changes) > 0 {
		patch[name] = changes
	}
}

// conditionsDiffer compares what conditions say, and not when it was said.
func conditionsDiffer(are, want []v1.NodeCondition) bool {
	return slices.ContainsFunc(want, func(c v1.NodeCondition) bool {
		i := slices.IndexFunc(are, ofType(c.Type))
		if i < 0 {
			return true
		}
		is := are[i]
		is.LastHeartbeatTime = c.LastHeartbeatTime
		return !equality.Semantic.DeepEqual(is, c)
	})
}

// withConditions adds the node's own conditions. They are merged with those of others, by type.
func withConditions(patch fields, want *v1.NodeStatus) fields {
	if patch == nil {
		patch = fields{}
	}
	patch["conditions"] = want.Conditions
	return patch
}

// patch changes the object, and no other one of its name.
func (n *Node) patch(metadata, status fields) *world.PatchObject {
	if metadata == nil {
		metadata = fields{}
	}
	metadata["uid"] = n.Object.UID
	all := fields{"metadata": metadata}
	if status != nil {
		all["status"] = status
	}
	data, err := json.Marshal(all)
	if err != nil {
		panic("node: a patch that cannot be written: " + err.Error())
	}
	return &world.PatchObject{Resource: world.ResourceNodes, Name: n.Settings.Name,
		Status: status != nil, Patch: data}
}
