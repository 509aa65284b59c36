package node

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"seedlet.dev/core/op"
	"seedlet.dev/world"
)

// Events about the node, with the kubelet's reasons and messages.

// Event is an Event about the node. It is recorded once the API server has the status that it is
// about.
type Event struct {
	Type    string `json:"type"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

// Reference returns the reference of a node in Events, as the kubelet writes it: the UID is the
// node's name, since the UID of the object is unknown before it exists, and clients select the
// Events of a node by its name.
func Reference(name string) v1.ObjectReference {
	return v1.ObjectReference{Kind: "Node", Name: name, UID: types.UID(name)}
}

// pressureReasons and noPressureReasons are the reasons of Events about pressure and its absence.
var pressureReasons = map[v1.NodeConditionType]string{
	v1.NodeMemoryPressure: "NodeHasInsufficientMemory",
	v1.NodeDiskPressure:   "NodeHasDiskPressure",
	v1.NodePIDPressure:    "NodeHasInsufficientPID",
}

var noPressureReasons = map[v1.NodeConditionType]string{
	v1.NodeMemoryPressure: "NodeHasSufficientMemory",
	v1.NodeDiskPressure:   "NodeHasNoDiskPressure",
	v1.NodePIDPressure:    "NodeHasSufficientPID",
}

// statusEvents returns the Events about a change from the current to the desired status.
func (n *Node) statusEvents(current, desired *v1.NodeStatus) []Event {
	var all []Event
	name := n.Settings.Name
	for i := range desired.Conditions {
		c, previous := &desired.Conditions[i], v1.ConditionStatus("")
		if at := slices.IndexFunc(current.Conditions, hasType(c.Type)); at >= 0 {
			previous = current.Conditions[at].Status
		}
		reason := noPressureReasons[c.Type]
		switch {
		case previous == c.Status, c.Type == v1.NodeReady && previous == "":
			continue
		case c.Type == v1.NodeReady && c.Status == v1.ConditionTrue:
			reason = "NodeReady"
		case c.Type == v1.NodeReady:
			reason = "NodeNotReady"
		case c.Status == v1.ConditionTrue:
			reason = pressureReasons[c.Type]
		}
		all = append(all, Event{v1.EventTypeNormal, reason,
			fmt.Sprintf("Node %s status is now: %s", name, reason)})
	}
	previous, boot := current.NodeInfo.BootID, desired.NodeInfo.BootID
	if previous != "" && previous != boot {
		all = append(all, Event{v1.EventTypeWarning, "Rebooted",
			fmt.Sprintf("Node %s has been rebooted, boot id: %s", name, boot)})
	}
	return all
}

// recordScheduling records an Event if the node has been cordoned or uncordoned. An agent that
// starts on a cordoned node records that once, as the kubelet does.
func (n *Node) recordScheduling(effects *op.Effects) {
	unschedulable, reason := n.Object.Spec.Unschedulable, "NodeSchedulable"
	if unschedulable == n.Unschedulable {
		return
	}
	if n.Unschedulable = unschedulable; unschedulable {
		reason = "NodeNotSchedulable"
	}
	effects.RecordEvent(Reference(n.Settings.Name), v1.EventTypeNormal, reason,
		"Node %s status is now: %s", n.Settings.Name, reason)
}

// processNameBytesMax is the 15 bytes of a name as the kernel logs them: each as \xNN at most.
const processNameBytesMax = 4 * 15

func printableName(name string) string {
	name = name[:min(len(name), processNameBytesMax)]
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, name)
}

// RecordStart records the Events about the start of an agent.
func RecordStart(name string, machine *world.Machine, effects *op.Effects) {
	reference := Reference(name)
	effects.RecordEvent(reference, v1.EventTypeNormal, "Starting", "Starting kubelet.")
	if machine.SwapsTmpfs {
		effects.RecordEvent(reference, v1.EventTypeWarning, "PossibleMemoryBackedVolumesOnDisk",
			"The tmpfs noswap option is not supported. Memory-backed volumes (e.g. secrets, emptyDirs, "+
				"etc.) might be swapped to disk and should no longer be considered secure.")
	}
	if machine.CgroupV1 {
		effects.RecordEvent(reference, v1.EventTypeWarning, "CgroupV1", "cgroup v1 detected. cgroup "+
			"v1 support is deprecated and will be removed in a future release. Please migrate to "+
			"cgroup v2. More information at "+
			"https://git.k8s.io/enhancements/keps/sig-node/5573-remove-cgroup-v1")
	}
}

// recordEvents records the Events of the status that has been written.
func (n *Node) recordEvents(effects *op.Effects) {
	for _, event := range n.EventsInFlight {
		effects.RecordEvent(Reference(n.Settings.Name), event.Type, event.Reason, "%s", event.Message)
	}
	n.EventsInFlight = nil
}
