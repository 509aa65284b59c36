package node

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"seedlet.dev/core/op"
)

// What users are told of the node, as Event objects, with the kubelet's reasons and sentences.

// News is something to tell of the node, once the server knows it.
type News struct {
	Type    string `json:"type"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

// Reference is a node, as the kubelet's events name it: what shows a node looks for its name in
// the place of its UID, which nobody knows before the object exists.
func Reference(name string) v1.ObjectReference {
	return v1.ObjectReference{Kind: "Node", Name: name, UID: types.UID(name)}
}

// reliefs are the reasons that tell that there is no pressure.
var reliefs = map[v1.NodeConditionType]string{
	v1.NodeMemoryPressure: "NodeHasSufficientMemory",
	v1.NodeDiskPressure:   "NodeHasNoDiskPressure",
	v1.NodePIDPressure:    "NodeHasSufficientPID",
}

// news is what there is to tell of a status that takes the place of another.
func (n *Node) news(is, want *v1.NodeStatus) []News {
	var all []News
	name := n.Settings.Name
	for i := range want.Conditions {
		c, was := &want.Conditions[i], v1.ConditionStatus("")
		if at := slices.IndexFunc(is.Conditions, ofType(c.Type)); at >= 0 {
			was = is.Conditions[at].Status
		}
		reason := reliefs[c.Type]
		switch {
		case was == c.Status, c.Type == v1.NodeReady && was == "":
			continue
		case c.Type == v1.NodeReady && c.Status == v1.ConditionTrue:
			reason = "NodeReady"
		case c.Type == v1.NodeReady:
			reason = "NodeNotReady"
		}
		all = append(all, News{v1.EventTypeNormal, reason,
			fmt.Sprintf("Node %s status is now: %s", name, reason)})
	}
	if was, boot := is.NodeInfo.BootID, want.NodeInfo.BootID; was != "" && was != boot {
		all = append(all, News{v1.EventTypeWarning, "Rebooted",
			fmt.Sprintf("Node %s has been rebooted, boot id: %s", name, boot)})
	}
	return all
}

// tell tells what there is to tell.
func (n *Node) tell(out *op.Out) {
	for _, news := range n.News {
		out.Event(Reference(n.Settings.Name), news.Type, news.Reason, "%s", news.Message)
	}
	n.News = nil
}
